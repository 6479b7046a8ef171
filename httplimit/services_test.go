package httplimit

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

// Three services of one cluster name a limit "address": by rules, by the client's address, and by a
// Key that the request lacks.
func TestServicesShareALimitOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		start := func(name string) *weir.Node {
			n, err := weir.Start(t.Context(), weir.Config{Cluster: network.Host(name).Cluster(cluster.Config{}), Logger: quietly})
			require.NoError(t, err)
			t.Cleanup(func() { n.Close() })
			return n
		}
		byLimiter := func(n *weir.Node, o Options) http.Handler {
			l, err := n.Limiter(weir.Limit{Name: "address", Algorithm: weir.FixedWindow, Rate: 10, Per: time.Hour})
			require.NoError(t, err)
			o.Logger = quietly
			m, err := ByLimiter(l, o)
			require.NoError(t, err)
			return m.Handler(hello)
		}
		byRules := start("rules")
		set, err := rules.Parse("rules.yaml", []byte("rules: [{name: address, key: ip, limit: {algorithm: fixed_window, rate: 10, per: 1h}}]"))
		require.NoError(t, err)
		book, err := rules.Static(byRules, set)
		require.NoError(t, err)
		t.Cleanup(func() { book.Close() })
		m, err := New(byRules, book, Options{Logger: quietly})
		require.NoError(t, err)
		services := []http.Handler{m.Handler(hello), byLimiter(start("address"), Options{}), byLimiter(start("tenant"), Options{Key: HeaderValue("X-Tenant")})}
		time.Sleep(3 * time.Second)
		admitted := make([]int, len(services))
		for i := range 30 {
			if answer(services[i%3], get("/", "192.0.2.1")).Code == http.StatusOK {
				admitted[i%3]++
			}
		}
		require.Equal(t, []int{4, 3, 3}, admitted)
	})
}

package httplimit

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

// gateways are three of a cluster, in virtual time, by the same rules.
func gateways(t *testing.T, file string, next http.Handler) []http.Handler {
	network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	var all []http.Handler
	for i := range 3 {
		n, err := weir.Start(t.Context(), weir.Config{Cluster: network.Host(fmt.Sprint("gateway", i)).Cluster(cluster.Config{}), Logger: quietly})
		require.NoError(t, err)
		book, err := rules.Static(n, set)
		require.NoError(t, err)
		t.Cleanup(func() { book.Close(); n.Close() })
		m, err := New(n, book, Options{Logger: quietly})
		require.NoError(t, err)
		all = append(all, m.Handler(next))
	}
	time.Sleep(3 * time.Second)
	return all
}

func TestGatewaysShareTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := gateways(t, `
rules:
- {name: address, key: ip, limit: {algorithm: fixed_window, rate: 10, per: 1h}}
- {name: everyone, key: global, soft: {over: 10%, for: 1h}, limit: {algorithm: fixed_window, rate: 50, per: 1h}}
`, hello)
		admitted, soft := make(map[string]int), 0
		for i := range 200 {
			from := fmt.Sprintf("192.0.2.%d", i%10)
			if w := answer(all[i%3], get("/", from)); w.Code == http.StatusOK {
				admitted[from]++
				if w.Header().Get("X-RateLimit-Soft") != "" {
					soft++
				}
				requireStructured(t, w.Header())
			}
		}
		total := 0
		for from, n := range admitted {
			require.LessOrEqual(t, n, 10, from)
			total += n
		}
		require.Equal(t, []int{55, 5}, []int{total, soft})
	})
}

// One a second, in the order in which they came, whichever gateway they came to.
func TestAQueueIsOneOverAllGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu     sync.Mutex
			served []int64
			times  []time.Time
		)
		all := gateways(t, "rules:\n- {name: q, key: global, queue: 20s, limit: {algorithm: leaky_bucket, rate: 1, per: 1s, burst: 10}}\n",
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				served, times = append(served, r.ContentLength), append(times, time.Now())
			}))
		var clients sync.WaitGroup
		statuses := make([]int, 13)
		for i := range statuses {
			r := get("/", "192.0.2.1")
			r.ContentLength = int64(i)
			clients.Go(func() { statuses[i] = answer(all[i%3], r).Code })
			time.Sleep(20 * time.Millisecond)
		}
		clients.Wait()
		require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, served)
		require.Equal(t, []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429, 429, 429}, statuses)
		for i := 1; i < len(times); i++ {
			require.InDelta(t, time.Second, times[i].Sub(times[i-1]), float64(10*time.Millisecond))
		}
	})
}

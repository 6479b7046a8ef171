package httplimit

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

// farGateways returns two gateways in each of the regions eu and us, with a round trip of 80 ms
// between the regions.
func farGateways(t *testing.T, file string) map[string]http.Handler {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
		Nodes:   []string{"eu1", "eu2", "us1", "us2"},
		Regions: map[string]string{"eu1": "eu", "eu2": "eu", "us1": "us", "us2": "us"},
		WAN:     weirtest.Link{Latency: 40 * time.Millisecond},
		Config:  weir.Config{Logger: quietly},
	})
	require.NoError(t, err)
	all := make(map[string]http.Handler)
	for _, name := range c.Names() {
		m, err := New(c.Node(name), testnode.Book(t, c.Node(name), file), Options{Logger: quietly})
		require.NoError(t, err)
		all[name] = m.Handler(hello)
	}
	t.Cleanup(func() { c.Close() })
	time.Sleep(15 * time.Second)
	return all
}

const farRules = `
rules:
- {name: everywhere, key: global, scope: global, limit: {algorithm: sliding_log, rate: 20, per: 1h}}
- {name: here, key: ip, limit: {algorithm: sliding_log, rate: 1000, per: 1h}}
`

func TestGlobalRuleLimitsAllRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := farGateways(t, farRules)
		admitted := map[string]int{}
		for range 40 {
			for _, name := range []string{"eu1", "us2", "eu2", "us1"} {
				begun := time.Now()
				w := answer(all[name], get("/", "192.0.2.1"))
				require.Less(t, time.Since(begun), 40*time.Millisecond, "no request waits for another region")
				require.Equal(t, "20", w.Header().Get("X-RateLimit-Limit"), "the whole, and not what the region has")
				require.Contains(t, w.Header().Get("RateLimit-Policy"), `"everywhere";q=20;w=3600`)
				if w.Code == http.StatusOK {
					admitted[name[:2]]++
					continue
				}
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 20, admitted["eu"]+admitted["us"])
		require.Positive(t, admitted["eu"])
		require.Positive(t, admitted["us"])
	})
}

package admin

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// farNodes starts two nodes in each of the regions eu and us, whose round trip is 80 ms.
func farNodes(t *testing.T, file string) map[string]*testAPI {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
		Nodes:   []string{"eu1", "eu2", "us1", "us2"},
		Regions: map[string]string{"eu1": "eu", "eu2": "eu", "us1": "us", "us2": "us"},
		WAN:     weirtest.Link{Latency: 40 * time.Millisecond},
		Config:  weir.Config{Logger: quietly},
	})
	require.NoError(t, err)
	all := make(map[string]*testAPI)
	for _, name := range c.Names() {
		all[name] = newTestAPIOn(t, c.Node(name), file)
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

func TestStatusCoversAllRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := farNodes(t, farRules)
		const request = `{"path":"/","ip":"192.0.2.1"}`
		for range 3 {
			all["eu1"].post("/v1/request", http.StatusOK, request)
		}
		all["us1"].post("/v1/request", http.StatusOK, request)
		time.Sleep(20 * time.Second)
		for name, g := range all {
			status := g.statusOf("ip", "192.0.2.1", "rule", "everywhere").Limits[0]
			require.EqualValues(t, 20, status.Limit, name)
			require.EqualValues(t, 16, status.Remaining, name)
			require.Equal(t, "20 per 1h, sliding_log, majority_share, global", status.Policy)
		}
		other := map[string]string{"eu": "us", "us": "eu"}
		said := uint64(0)
		for name, g := range all {
			var stats Stats
			g.get("GET", "/v1/stats", "", http.StatusOK, &stats)
			require.Len(t, stats.Regions, 1)
			said += stats.Regions[other[name[:2]]].Statements
		}
		require.Positive(t, said)
	})
}

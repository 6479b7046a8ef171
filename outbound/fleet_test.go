package outbound

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// inFleet runs a test with five nodes in virtual time. A message takes 0.5 to 2 ms.
func inFleet(t *testing.T, test func(t *testing.T, c *weirtest.Cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Nodes:  []string{"a", "b", "c", "d", "e"},
			Config: weir.Config{Logger: quiet},
			Link:   weirtest.Link{Latency: time.Millisecond / 2, Jitter: 3 * time.Millisecond / 2},
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		test(t, c)
	})
}

// The same figures are measured with processes in TestProcessesUseLimitOfRealServer.
func TestReplicasUseLimitWithoutRefusals(t *testing.T) {
	inFleet(t, func(t *testing.T, c *weirtest.Cluster) {
		var (
			server  bucketServer
			running sync.WaitGroup
		)
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range c.Names() {
			startReplica(ctx, t, c.Node(name), 20, &running, &server)
		}
		time.Sleep(time.Second)
		begun, refusedBefore := server.counts()
		lasts := testenv.PickRace(5, 10)
		time.Sleep(time.Duration(lasts) * time.Second)
		admitted, refused := server.counts()
		cancel()
		running.Wait()
		admitted -= begun
		t.Logf("%d of %d requests were admitted, and %d refused", admitted, lasts*serverRate, refused-refusedBefore)
		require.Less(t, float64(refused), 0.001*float64(admitted))
		require.GreaterOrEqual(t, float64(admitted), 0.97*float64(lasts*serverRate))
	})
}

// start is the moment at which a replica sent a request.
type start struct {
	at      time.Time
	replica string
}

func TestRetryAfterStopsAllReplicas(t *testing.T) {
	inFleet(t, func(t *testing.T, c *weirtest.Cluster) {
		var (
			server  bucketServer
			running sync.WaitGroup
			mu      sync.Mutex
			starts  []start
			told    time.Time // when the first replica received a refusal
		)
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range c.Names() {
			startReplica(ctx, t, c.Node(name), 20, &running, roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				starts = append(starts, start{time.Now(), name})
				mu.Unlock()
				response, err := server.RoundTrip(r)
				mu.Lock()
				defer mu.Unlock()
				if told.IsZero() && err == nil && response.StatusCode == http.StatusTooManyRequests {
					told = time.Now()
				}
				return response, err
			}))
		}
		time.Sleep(2 * time.Second)
		server.refuse(5 * time.Second)
		time.Sleep(10 * time.Second)
		cancel()
		running.Wait()
		// A round trip to the owner takes at most 4 ms, and a node receives its turns up to 10 ms before they begin.
		stopped := told.Add(14 * time.Millisecond)
		within, later := map[string]int{}, map[string]int{}
		for _, s := range starts {
			if s.at.After(stopped) && s.at.Before(told.Add(5*time.Second)) {
				within[s.replica]++
			} else if s.at.After(stopped) {
				later[s.replica]++
			}
		}
		require.Empty(t, within, "requests during the pause")
		require.Len(t, later, 5, "all replicas continue")
		_, refused := server.counts()
		require.LessOrEqual(t, refused, 4, "the requests in flight")
	})
}

func TestKilledReplicaCausesNoRefusals(t *testing.T) {
	inFleet(t, func(t *testing.T, c *weirtest.Cluster) {
		var (
			server  bucketServer
			running sync.WaitGroup
		)
		ctx, cancel := context.WithCancel(t.Context())
		stops := make(map[string]func())
		for _, name := range c.Names() {
			of, stop := context.WithCancel(ctx)
			stops[name] = stop
			startReplica(of, t, c.Node(name), 20, &running, &server)
		}
		time.Sleep(2 * time.Second)
		g, err := New(c.Node("a"), Options{Limits: []Limit{{Host: "*", Limit: paced}}})
		require.NoError(t, err)
		r := newRequest(t, "GET", "https://api.example.com", "Authorization", "secret")
		owner := g.limits[0].limiter.Owner(keyOf(g.limits[0].limiter, "api.example.com", credentialOf(r)))
		killed := 0
		for _, name := range c.Names() { // the name of a member begins with that of its host
			if owner.Name[:2] == name+"-" {
				stops[name]()
				c.Kill(name)
				killed++
			}
		}
		require.Equal(t, 1, killed)
		before, _ := server.counts()
		lasts := testenv.PickRace(5, 20)
		time.Sleep(time.Duration(lasts) * time.Second)
		admitted, refused := server.counts()
		cancel()
		running.Wait()
		t.Logf("%d admitted, %d refused", admitted-before, refused)
		require.Less(t, float64(refused), 0.001*float64(admitted))
		require.GreaterOrEqual(t, admitted-before, lasts*serverRate*97/100)
	})
}

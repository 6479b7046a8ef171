package clustertests

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// decided is an Observer that keeps the events.
type decided struct {
	mu     sync.Mutex
	events []weir.DecisionEvent
}

func (d *decided) Decided(_ context.Context, e weir.DecisionEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *decided) Hopped(context.Context, weir.HopEvent) {}

func TestEventsHaveTimeOfDecidingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(decided)
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Nodes: []string{"a", "b"}, Config: weir.Config{Logger: slog.New(slog.DiscardHandler)},
			Configure: func(name string, cfg *weir.Config) {
				if name == "a" {
					cfg.Observer = seen
				}
			},
		})
		require.NoError(t, err)
		defer c.Close()
		c.Skew("b", time.Hour)
		for _, algorithm := range []weir.Algorithm{weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog, weir.TokenBucket, weir.LeakyBucket} {
			var limiters []*weir.Limiter
			for _, name := range []string{"x", "y"} {
				l, err := c.Node("a").Limiter(weir.Limit{Name: name + algorithm.String(), Algorithm: algorithm, Rate: 2, Per: time.Minute})
				require.NoError(t, err)
				limiters = append(limiters, l)
			}
			for _, key := range []string{"k1", "k2", "k3", "k4"} {
				for range 4 {
					time.Sleep(1234567 * time.Nanosecond)
					seen.events = nil
					_, err := limiters[0].Allow(t.Context(), key)
					require.NoError(t, err)
					_, err = c.Node("a").AllowAll(t.Context(), weir.Ask{Limiter: limiters[0], Key: key}, weir.Ask{Limiter: limiters[1], Key: key})
					require.NoError(t, err)
					require.Len(t, seen.events, 3)
					for i, e := range seen.events {
						now := time.Now()
						if e.Decision.Source == weir.Forwarded || e.Decision.Source == weir.Pushback {
							now = now.Add(time.Hour)
						}
						if e.Decision.Source == 0 {
							require.Zero(t, e.At) // this limit was not checked, because the node had cached a denial of the other limit
							continue
						}
						require.WithinDuration(t, now, e.At, 400*time.Microsecond, "%v, event %d: %v", algorithm, i, e.Decision)
						require.Equal(t, i > 0, e.Request > 0)
						require.Equal(t, i > 0 && !(seen.events[1].Decision.Allowed && seen.events[2].Decision.Allowed), e.Refused)
					}
				}
			}
		}
	})
}

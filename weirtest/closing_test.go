package weirtest_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// log is a Handler that records its requests.
type log struct {
	echoes
	mu    sync.Mutex
	lines []string
}

func (l *log) Serve(b *cluster.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, request := range b.Requests {
		l.lines = append(l.lines, string(request))
		b.Reply(i, request)
	}
}

func (l *log) hasLine(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// Simulated membership must behave like the code that nodes run in production.
func TestHeldBytesReachOnlyOpenConnections(t *testing.T) {
	for name, start := range bothClusters {
		for _, c := range []struct {
			cut   time.Duration
			comes bool
		}{
			{500 * milli, true},
			{4 * second, false},
			{20 * second, false},
		} {
			t.Run(fmt.Sprint(name, " ", c.cut), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := weirtest.NewNetwork(1, quick)
					t.Cleanup(func() { time.Sleep(time.Minute) }) // Close does not wait for memberlist's last probes
					f := newFleet(t, n)
					f.start("a", start(n, "a"))
					b, told := start(n, "b"), &log{}
					f.join(t.Context(), "b", b, told)
					require.NoError(t, b.Announce(cluster.Serving))
					f.awaitRoster("a-1 serving, b-1 serving", 10*second, "a", "b")
					time.Sleep(5 * second)
					to := f.clusters["a"].View().Members[1].Peer

					n.Split([]string{"a"}, []string{"b"})
					to.Send([]byte("before"))
					var asked sync.WaitGroup
					asked.Go(func() {
						_, err := to.Ask(t.Context(), []byte("asked before"), nil, time.Minute)
						if c.comes {
							assert.NoError(t, err)
						} else {
							assert.ErrorIs(t, err, cluster.ErrBroken)
						}
					})
					time.Sleep(c.cut)
					require.False(t, told.hasLine("before"))
					n.Heal()
					asked.Wait()
					f.awaitRoster("a-1 serving, b-1 serving", 30*second, "a", "b")
					time.Sleep(second)
					require.Equal(t, c.comes, told.hasLine("before"))
					require.Equal(t, c.comes, told.hasLine("asked before"))
					f.clusters["a"].View().Members[1].Peer.Send([]byte("after"))
					time.Sleep(second)
					require.True(t, told.hasLine("after"))
				})
			})
		}
	}
}

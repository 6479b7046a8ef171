package cluster

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stuck is a connection whose reads wait between the calls of stick and goOn.
type stuck struct {
	net.Conn
	sticks atomic.Bool
	moves  chan struct{}
	goOn   func() // may be called again
	closed atomic.Bool
}

func newStuck(conn net.Conn) *stuck {
	s := &stuck{Conn: conn, moves: make(chan struct{})}
	s.goOn = sync.OnceFunc(func() { s.sticks.Store(false); close(s.moves) })
	return s
}

func (s *stuck) stick() { s.sticks.Store(true) }

func (s *stuck) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if s.sticks.Load() {
		<-s.moves
	}
	return n, err
}

func (s *stuck) Close() error {
	s.closed.Store(true)
	return s.Conn.Close()
}

// On a busy machine, a connection with unread answers may count as silent, and a new connection
// replaces it. The asking node must still receive these answers, so that the units are refunded.
func TestAnswersOnReplacedConnectionAreLate(t *testing.T) {
	for _, c := range []struct {
		name     string
		second   func(*stuck) // an event of the second connection; nil for no event
		answered bool
	}{
		{"answers arrive", nil, true},
		{"answers arrive after the second connection broke", func(s *stuck) { _ = s.Close() }, true},
		{"answers arrive after the second connection was silent", (*stuck).stick, true},
		{"no answers arrive", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				var late atomic.Int64
				b := lo.peer(t, "b", nil)
				var mu sync.Mutex
				var conns []*stuck
				a := lo.peer(t, "a", &testHandler{late: func(Peer, []byte, []byte) { late.Add(1) }}, func(c *peersConfig) {
					c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						conn, err := lo.dial(ctx, addr)
						s := newStuck(conn)
						mu.Lock()
						defer mu.Unlock()
						conns = append(conns, s)
						return s, err
					}
				})
				dialed := func() []*stuck {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(conns)
				}
				defer func() {
					for _, s := range dialed() {
						s.goOn()
					}
				}()
				connectAll(t, a, b)
				first := dialed()[0]
				first.stick()
				require.ErrorIs(t, askX(a.peer("b"), time.Minute), ErrBroken)
				replaced := time.Now()
				eventually(t, 10*time.Second, func() bool { return a.isConnectedTo(b) }, "a is not connected to b again")
				require.NoError(t, askX(a.peer("b"), time.Minute))
				if c.second != nil {
					c.second(dialed()[1])
					eventually(t, 10*time.Second, func() bool { return len(dialed()) == 3 && a.isConnectedTo(b) }, "a is not connected to b over a third connection")
				}
				require.Zero(t, late.Load())
				require.False(t, first.closed.Load())
				if c.answered {
					first.goOn()
					time.Sleep(2 * drainLook)
					require.EqualValues(t, 1, late.Load())
					require.EqualValues(t, 1, a.stats().Late)
				} else {
					time.Sleep(time.Until(replaced.Add(lateFor - drainLook)))
					require.False(t, first.closed.Load(), "an answer may still come")
					time.Sleep(3 * drainLook)
				}
				require.True(t, first.closed.Load(), "the replaced connection is closed")
			})
		})
	}
}

package cluster

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stuck is a connection from which nothing is read between stick and goOn.
type stuck struct {
	net.Conn
	sticks atomic.Bool
	moves  chan struct{}
	closed atomic.Bool
}

func (s *stuck) stick() { s.sticks.Store(true) }
func (s *stuck) goOn()  { s.sticks.Store(false); close(s.moves) }

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

// Where a process has no time, answers lie in a connection that counts as silent, and
// another takes its place. What they grant is spent: their askers have to hear of it.
func TestAnswersInAConnectionThatWasReplacedAreLate(t *testing.T) {
	for name, answered := range map[string]bool{"they come": true, "they do not": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				var late atomic.Int64
				b := lo.peer(t, "b", &testHandler{serve: func(batch *Batch) {
					for i, r := range batch.Requests {
						batch.Reply(i, r)
					}
				}})
				var mu sync.Mutex
				var conns []*stuck
				a := lo.peer(t, "a", &testHandler{late: func(Peer, []byte, []byte) { late.Add(1) }}, func(c *peersConfig) {
					c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						conn, err := lo.dial(ctx, addr)
						s := &stuck{Conn: conn, moves: make(chan struct{})}
						mu.Lock()
						defer mu.Unlock()
						conns = append(conns, s)
						return s, err
					}
				})
				meet(t, a, b)
				first := conns[0]
				first.stick()
				_, err := a.peer("b").Ask(t.Context(), []byte("x"), nil, time.Minute)
				require.ErrorIs(t, err, ErrBroken)
				eventually(t, 10*time.Second, func() bool { return a.listens(b) }, "they do not hear each other again")
				_, err = a.peer("b").Ask(t.Context(), []byte("x"), nil, time.Minute)
				require.NoError(t, err)
				require.Zero(t, late.Load())
				require.False(t, first.closed.Load())
				if answered {
					first.goOn()
					time.Sleep(2 * drainLook)
					require.EqualValues(t, 1, late.Load())
					require.EqualValues(t, 1, a.stats().Late)
				} else {
					defer first.goOn()
					time.Sleep(lateFor + 2*drainLook)
				}
				require.True(t, first.closed.Load(), "it goes")
			})
		})
	}
}

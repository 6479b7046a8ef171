package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// cut drops the bytes that a node sends to an address.
type cut struct{ to atomic.Pointer[string] }

func (c *cut) isAt(addr string) bool { to := c.to.Load(); return to != nil && *to == addr }

// dial connects after a millisecond, unless there is a cut. In virtual time, all requests that a test sends
// at once wait for the connection.
func (c *cut) dial(ctx context.Context, dial func(context.Context, string) (net.Conn, error), addr string) (net.Conn, error) {
	if c.isAt(addr) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return cutConn{conn, c, addr}, nil
}

type cutConn struct {
	net.Conn
	cut  *cut
	addr string
}

func (c cutConn) Write(b []byte) (int, error) {
	if c.cut.isAt(c.addr) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// inCrowd runs a test of a member a of a large cluster, and of a member b that a does not watch. The test
// can cut the way from a to b.
func inCrowd(t *testing.T, h Handler, test func(t *testing.T, a, b *testPeer, way *cut)) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		way := new(cut)
		var all []*testPeer
		var members []Member
		var started atomic.Bool
		for i := range 14 {
			var p *testPeer
			p = lo.peer(t, fmt.Sprintf("p%02d", i), h, func(c *peersConfig) {
				c.Changed = func() {
					if started.Load() {
						p.set(members)
					}
				}
				if dial := c.Dial; i == 0 {
					c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return way.dial(ctx, dial, addr) }
				}
			})
			all, members = append(all, p), append(members, p.member())
		}
		started.Store(true)
		for range 75 { // until no former neighbour is watched, and unused connections are closed
			for _, p := range all {
				p.set(members)
			}
			time.Sleep(time.Second)
		}
		a := all[0]
		for i, p := range all[1:] {
			if !a.links[members[i+1].Name].watched.Load() {
				test(t, a, p, way)
				return
			}
		}
		t.Fatal("a watches all members")
	})
}

func TestUnwatchedMemberIsDialledByTheFirstRequest(t *testing.T) {
	var told atomic.Int64
	h := &testHandler{serve: func(batch *Batch) {
		for i, r := range batch.Requests {
			told.Add(1)
			batch.Reply(i, r)
		}
	}}
	inCrowd(t, h, func(t *testing.T, a, b *testPeer, _ *cut) {
		l := a.links[b.cfg.Self.Name]
		ask := func() {
			t.Helper()
			answer, err := l.Ask(context.Background(), []byte("x"), nil, 50*time.Millisecond)
			require.NoError(t, err)
			require.Equal(t, "x", string(answer))
		}
		watched := 0
		for _, l := range a.links {
			require.Equal(t, l.watched.Load(), l.session.Load() != nil, "no connection before a request")
			if l.watched.Load() {
				watched++
			}
		}
		require.LessOrEqual(t, watched, 8)
		require.Zero(t, l.Protocol())
		ask()
		first := l.session.Load()
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			ask()
		}
		time.Sleep(restAfter / 2)
		require.True(t, l.rests.Load())
		a.sendRecord([]byte("record"))
		ask()
		require.Same(t, first, l.session.Load(), "it has rested")
		time.Sleep(restAfter / 2)
		before := told.Load()
		l.Send([]byte("y"))
		time.Sleep(10 * time.Millisecond)
		require.EqualValues(t, before+1, told.Load())
		time.Sleep(restAfter + 2*usedPace)
		require.Nil(t, l.session.Load(), "it was not used for a minute")
		require.True(t, l.connected.Load())
		for range maxHeld + 1 {
			l.Send([]byte("y"))
		}
		time.Sleep(10 * time.Millisecond)
		require.EqualValues(t, before+1+maxHeld, told.Load(), "a bounded number waits for the connection")
	})
}

func TestFrozenUnwatchedMemberStallsAndIsDisconnected(t *testing.T) {
	var frozen atomic.Bool
	h := &testHandler{serve: func(batch *Batch) {
		for frozen.Load() {
			time.Sleep(time.Millisecond)
		}
		for i, r := range batch.Requests {
			batch.Reply(i, r)
		}
	}}
	inCrowd(t, h, func(t *testing.T, a, b *testPeer, _ *cut) {
		defer frozen.Store(false)
		l := a.links[b.cfg.Self.Name]
		ask := func() error { return askX(l, 30*time.Millisecond) }
		require.NoError(t, ask())
		time.Sleep(100 * time.Millisecond)
		frozen.Store(true)
		start := time.Now()
		for ask() == ErrTimeout {
		}
		require.ErrorIs(t, ask(), ErrStalled)
		require.LessOrEqual(t, time.Since(start), detect.StallTimeout+30*time.Millisecond)
		for l.connected.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(start), detect.SilenceTimeout)
		require.LessOrEqual(t, time.Since(start), detect.SilenceTimeout+2*lookPace)
		require.ErrorIs(t, ask(), ErrDisconnected)
		frozen.Store(false)
		time.Sleep(2 * lookPace)
		require.NoError(t, ask())

		// The member vanishes while the connection rests.
		time.Sleep(restAfter + 2*usedPace)
		require.Nil(t, l.session.Load())
		synctest.Wait()
		b.close()
		require.ErrorIs(t, ask(), ErrDisconnected, "its kernel refuses")
		require.False(t, l.connected.Load())
	})
}

func TestUnwatchedMemberBeyondACutIsPresumedConnectedAgain(t *testing.T) {
	var told atomic.Int64
	h := handleEach(func(batch *Batch, i int, r []byte) {
		if string(r) == "tell" {
			told.Add(1)
		}
		batch.Reply(i, r)
	})
	inCrowd(t, h, func(t *testing.T, a, b *testPeer, way *cut) {
		l := a.links[b.cfg.Self.Name]
		ask := func() error { return askX(l, 2*time.Second) }
		require.NoError(t, ask())
		time.Sleep(restAfter / 2)
		require.True(t, l.rests.Load())
		way.to.Store(&b.cfg.Self.Addr)
		start := time.Now()
		l.Send([]byte("tell"))
		require.ErrorIs(t, ask(), ErrStalled)
		require.LessOrEqual(t, time.Since(start), detect.StallTimeout+30*time.Millisecond)
		for l.connected.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(start), detect.SilenceTimeout+2*lookPace)
		require.ErrorIs(t, ask(), ErrDisconnected)
		waiting := func() int {
			l.held.mu.Lock()
			defer l.held.mu.Unlock()
			return len(l.held.tells)
		}
		before := waiting()
		l.Send([]byte("tell"))
		require.Equal(t, before, waiting(), "it is disconnected")
		// A delayed process gives an attempt more time than passes until the next attempt is planned.
		for start = time.Now(); time.Since(start) < restAfter+5*time.Second; time.Sleep(100 * time.Millisecond) {
			a.mu.Lock()
			a.table.RecordCheck(time.Now().Add(-time.Second), time.Now())
			a.mu.Unlock()
		}
		require.True(t, l.connected.Load(), "nothing was sent to it for a minute")
		start = time.Now()
		require.ErrorIs(t, ask(), ErrStalled)
		require.Greater(t, time.Since(start), 2*detect.StallTimeout, "this process is delayed")
		way.to.Store(nil)
		time.Sleep(3 * time.Second)
		require.NoError(t, ask())
		require.Zero(t, told.Load(), "the attempts to connect for it have failed")
	})
}

// The keeper may check the member after the pong is recorded and before eventPonged is handled. The check
// then must not forget that a request waits for the pong.
func TestPongWakesConnectionThatWasJustChecked(t *testing.T) {
	inCrowd(t, nil, func(t *testing.T, a, b *testPeer, _ *cut) {
		l := a.links[b.cfg.Self.Name]
		require.NoError(t, askX(l, time.Second))
		time.Sleep(restAfter / 2)
		synctest.Wait() // the keeper waits, so the test may use its fields
		require.True(t, l.rests.Load())
		now := time.Now()
		l.upkeep.waking, l.upkeep.pinged = now, now
		l.upkeep.judgeUnwatched(now)
		l.post(eventPonged)
		synctest.Wait()
		require.False(t, l.rests.Load())
	})
}

func TestFormerlyWatchedMemberKeepsItsConnection(t *testing.T) {
	h := handleEach(func(batch *Batch, i int, r []byte) {
		answer, body := batch.Defer(i), slices.Clone(r)
		time.AfterFunc(12*time.Second, func() { answer(body) })
	})
	for _, asks := range []bool{false, true} {
		inCrowd(t, h, func(t *testing.T, a, b *testPeer, way *cut) {
			l := a.links[b.cfg.Self.Name]
			ask := func() error { return askX(l, 14*time.Second) }
			require.NoError(t, ask())
			time.Sleep(2 * usedPace)
			way.to.Store(&b.cfg.Self.Addr)
			a.recordPing(l.name, 0, true)
			time.Sleep(lookPace)
			require.True(t, l.watched.Load())
			require.True(t, l.rests.Load(), "no pong has come since it rested")
			way.to.Store(nil)
			for range 65 { // so that its last use is long ago
				a.recordPing(l.name, 0, true)
				time.Sleep(time.Second)
			}
			require.True(t, l.watched.Load(), "it watches this node")
			require.False(t, l.rests.Load(), "a pong has come")
			watched := l.session.Load()
			for _, after := range []time.Duration{3 * time.Second, 9 * time.Second} { // between these times, the member is watched as a former neighbour
				time.AfterFunc(time.Until(nextPing(time.Now().Add(after))), func() {
					synctest.Wait() // until the last ping with flagWatches is sent
					signal(a.changed)
				})
			}
			if asks {
				time.AfterFunc(11*time.Second, func() { require.False(t, l.rests.Load()) })
				require.NoError(t, ask())
			}
			time.Sleep(20 * time.Second)
			require.False(t, l.watched.Load())
			require.Same(t, watched, l.session.Load())
		})
	}
}

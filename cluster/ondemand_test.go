package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// inCrowd runs a test of a member of a large cluster, and another member that it does not watch.
func inCrowd(t *testing.T, h Handler, test func(t *testing.T, a, b *testPeer)) {
	inMemory(t, func(t *testing.T, lo *loopback) {
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
			})
			all, members = append(all, p), append(members, p.member())
		}
		started.Store(true)
		for range 75 { // until no member lingers, and connections without use are closed
			for _, p := range all {
				p.set(members)
			}
			time.Sleep(time.Second)
		}
		a := all[0]
		for i, p := range all[1:] {
			if !a.links[members[i+1].Name].watched.Load() {
				test(t, a, p)
				return
			}
		}
		t.Fatal("it watches all members")
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
	inCrowd(t, h, func(t *testing.T, a, b *testPeer) {
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
		ask()
		first := l.session.Load()
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			ask()
		}
		time.Sleep(restAfter / 2)
		require.True(t, l.rests.Load())
		ask()
		require.Same(t, first, l.session.Load(), "it has rested")
		time.Sleep(restAfter / 2)
		before := told.Load()
		l.Tell([]byte("y"))
		time.Sleep(10 * time.Millisecond)
		require.EqualValues(t, before+1, told.Load())
		time.Sleep(restAfter + 2*usedPace)
		require.Nil(t, l.session.Load(), "it was not used for a minute")
		require.True(t, l.heard.Load())
		l.Tell([]byte("y"))
		l.Tell([]byte("z"))
		time.Sleep(10 * time.Millisecond)
		require.EqualValues(t, before+3, told.Load())
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
	inCrowd(t, h, func(t *testing.T, a, b *testPeer) {
		defer frozen.Store(false)
		l := a.links[b.cfg.Self.Name]
		ask := func() error {
			_, err := l.Ask(context.Background(), []byte("x"), nil, 30*time.Millisecond)
			return err
		}
		require.NoError(t, ask())
		time.Sleep(100 * time.Millisecond)
		frozen.Store(true)
		start := time.Now()
		for ask() == ErrTimeout {
		}
		require.ErrorIs(t, ask(), ErrStalled)
		require.LessOrEqual(t, time.Since(start), detect.StallTimeout+30*time.Millisecond)
		for l.heard.Load() {
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
		require.False(t, l.heard.Load())
	})
}

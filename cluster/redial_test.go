package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAttemptsToDialDeadMemberBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		p := newPeers(peersConfig{
			Self: hello{Name: "a", Addr: "a"},
			Dial: func(context.Context, string) (net.Conn, error) {
				dials.Add(1)
				return nil, errors.New("nobody there")
			},
		}, &testHandler{})
		defer p.close()
		// during calls happens, and returns the number of attempts to connect within d.
		during := func(d time.Duration, happens func()) int64 {
			before := dials.Load()
			happens()
			time.Sleep(d)
			synctest.Wait()
			return dials.Load() - before
		}
		stands := func(s State) func() {
			return func() { p.set([]Member{{Name: "b", Addr: "b", State: s}}) }
		}

		require.InDelta(t, 60, during(time.Minute, stands(Serving)), 7)
		require.InDelta(t, 4, during(15*time.Second, stands(Dead)), 1)
		require.InDelta(t, 10, during(80*time.Second, func() {}), 2)
		require.EqualValues(t, 1, during(lookPace, stands(Serving)), "gossip reports that it lives")
		require.InDelta(t, 60, during(time.Minute, func() {}), 7)

		require.InDelta(t, 10, during(time.Minute, stands(Dead)), 2)
		require.EqualValues(t, 1, during(lookPace, func() { p.recordCaller(hello{Name: "b"}) }), "the member has connected to this node")
		require.InDelta(t, 10, during(0, func() {
			for range 1000 {
				p.recordCaller(hello{Name: "b"})
				time.Sleep(time.Millisecond)
			}
		}), 2, "one attempt in lookPace, however often the member connects")
	})
}

func TestDelayedProcessWaitsLongerForDial(t *testing.T) {
	for late, most := range map[time.Duration]time.Duration{
		0:                      dialWait,
		10 * time.Millisecond:  dialWait, // too small to count
		300 * time.Millisecond: dialWait + 300*time.Millisecond,
		time.Hour:              dialWait + time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			waits := make(chan time.Duration, 1)
			p := newPeers(peersConfig{
				Self: hello{Name: "a", Addr: "a"},
				Dial: func(ctx context.Context, _ string) (net.Conn, error) {
					deadline, _ := ctx.Deadline()
					select {
					case waits <- time.Until(deadline):
					default:
					}
					return nil, errors.New("nobody there")
				},
			}, &testHandler{})
			defer p.close()
			p.mu.Lock()
			p.table.RecordCheck(time.Now().Add(-late), time.Now())
			p.mu.Unlock()
			p.set([]Member{{Name: "b", Addr: "b", State: Serving}})
			require.Equal(t, most, <-waits, "%v late", late)
		})
	}
}

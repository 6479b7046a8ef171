package cluster

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// hungPeer starts a peer whose handler blocks, so that the peer stops reading after the first request.
func (n *loopback) hungPeer(t *testing.T, name string, change ...func(*peersConfig)) *testPeer {
	t.Helper()
	ended := make(chan struct{})
	p := n.peer(t, name, &testHandler{serve: func(*Batch) { <-ended }}, change...)
	t.Cleanup(func() { close(ended) })
	return p
}

func TestFullSocketDoesNotExtendWaits(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.hungPeer(t, "b")
		a.set([]Member{a.member(), b.member()})
		peer := a.peer("b")
		hears := func() bool { return a.isConnectedTo(b) }
		eventually(t, 10*time.Second, hears, "b is not connected")
		// The socket and the queue are full long before b has been silent for too long.
		big := make([]byte, MaxMessage)
		for a.stats().Dropped == 0 {
			peer.Send(big)
			time.Sleep(time.Millisecond)
		}
		require.True(t, hears())
		const wait = 100 * time.Millisecond
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for range 3 {
					start := time.Now()
					if _, err := peer.Ask(context.Background(), []byte("x"), nil, wait); err == nil {
						t.Error("a hung member has answered")
					}
					took := time.Since(start)
					assert.LessOrEqual(t, took, wait, "it took %v", took)
				}
			})
		}
		wg.Wait()
		eventually(t, 2*time.Second, func() bool { return !hears() }, "b is still connected")
		start := time.Now()
		for range 1000 {
			require.ErrorIs(t, askX(peer, time.Second), ErrDisconnected)
			peer.Send(big)
		}
		require.Zero(t, time.Since(start))
	})
}

// Asks to a frozen member time out until the member has stalled, and fail at once after that. Within a
// second the member is disconnected.
func TestFrozenMemberStallsAndIsDisconnected(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var frozen atomic.Bool
		thawed := make(chan struct{})
		thaw := sync.OnceFunc(func() { close(thawed) })
		a := lo.peer(t, "a", nil)
		b := lo.peer(t, "b", &testHandler{serve: func(batch *Batch) {
			if frozen.Load() {
				<-thawed
			}
			for i, r := range batch.Requests {
				batch.Reply(i, r)
			}
		}})
		defer thaw()
		judged := func() (connected, stalled bool) {
			m := a.connections([]string{"b"})
			return m.Direct[0], m.Stalled[0]
		}
		ask := func() error { return askX(a.peer("b"), 30*time.Millisecond) }
		a.set([]Member{b.member()}) // b does not know a, so it sends no pings
		synctest.Wait()
		require.NoError(t, ask())

		frozen.Store(true)
		start := time.Now()
		for errors.Is(ask(), ErrTimeout) {
		}
		require.Equal(t, 210*time.Millisecond, time.Since(start), "seven asks of 30 ms")
		for range 100 {
			require.ErrorIs(t, ask(), ErrStalled)
		}
		require.Equal(t, 210*time.Millisecond, time.Since(start))
		connected, stalled := judged()
		require.True(t, connected && stalled)
		for connected {
			time.Sleep(10 * time.Millisecond)
			connected, stalled = judged()
		}
		require.GreaterOrEqual(t, time.Since(start), detect.SilenceTimeout)
		require.LessOrEqual(t, time.Since(start), detect.SilenceTimeout+lookPace)
		require.False(t, stalled, "a disconnected member has not stalled")
		require.ErrorIs(t, ask(), ErrDisconnected)

		frozen.Store(false)
		thaw()
		time.Sleep(2 * lookPace)
		connected, stalled = judged()
		require.True(t, connected && !stalled)
		require.NoError(t, ask())
	})
}

func TestOverdueAnswerIsForgotten(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var late atomic.Int64
		a := lo.peer(t, "a", &testHandler{late: func(Peer, []byte, []byte) { late.Add(1) }})
		b := lo.peer(t, "b", replyAfter(func() time.Duration { return lateFor + time.Second }))
		a.set([]Member{b.member()})
		synctest.Wait()
		l := a.peer("b").(*link)
		require.ErrorIs(t, askX(l, time.Millisecond), ErrTimeout)
		s := l.session.Load()
		require.EqualValues(t, 1, s.givenUp.Load())
		time.Sleep(lateFor + 2*time.Second)
		require.Zero(t, s.givenUp.Load())
		require.Zero(t, late.Load())
		s.out.mu.Lock()
		defer s.out.mu.Unlock()
		require.Zero(t, s.bytes)
		require.Len(t, s.free, 1)
	})
}

// A node that is slow to handle frames must not take their sender for silent.
func TestMemberIsNotSilentWhileFramesAreHandled(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		var arrived atomic.Int64
		gaveUp := make(chan struct{})
		answer := sync.OnceFunc(func() { close(gaveUp) })
		defer answer()
		b := lo.peer(t, "b", handleEach(func(batch *Batch, i int, r []byte) {
			arrived.Add(1)
			later, body := batch.Defer(i), slices.Clone(r)
			go func() { <-gaveUp; later(body) }()
		}))
		handles, handled := make(chan struct{}), make(chan struct{})
		begin, end := sync.OnceFunc(func() { close(handles) }), sync.OnceFunc(func() { close(handled) })
		defer end()
		a := lo.peer(t, "a", &testHandler{late: func(Peer, []byte, []byte) { begin(); <-handled }})
		connectAll(t, a, b)
		a.mu.Lock()
		l := a.peers.links["b"]
		a.mu.Unlock()
		first := l.session.Load()
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() {
				_, err := a.peer("b").Ask(ctx, []byte("x"), nil, time.Minute)
				errs <- err
			}()
		}
		eventually(t, 10*time.Second, func() bool { return arrived.Load() == 2 }, "not both asks arrived")
		cancel()
		for range cap(errs) {
			require.ErrorIs(t, <-errs, context.Canceled)
		}
		answer()
		<-handles
		// The wait of each ask passes meanwhile, because this node is slow.
		for until := time.Now().Add(detect.MaxAnswerAge + 2*dialPace); time.Now().Before(until); {
			err := askX(a.peer("b"), 10*time.Millisecond)
			require.ErrorIs(t, err, ErrTimeout)
			require.NotErrorIs(t, err, ErrBroken)
		}
		require.Same(t, first, l.session.Load(), "its connection is kept")
		end()
		eventually(t, 10*time.Second, func() bool { return a.stats().Late == a.stats().Timeouts+2 }, "late: %d", a.stats().Late)
		require.True(t, a.isConnectedTo(b))
	})
}

func TestCallersWithShortDeadlinesLoseNoAnswer(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		const deadline = 100 * time.Microsecond
		var late atomic.Int64
		b := lo.peer(t, "b", handleEach(func(batch *Batch, i int, r []byte) {
			answer, body := batch.Defer(i), slices.Clone(r)
			time.AfterFunc(time.Duration(rand.N(3))*deadline/2, func() { answer(body) }) // before, at or after the deadline
		}))
		a := lo.peer(t, "a", &testHandler{late: func(Peer, []byte, []byte) { late.Add(1) }})
		connectAll(t, a, b)
		const callers, asks = 500, 20
		var wg sync.WaitGroup
		var answered, gaveUp atomic.Int64
		for range callers {
			wg.Go(func() {
				for range asks {
					ctx, cancel := context.WithTimeout(context.Background(), deadline)
					_, err := a.peer("b").Ask(ctx, []byte("x"), nil, time.Second)
					switch err {
					case nil:
						answered.Add(1)
					case context.DeadlineExceeded:
						gaveUp.Add(1)
					default:
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		time.Sleep(deadline)
		require.Zero(t, a.stats().Timeouts)
		require.EqualValues(t, callers*asks, answered.Load()+late.Load())
		require.Equal(t, gaveUp.Load(), late.Load())
		require.NotZero(t, answered.Load())
		require.NotZero(t, late.Load())
	})
}

func TestCrashOfMemberEndsWaitingAsksAtOnce(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		arrived := make(chan struct{}, 1)
		b := lo.peer(t, "b", &testHandler{serve: func(*Batch) { arrived <- struct{}{} }})
		a := lo.peer(t, "a", nil)
		connectAll(t, a, b)
		go func() { <-arrived; b.stop() }()
		start := time.Now()
		err := askX(a.peer("b"), 10*time.Second)
		require.ErrorIs(t, err, ErrBroken)
		require.ErrorIs(t, err, ErrTimeout, "the request may have been served")
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, askX(a.peer("b"), 10*time.Second), ErrDisconnected)
	})
}

func TestAsksAboveBoundFailAtOnce(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		var served, busy atomic.Int64
		b := lo.peer(t, "b", &testHandler{serve: func(batch *Batch) { served.Add(int64(len(batch.Requests))) }})
		a := lo.peer(t, "a", nil)
		connectAll(t, a, b)
		ctx, cancel := context.WithCancel(context.Background())
		big := make([]byte, MaxMessage)
		var wg sync.WaitGroup
		const fit, more = maxPendingBytes / MaxMessage, 10
		for i := range int64(fit + more) {
			wg.Go(func() {
				_, err := a.peer("b").Ask(ctx, big, nil, 10*time.Second)
				if err == ErrBusy {
					busy.Add(1)
				} else if err != context.Canceled {
					t.Error(err)
				}
			})
			// One after another, so that the queue to the socket does not become full.
			eventually(t, 2*time.Second, func() bool { return served.Load()+busy.Load() == i+1 }, "%d served, %d refused", &served, &busy)
		}
		require.EqualValues(t, more, busy.Load())
		require.EqualValues(t, more, a.stats().Dropped)
		cancel()
		wg.Wait()
	})
}

func TestAskAllocatesNoMemory(t *testing.T) {
	a, b := startPeer(t, "a", nil), startPeer(t, "b", nil)
	connectAll(t, a, b)
	peer, request, answer := a.peer("b"), make([]byte, 100), make([]byte, 0, 100)
	// Both members send pings meanwhile, which may allocate. Each count includes the cost of the asks,
	// so the least count is used.
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(2000, func() {
			if _, err := peer.Ask(context.Background(), request, answer, time.Minute); err != nil {
				t.Error(err)
			}
		}))
	}
	require.Zero(t, least, "both sides together")
}

func TestIdleMemberWakesOnlyToPing(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *testPeer) {
		time.Sleep(2 * dialPace) // an attempt that was planned before the connection is cancelled
		for range 20 {
			time.Sleep(detect.MaxAnswerAge)
			synctest.Wait()
			for _, p := range []*testPeer{a, b} {
				require.Len(t, p.keeper.open, 1)
				require.Zero(t, p.keeper.open[0].next.UnixNano()%int64(pingPace))
				signal(p.keeper.wake) // so that the keeper uses its fields again only after these reads
			}
		}
	})
}

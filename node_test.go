package weir

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/wire"
)

// solo starts a node, which has no other members unless cfg.Cluster has them.
func solo(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func limiter(t *testing.T, n *Node, l Limit) *Limiter {
	t.Helper()
	if l.Name == "" {
		l.Name = "test"
	}
	limiter, err := n.Limiter(l)
	require.NoError(t, err)
	return limiter
}

// hand is a clock whose time changes only if Step is called.
type hand struct {
	mu  sync.Mutex
	now time.Time
}

func newHand() *hand { return &hand{now: time.Unix(1_800_000_000, 0)} }

func (h *hand) Now() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.now }

func (h *hand) Step(d time.Duration) { h.mu.Lock(); h.now = h.now.Add(d); h.mu.Unlock() }

var algorithms = []Algorithm{SlidingWindow, SlidingLog, FixedWindow, TokenBucket, LeakyBucket}

func TestLimitAdmitsExactlyItsUnits(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			l := limiter(t, solo(t, Config{Now: newHand().Now}), Limit{Algorithm: algorithm, Rate: 3, Per: time.Minute})
			for left := int64(2); left >= 0; left-- {
				d := allow(t, l, "k", 1)
				require.Equal(t, Decision{
					Allowed: true, Limit: 3, Remaining: left, ResetAfter: d.ResetAfter, Name: "test", Source: Owner,
				}, d)
			}
			require.Positive(t, deny(t, l, "k", 1).RetryAfter)
			allow(t, l, "another key", 1)
		})
	}
}

func allow(t *testing.T, l *Limiter, key string, units int64) Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, units)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
	return d
}

// deny requires that a check is denied.
func deny(t *testing.T, l *Limiter, key string, units int64) Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, units)
	require.NoError(t, err)
	require.False(t, d.Allowed, "%+v", d)
	return d
}

// ask checks a key the given number of times.
func ask(t *testing.T, l *Limiter, key string, times int) {
	t.Helper()
	for range times {
		_, err := l.Allow(t.Context(), key)
		require.NoError(t, err)
	}
}

func debit(t *testing.T, l *Limiter, key string, units int64) Decision {
	t.Helper()
	d, err := l.Debit(t.Context(), key, units)
	require.NoError(t, err)
	return d
}

func remaining(t *testing.T, l *Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key)
	require.NoError(t, err)
	return d.Remaining
}

func TestInvalidArgumentsReturnErrorAndDenial(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Second})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		key   string
		units int64
		want  error
	}{
		{"no units", t.Context(), "k", 0, ErrInvalid},
		{"units below zero", t.Context(), "k", -5, ErrInvalid},
		{"more than the limit can ever grant", t.Context(), "k", 11, ErrInvalid},
		{"a key above 1 KiB", t.Context(), strings.Repeat("k", 1025), 1, ErrInvalid},
		{"a key of 1 KiB is a key", t.Context(), strings.Repeat("k", 1024), 1, nil},
		{"the empty key is valid", t.Context(), "", 1, nil},
		{"a cancelled context", cancelled, "k", 1, context.Canceled},
		{"a deadline is not a cancellation", late, "k", 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := l.AllowN(c.ctx, c.key, c.units)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.want == nil, d.Allowed)
			require.Equal(t, "test", d.Name)
		})
	}
	_, err := n.Limiter(Limit{})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestDebitRefundAndResetChangeCount(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			l := limiter(t, solo(t, Config{Now: newHand().Now}), Limit{Algorithm: algorithm, Rate: 10, Per: time.Minute})
			ctx := t.Context()
			allow(t, l, "k", 4)
			require.EqualValues(t, 6, remaining(t, l, "k"))
			require.EqualValues(t, 6, remaining(t, l, "k"), "a Peek spends no units")

			require.NoError(t, l.Refund(ctx, "k", 3))
			require.EqualValues(t, 9, remaining(t, l, "k"))
			require.NoError(t, l.Refund(ctx, "k", 9))
			require.EqualValues(t, 10, remaining(t, l, "k"), "a Refund returns no more units than were spent")
			require.ErrorIs(t, l.Refund(ctx, "k", 0), ErrInvalid)

			require.True(t, debit(t, l, "k", 8).Allowed)
			d := debit(t, l, "k", 8)
			require.False(t, d.Allowed, "the Debit leaves a debt")
			require.Zero(t, d.Remaining)
			require.False(t, debit(t, l, "k", 1_000).Allowed, "a Debit above the limit is counted too")

			require.NoError(t, l.Reset(ctx, "k"))
			require.EqualValues(t, 10, remaining(t, l, "k"))
		})
	}
}

// The units of a Debit are counted, even if the node has no share of the limit.
func TestDebitWithoutShareIsCounted(t *testing.T) {
	for _, partition := range []PartitionPolicy{FailClosed, MajorityShare} {
		n := solo(t, Config{Expect: 3, Now: newHand().Now})
		l := limiter(t, n, Limit{Rate: 2, Per: time.Minute, Partition: partition}) // less than one unit for each of three nodes
		require.Equal(t, partition == MajorityShare, debit(t, l, "k", 1).Allowed)
		whole := n.counts.Peek(l.id("k"), &l.numbers, n.env.Now(), 1)
		require.EqualValues(t, 1, whole.Remaining)
	}
}

func TestAllowAllTakesAllOrNothing(t *testing.T) {
	n := solo(t, Config{Now: newHand().Now})
	few := limiter(t, n, Limit{Name: "few", Rate: 2, Per: time.Minute})
	many := limiter(t, n, Limit{Name: "many", Rate: 100, Per: time.Hour, Algorithm: TokenBucket})
	asks := []Ask{{Limiter: few, Key: "k"}, {Limiter: many, Key: "k", Units: 10}}
	for range 2 {
		ds, err := n.AllowAll(t.Context(), asks...)
		require.NoError(t, err)
		require.True(t, ds.Allowed())
	}
	ds, err := n.AllowAll(t.Context(), asks...)
	require.NoError(t, err)
	require.False(t, ds.Allowed())
	require.Equal(t, "few", ds.Strictest().Name)
	require.True(t, ds[1].Allowed)
	require.EqualValues(t, 80, ds[1].Remaining, "a denial of one limit spends no units of others")
	require.EqualValues(t, 80, remaining(t, many, "k"))
}

// In an outage, there may be thousands of decisions that do not wait. These must not take all the
// time from the goroutines that read responses.
func TestLocalDecisionsYieldToOtherGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 2, Per: time.Minute, Partition: FailOpen})
	require.NoError(t, n.Leave(t.Context()))
	var turns atomic.Int64 // turns of another goroutine
	var done atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for ; !done.Load(); runtime.Gosched() {
			turns.Add(1)
		}
	})
	defer other.Wait()
	defer done.Store(true)
	for kind, check := range map[string]func() (Source, error){
		"a check": func() (Source, error) {
			d, err := l.Allow(t.Context(), "k")
			return d.Source, err
		},
		"several at once": func() (Source, error) {
			ds, err := n.AllowAll(t.Context(), Ask{Limiter: l, Key: "a"}, Ask{Limiter: l, Key: "b"})
			return ds[1].Source, err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			const checks = 1000
			before := turns.Load()
			for range checks {
				source, err := check()
				require.NoError(t, err)
				require.Equal(t, FailedOpen, source)
			}
			require.GreaterOrEqual(t, turns.Load()-before, int64(checks/2))
		})
	}
}

func TestAllowAllSumsAsksOfOneCount(t *testing.T) {
	n := solo(t, Config{Now: newHand().Now})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Minute})
	again := limiter(t, n, l.Limit())
	ds, err := n.AllowAll(t.Context(), Ask{Limiter: l, Key: "k", Units: 4}, Ask{Limiter: again, Key: "k", Units: 0}, Ask{Limiter: l, Key: "other", Units: 1})
	require.NoError(t, err)
	require.EqualValues(t, 5, ds[0].Remaining)
	require.EqualValues(t, 5, ds[1].Remaining)
	_, err = n.AllowAll(t.Context(), Ask{Limiter: l, Key: "k", Units: 6}, Ask{Limiter: l, Key: "k", Units: 6})
	require.ErrorIs(t, err, ErrInvalid, "the sum of the asks can never be granted")
}

func TestAllowAllRefusesInvalidAsks(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Minute})
	foreign := limiter(t, solo(t, Config{}), Limit{Rate: 10, Per: time.Minute})
	for name, asks := range map[string][]Ask{
		"no limiter":              {{Key: "k"}},
		"another node's":          {{Limiter: foreign}},
		"too many":                make([]Ask, 256),
		"one of them wrong":       {{Limiter: l}, {Limiter: l, Units: -1}},
		"one never to be granted": {{Limiter: l, Units: 11}},
	} {
		ds, err := n.AllowAll(t.Context(), asks...)
		require.ErrorIs(t, err, ErrInvalid, name)
		require.False(t, ds.Allowed(), name)
	}
	ds, err := n.AllowAll(t.Context())
	require.NoError(t, err)
	require.True(t, ds.Allowed(), "without asks, no limit denies")
}

func TestLeavingWaiterDoesNotDelayOtherWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := solo(t, Config{})
		l := limiter(t, n, Limit{Algorithm: LeakyBucket, Rate: 1, Per: time.Second, Burst: 4})
		begun := time.Now()
		wait := func() (cancel func(), done chan error) {
			ctx, cancel := context.WithCancel(context.Background())
			done = make(chan error, 1)
			go func() { done <- l.Wait(ctx, "k", 1) }()
			synctest.Wait()
			return cancel, done
		}
		_, first := wait()
		cancelSecond, second := wait()
		_, third := wait()
		cancelFourth, fourth := wait()
		require.NoError(t, <-first)
		require.ErrorIs(t, l.Wait(t.Context(), "k", 1), ErrFull, "all places are taken")
		nobodyPasses := func() {
			t.Helper()
			require.GreaterOrEqual(t, deny(t, l, "k", 1).RetryAfter, time.Second-wire.QueueAhead)
			other := limiter(t, n, Limit{Name: "other", Rate: 10, Per: time.Minute})
			ds, err := n.AllowAll(t.Context(), Ask{Limiter: other, Key: "k"}, Ask{Limiter: l, Key: "k"})
			require.NoError(t, err)
			require.False(t, ds.Allowed())
			require.EqualValues(t, 10, remaining(t, other, "k"))
			ds, err = n.AllowAll(t.Context(), Ask{Limiter: other, Key: "k2"}, Ask{Limiter: l, Key: "k", Shadow: true})
			require.NoError(t, err)
			require.True(t, ds.Allowed(), "a shadow denies nothing")
		}
		nobodyPasses()

		cancelSecond()
		require.ErrorIs(t, <-second, context.Canceled)
		cancelFourth()
		require.ErrorIs(t, <-fourth, context.Canceled)
		time.Sleep(2 * queue.Tick)
		nobodyPasses()
		require.NoError(t, <-third)
		require.Equal(t, time.Second, time.Since(begun), "the third waiter has the turn of the second, which left")
		time.Sleep(time.Second)
		require.EqualValues(t, 4, remaining(t, l, "k"))
		require.Zero(t, n.owner.WaitingNodes())
	})
}

func TestWaitAsksAgainAfterRetryAfter(t *testing.T) {
	for _, algorithm := range []Algorithm{SlidingWindow, SlidingLog, FixedWindow, TokenBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := solo(t, Config{})
				l := limiter(t, n, Limit{Algorithm: algorithm, Rate: 2, Per: time.Second})
				begun := time.Now()
				for range 6 {
					require.NoError(t, l.Wait(t.Context(), "k", 1))
				}
				require.LessOrEqual(t, time.Since(begun), 4*time.Second)
				require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
			})
		})
	}
}

func TestWaitFailsAtOnceIfDeadlineIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := solo(t, Config{})
		for _, algorithm := range algorithms {
			l := limiter(t, n, Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 3, Per: time.Minute})
			allow(t, l, "k", 2)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begun := time.Now()
			for range 2 {
				err := l.Wait(ctx, "k", 1)
				if algorithm != LeakyBucket && err == nil {
					err = l.Wait(ctx, "k", 1)
				}
				require.ErrorIs(t, err, context.DeadlineExceeded, algorithm)
			}
			require.Zero(t, time.Since(begun))
			cancel()
		}
	})
}

func TestDecisionsAreObservedAndCounted(t *testing.T) {
	var seen observed
	n := solo(t, Config{Observer: &seen, Now: newHand().Now})
	l := limiter(t, n, Limit{Rate: 1, Per: time.Minute})
	allow(t, l, "k", 1)
	ask(t, l, "k", 1)
	_, err := l.AllowN(t.Context(), "k", -1)
	require.Error(t, err)
	_, err = n.AllowAll(t.Context(), Ask{Limiter: l, Key: "a", Units: 1}, Ask{Limiter: l, Key: "b", Units: 1})
	require.NoError(t, err)

	remaining(t, l, "k")
	require.Len(t, seen.decisions, 6)
	require.Equal(t, "k", seen.decisions[0].Key)
	require.Same(t, n, seen.decisions[0].Limiter.Node())
	require.True(t, seen.decisions[0].Decision.Allowed)
	require.False(t, seen.decisions[1].Decision.Allowed)
	require.ErrorIs(t, seen.decisions[2].Err, ErrInvalid)
	for i, d := range seen.decisions {
		require.Equal(t, i == 5, d.Peek)
	}
	require.Equal(t, map[Source]Outcomes{Owner: {Allowed: 3, Denied: 1}}, n.Stats().Decisions, "a Peek is observed and not counted")
	require.Equal(t, 3, n.Stats().Keys)
}

type observed struct {
	mu        sync.Mutex
	decisions []DecisionEvent
	hops      []HopEvent
}

func (o *observed) Decided(_ context.Context, e DecisionEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.decisions = append(o.decisions, e)
}

func (o *observed) Hopped(_ context.Context, e HopEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hops = append(o.hops, e)
}

func TestOwnedCheckDoesNotAllocate(t *testing.T) {
	n := solo(t, Config{})
	for _, algorithm := range []Algorithm{SlidingWindow, FixedWindow, TokenBucket, LeakyBucket} {
		l := limiter(t, n, Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: time.Hour})
		ctx := t.Context()
		require.Zero(t, testing.AllocsPerRun(200, func() { _, _ = l.Allow(ctx, "203.0.113.7") }), algorithm)
	}
}

package asker

import (
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

var tenAMinute = bucket.Limit{Rate: 10, Per: time.Minute}

func TestPushbackSetsShareNoCacheLine(t *testing.T) {
	require.Zero(t, unsafe.Sizeof(pushbackSet{})%64)
}

// All messages take the same time here. The test makes the same asks, at the same times, once with
// pushbacks and once without, and compares the decisions.
func TestPushbackDeniesExactlyAsOwnerWould(t *testing.T) {
	const way = 100 * time.Microsecond
	rapid.Check(t, func(t *rapid.T) {
		l := bucket.Limit{
			Algorithm: rapid.SampledFrom([]bucket.Algorithm{bucket.SlidingWindow, bucket.SlidingLog, bucket.FixedWindow, bucket.TokenBucket, bucket.LeakyBucket}).Draw(t, "algorithm"),
			Rate:      rapid.Int64Range(1, 6).Draw(t, "rate"),
			Per:       time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(3*time.Second)).Draw(t, "per")),
		}
		nodes := []*pushbacks{newPushbacks(), newPushbacks()}
		with, without := bucket.NewStore(10, bucket.Salt{}), bucket.NewStore(10, bucket.Salt{})
		id := bucket.ID{Hi: 1, Lo: 2}
		now, again := int64(time.Hour), []int64{0}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			next := now + rapid.Int64Range(0, int64(l.Per)/2).Draw(t, "after")
			if at := rapid.SampledFrom(again).Draw(t, "again") + rapid.Int64Range(-1, 1).Draw(t, "offset"); at > now {
				next = at
			}
			now = next
			p := rapid.SampledFrom(nodes).Draw(t, "node")
			a := wire.Ask{ID: id, Limit: &l, Units: rapid.Int64Range(1, l.Rate).Draw(t, "units")}
			a.AtMost = rapid.Bool().Draw(t, "at most")
			take := func(s *bucket.Store) (r bucket.Result) {
				units := a.Units
				if left := s.Peek(id, &l, now+int64(way), 1).Remaining; a.AtMost {
					units = max(1, min(units, left))
				}
				return s.Take(id, &l, now+int64(way), units)
			}
			want := take(without)
			var got wire.Result
			if !p.deny(&a, instant(now), &got) {
				got.Result = take(with)
				got.Firm, got.ResetNumber = !got.Allowed, owner.NoReset
				p.learn(&a, &got, instant(now))
			}
			if got.Allowed != want.Allowed || got.RetryAfter > want.RetryAfter || got.Limit != want.Limit || !got.Allowed && got.RetryAfter <= 0 || got.ResetAfter < got.RetryAfter {
				t.Fatalf("%d units at %d: %+v, and without pushbacks %+v", a.Units, now, got, want)
			}
			if a.LeastUnits() == 1 && got.RetryAfter != want.RetryAfter {
				t.Fatalf("at %d: RetryAfter is %v, and without pushbacks %v", now, got.RetryAfter, want.RetryAfter)
			}
			if !want.Allowed {
				again = append(again, now+int64(want.RetryAfter))
			}
		}
	})
}

func TestPushbackNeedsSameNumbersAndEnoughUnits(t *testing.T) {
	l := bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 10, Per: time.Minute, Burst: 5, Version: 3}
	a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &l, Units: 4}
	p := newPushbacks()
	p.learn(&a, denial(3*time.Second), instant(1000))
	r := wire.Result{Result: bucket.Result{Allowed: true, Receipt: 7}}
	require.True(t, p.deny(&a, instant(2000), &r))
	require.Equal(t, wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: 3*time.Second - 1000, ResetAfter: 6*time.Second - 1000}, Source: wire.Pushback, At: 2000}, r)
	for field, edit := range map[string]func(l *bucket.Limit){
		"Algorithm": func(l *bucket.Limit) { l.Algorithm = bucket.LeakyBucket },
		"Rate":      func(l *bucket.Limit) { l.Rate++ },
		"Per":       func(l *bucket.Limit) { l.Per++ },
		"Burst":     func(l *bucket.Limit) { l.Burst++ },
		"Version":   func(l *bucket.Limit) { l.Version++ },
		"Start":     func(l *bucket.Limit) { l.Start++ },
	} {
		other, numbers := a, l
		edit(&numbers)
		other.Limit = &numbers
		require.False(t, p.deny(&other, instant(2000), &r), field)
	}
	other := a
	other.ID.Hi++
	require.False(t, p.deny(&other, instant(2000), &r), "a denial is only for its key")
	other = a
	other.Units = 3
	require.False(t, p.deny(&other, instant(2000), &r), "a denial is not for fewer units")
	p.learn(&other, denial(time.Second/2), instant(2000))
	require.True(t, p.deny(&other, instant(3000), &r))
	require.Equal(t, time.Second/2-1000, r.RetryAfter)
	require.True(t, p.deny(&a, instant(3000), &r))
	require.Equal(t, 3*time.Second-2000, r.RetryAfter, "the denial of more units applies")
	other.Units = 5
	require.True(t, p.deny(&other, instant(3000), &r))
	require.Equal(t, 3*time.Second-2000, r.RetryAfter)
}

func TestPushbackLastsAtMostASecondByAnyClock(t *testing.T) {
	a, sent := wire.Ask{ID: bucket.ID{Lo: 9}, Limit: &tenAMinute, Units: 1}, countsync.Time{Now: 1e9, Monotonic: 5e9}
	for _, c := range []struct {
		name           string
		retry          time.Duration
		now, monotonic time.Duration // time since the take was sent
		denies         bool
		left           time.Duration
	}{
		{"at once", time.Hour, 0, 0, true, time.Hour},
		{"just before the end of the second", time.Hour, time.Second - 1, time.Second - 1, true, time.Hour - time.Second + 1},
		{"after a second", time.Hour, time.Second, time.Second, false, 0},
		{"just before a unit is available", 100, 99, 99, true, 1},
		{"once a unit is available", 100, 100, 100, false, 0},
		{"the clock steps back", time.Hour, -time.Hour, time.Second, false, 0},
		{"the clock steps forward", time.Hour, time.Second, 1, false, 0},
		{"the clock stops", 500, 0, 400, true, 100},
		{"the units can never be admitted", math.MaxInt64, time.Second - 1, 0, true, math.MaxInt64 - time.Second + 1},
	} {
		p, r := newPushbacks(), wire.Result{}
		p.learn(&a, denial(c.retry), sent)
		got := p.deny(&a, countsync.Time{Now: sent.Now + int64(c.now), Monotonic: sent.Monotonic + int64(c.monotonic)}, &r)
		require.Equal(t, c.denies, got, c.name)
		require.Equal(t, c.left, r.RetryAfter, c.name)
	}
}

func TestDenialInTransitDuringRefundIsNotCached(t *testing.T) {
	a, r := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &tenAMinute, Units: 1}, wire.Result{}
	p := newPushbacks()
	p.learn(&a, denial(time.Hour), instant(100))
	neighbour := a
	neighbour.ID.Hi++
	p.learn(&neighbour, denial(time.Hour), instant(100))
	p.end(a.ID, 200)
	require.False(t, p.deny(&a, instant(210), &r))
	require.True(t, p.deny(&neighbour, instant(210), &r), "other keys are not affected")
	p.learn(&a, denial(time.Hour), instant(150))
	require.False(t, p.deny(&a, instant(220), &r), "the take was sent before the refund")
	p.learn(&a, denial(time.Hour), instant(201))
	require.True(t, p.deny(&a, instant(230), &r))
}

func TestLaterResetEndsAPushback(t *testing.T) {
	a := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &tenAMinute, Units: 1}
	for name, c := range resets {
		t.Run(name, func(t *testing.T) {
			p, known := newPushbacks(), c.before
			p.number = func(bucket.ID, int64) uint64 { return known }
			r := denial(time.Hour)
			r.ResetNumber = c.owner
			p.learn(&a, r, instant(100))
			if known = c.now; c.now != c.before {
				p.reset(a.ID, c.now)
			}
			require.Equal(t, c.valid, p.deny(&a, instant(200), new(wire.Result)))
		})
	}
}

func TestFullSetReplacesPushbackThatEndsFirst(t *testing.T) {
	p, r := newPushbacks(), wire.Result{}
	of := func(i int) *wire.Ask {
		return &wire.Ask{ID: bucket.ID{Hi: uint64(i), Lo: 77}, Limit: &tenAMinute, Units: 1}
	}
	for i := range pushbackWays {
		p.learn(of(i), denial(time.Duration(100*((i+2)%pushbackWays+1))), instant(1000))
	}
	p.learn(of(10), denial(50), instant(1000))
	for i := range pushbackWays {
		require.Equal(t, (i+2)%pushbackWays != 0, p.deny(of(i), instant(1010), &r), i)
	}
	require.True(t, p.deny(of(10), instant(1010), &r))
	p.learn(of(11), denial(500), instant(1010))
	require.False(t, p.deny(of(10), instant(1020), &r))
	p.learn(of(11), denial(300), instant(1200))
	require.True(t, p.deny(of(11), instant(1200), &r))
	require.Equal(t, time.Duration(300), r.RetryAfter, "a key has one entry for the same ask")
}

func TestOnlyFirmDenialsAreCached(t *testing.T) {
	a := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &tenAMinute, Units: 1}
	p, r := newPushbacks(), denial(time.Hour)
	r.Firm = false
	p.learn(&a, r, instant(1000))
	require.False(t, p.deny(&a, instant(1001), r))
	answer := r.Append(wire.OpTake, wire.AppendResponse(nil, wire.Done, 1))
	require.False(t, wire.ParseResult(answer, wire.OpTake, 0).Firm, "the result of an older release is not firm either")
}

func TestCachedBanOutlastsOtherDenials(t *testing.T) {
	of := func(i int, bans bool) *wire.Ask {
		return &wire.Ask{ID: bucket.ID{Hi: uint64(i), Lo: 77}, Limit: &tenAMinute, Units: 5, BansKeys: bans}
	}
	p, r, ban := newPushbacks(), wire.Result{}, denial(time.Hour)
	ban.Banned = true
	p.learn(of(1, true), ban, instant(1000))
	for i := range 10 * pushbackWays {
		p.learn(of(2+i, true), denial(time.Hour), instant(2000))
	}
	other := of(1, true)
	other.Units, other.Limit = 1, &bucket.Limit{Rate: 7, Per: time.Hour}
	for _, c := range []struct {
		ask    *wire.Ask
		after  time.Duration
		denies bool
	}{
		{of(1, true), 10*time.Second - 1, true}, {other, 10*time.Second - 1, true}, {of(1, false), 0, false}, {of(1, true), 10 * time.Second, false},
	} {
		require.Equal(t, c.denies, p.deny(c.ask, instant(1000+int64(c.after)), &r))
		if c.denies {
			require.True(t, r.Banned)
			require.Equal(t, []int64{c.ask.Limit.Rate, int64(time.Hour - c.after)}, []int64{r.Limit, int64(r.RetryAfter)})
		}
	}
	p.reset(of(1, true).ID, ban.ResetNumber+1)
	require.False(t, p.deny(of(1, true), instant(1001), &r), "a reset releases the key")
}

func TestCachedPauseKeepsLaterEnd(t *testing.T) {
	a := &wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &tenAMinute, Units: 5, Pauses: true}
	p := &pushbacks{number: neverReset} // the node has sent no take yet
	for _, c := range []struct{ at, lasts, end time.Duration }{
		{0, time.Minute, time.Minute},
		{time.Second, 5 * time.Second, time.Minute},             // a shorter pause that this node begins
		{2 * time.Second, time.Hour, time.Hour + 2*time.Second}, // the owner knows of a longer pause
		{20 * time.Second, 10 * time.Second, 30 * time.Second},  // the cached denial has ended
	} {
		r := denial(c.lasts)
		r.Banned, r.Paused = true, true
		p.learn(a, r, instant(1000+int64(c.at)))
		var d wire.Result
		require.True(t, p.deny(a, instant(1000+int64(c.at)), &d))
		require.True(t, d.Banned && d.Paused)
		require.Equal(t, c.end-c.at, d.RetryAfter)
	}
	var d wire.Result
	without := *a
	without.Pauses = false
	require.False(t, p.deny(&without, instant(1000+int64(20*time.Second)), &d))
}

func TestLongerDenialHidesCachedPause(t *testing.T) {
	a := &wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &tenAMinute, Units: 5, Pauses: true}
	for _, pausedFirst := range []bool{false, true} {
		p := newPushbacks()
		paused := denial(5 * time.Second)
		paused.Banned, paused.Paused = true, true
		all := []*wire.Result{denial(time.Minute), paused}
		if pausedFirst {
			slices.Reverse(all)
		}
		for _, r := range all {
			p.learn(a, r, instant(1000))
		}
		var d wire.Result
		require.True(t, p.deny(a, instant(1000), &d))
		require.Equal(t, []any{false, false, time.Minute}, []any{d.Banned, d.Paused, d.RetryAfter})
	}
}

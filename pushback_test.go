package weir

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// remembering is pushbacks that a take has left the node of.
func remembering() *pushbacks {
	p := &pushbacks{number: neverReset}
	p.sets.Store(new([pushbackSets]pushbackSet))
	return p
}

func instant(at int64) countsync.Time { return countsync.Time{Now: at, Steady: at} }

// denied is the answer to a take, a second before the same ask is admitted or another
// time.
func denied(retry time.Duration) *wire.Result {
	return &wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: retry, ResetAfter: 2 * retry}, Source: wire.Forwarded, Firm: true, ResetNumber: noReset}
}

// Every message takes as long as every other here, and what is asked with pushbacks is
// asked without them at the same moments.
func TestAPushbackEndsToTheNanosecond(t *testing.T) {
	const way = 100 * time.Microsecond
	rapid.Check(t, func(t *rapid.T) {
		l := bucket.Limit{
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
			Rate:      rapid.Int64Range(1, 6).Draw(t, "rate"),
			Per:       time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(3*time.Second)).Draw(t, "per")),
		}
		nodes := []*pushbacks{remembering(), remembering()}
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
			want := without.Take(id, &l, now+int64(way), a.Units)
			var got wire.Result
			if !p.deny(&a, instant(now), &got) {
				got.Result = with.Take(id, &l, now+int64(way), a.Units)
				got.Firm, got.ResetNumber = !got.Allowed, noReset
				p.learn(&a, &got, instant(now))
			}
			if got.Allowed != want.Allowed || got.RetryAfter > want.RetryAfter || got.Limit != want.Limit || !got.Allowed && got.RetryAfter <= 0 || got.ResetAfter < got.RetryAfter {
				t.Fatalf("%d units at %d: %+v, and without pushbacks %+v", a.Units, now, got, want)
			}
			if a.Units == 1 && got.RetryAfter != want.RetryAfter {
				t.Fatalf("at %d: RetryAfter is %v, and without pushbacks %v", now, got.RetryAfter, want.RetryAfter)
			}
			if !want.Allowed {
				again = append(again, now+int64(want.RetryAfter))
			}
		}
	})
}

func TestAPushbackIsOfTheSameNumbersAndAsManyUnits(t *testing.T) {
	l := bucket.Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Minute, Burst: 5, Version: 3}
	a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &l, Units: 4}
	p := remembering()
	p.learn(&a, denied(3*time.Second), instant(1000))
	r := wire.Result{Result: bucket.Result{Allowed: true, Receipt: 7}}
	require.True(t, p.deny(&a, instant(2000), &r))
	require.Equal(t, wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: 3*time.Second - 1000, ResetAfter: 6*time.Second - 1000}, Source: wire.Pushback}, r)
	for what, edit := range map[string]func(l *bucket.Limit){
		"Algorithm": func(l *bucket.Limit) { l.Algorithm = LeakyBucket },
		"Rate":      func(l *bucket.Limit) { l.Rate++ },
		"Per":       func(l *bucket.Limit) { l.Per++ },
		"Burst":     func(l *bucket.Limit) { l.Burst++ },
		"Version":   func(l *bucket.Limit) { l.Version++ },
		"Start":     func(l *bucket.Limit) { l.Start++ },
	} {
		other, numbers := a, l
		edit(&numbers)
		other.Limit = &numbers
		require.False(t, p.deny(&other, instant(2000), &r), what)
	}
	other := a
	other.ID.Hi++
	require.False(t, p.deny(&other, instant(2000), &r), "another key of the same set")
	other = a
	other.Units = 3
	require.False(t, p.deny(&other, instant(2000), &r), "fewer units")
	p.learn(&other, denied(time.Second/2), instant(2000))
	require.True(t, p.deny(&other, instant(3000), &r))
	require.Equal(t, time.Second/2-1000, r.RetryAfter)
	require.True(t, p.deny(&a, instant(3000), &r))
	require.Equal(t, 3*time.Second-2000, r.RetryAfter, "of both that for more units")
	other.Units = 5
	require.True(t, p.deny(&other, instant(3000), &r))
	require.Equal(t, 3*time.Second-2000, r.RetryAfter)
}

func TestAPushbackLastsASecondAtMostWhateverTheClockDoes(t *testing.T) {
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	a, sent := wire.Ask{ID: bucket.ID{Lo: 9}, Limit: &l, Units: 1}, countsync.Time{Now: 1e9, Steady: 5e9}
	for _, c := range []struct {
		what        string
		retry       time.Duration
		now, steady time.Duration // since
		denies      bool
		left        time.Duration
	}{
		{"at once", time.Hour, 0, 0, true, time.Hour},
		{"just before the second is over", time.Hour, time.Second - 1, time.Second - 1, true, time.Hour - time.Second + 1},
		{"after a second", time.Hour, time.Second, time.Second, false, 0},
		{"a unit is there sooner", 100, 99, 99, true, 1},
		{"and now", 100, 100, 100, false, 0},
		{"the clock steps back", time.Hour, -time.Hour, time.Second, false, 0},
		{"the clock steps on", time.Hour, time.Second, 1, false, 0},
		{"the clock stands", 500, 0, 400, true, 100},
		{"never", math.MaxInt64, time.Second - 1, 0, true, math.MaxInt64 - time.Second + 1},
	} {
		p, r := remembering(), wire.Result{}
		p.learn(&a, denied(c.retry), sent)
		got := p.deny(&a, countsync.Time{Now: sent.Now + int64(c.now), Steady: sent.Steady + int64(c.steady)}, &r)
		require.Equal(t, c.denies, got, c.what)
		require.Equal(t, c.left, r.RetryAfter, c.what)
	}
}

func TestAnAnswerUnderWayWhenUnitsAreGivenBackIsNotRemembered(t *testing.T) {
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	a, r := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &l, Units: 1}, wire.Result{}
	p := remembering()
	p.learn(&a, denied(time.Hour), instant(100))
	neighbour := a
	neighbour.ID.Hi++
	p.learn(&neighbour, denied(time.Hour), instant(100))
	p.end(a.ID, 200)
	require.False(t, p.deny(&a, instant(210), &r))
	require.True(t, p.deny(&neighbour, instant(210), &r), "other keys go on")
	p.learn(&a, denied(time.Hour), instant(150))
	require.False(t, p.deny(&a, instant(220), &r), "it was sent before")
	p.learn(&a, denied(time.Hour), instant(201))
	require.True(t, p.deny(&a, instant(230), &r))
}

func TestADenialIsRememberedForAsLongAsNoLaterResetIsKnown(t *testing.T) {
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	a := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &l, Units: 1}
	for name, c := range map[string]struct {
		denied      uint64 // the reset number that the owner knew of
		before, now uint64 // the one that this node knows of as the denial comes, and after that
		denies      bool
	}{
		"of a count that was never reset":               {noReset, noReset, noReset, true},
		"reset since, as both know":                     {noReset, noReset, 7, false},
		"by an owner that does not know of a reset":     {noReset, 7, 7, false},
		"by an owner that knows of an earlier one":      {6, 7, 7, false},
		"of the count since the reset":                  {7, 7, 7, true},
		"by an owner that has heard of the reset first": {7, noReset, 7, true},
		"before the one after the next":                 {8, 7, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, known := remembering(), c.before
			p.number = func(bucket.ID, int64) uint64 { return known }
			r := denied(time.Hour)
			r.ResetNumber = c.denied
			p.learn(&a, r, instant(100))
			if known = c.now; c.now != c.before {
				p.reset(a.ID, c.now)
			}
			require.Equal(t, c.denies, p.deny(&a, instant(200), new(wire.Result)))
		})
	}
}

func TestWhereASetIsFullTheSoonestToEndIsForgotten(t *testing.T) {
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	p, r := remembering(), wire.Result{}
	of := func(i int) *wire.Ask { return &wire.Ask{ID: bucket.ID{Hi: uint64(i), Lo: 77}, Limit: &l, Units: 1} }
	for i := range pushbackWays {
		p.learn(of(i), denied(time.Duration(100*((i+2)%pushbackWays+1))), instant(1000))
	}
	p.learn(of(10), denied(50), instant(1000))
	for i := range pushbackWays {
		require.Equal(t, (i+2)%pushbackWays != 0, p.deny(of(i), instant(1010), &r), i)
	}
	require.True(t, p.deny(of(10), instant(1010), &r))
	p.learn(of(11), denied(500), instant(1010))
	require.False(t, p.deny(of(10), instant(1020), &r))
	p.learn(of(11), denied(300), instant(1200))
	require.True(t, p.deny(of(11), instant(1200), &r))
	require.Equal(t, time.Duration(300), r.RetryAfter, "a key is there once for the same ask")
}

func TestOnlyAFirmDenialIsRemembered(t *testing.T) {
	n := solo(t, Config{})
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	a := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &l, Units: 1}
	for s := wire.Source(0); s < wire.Sources; s++ {
		for _, allowed := range []bool{true, false} {
			r := wire.Result{Source: s}
			r.Allowed = allowed
			require.Equal(t, s == wire.Owner && !allowed, n.firm(&a, &r, 0), "%v, %v", s, allowed)
		}
	}
	p, r := remembering(), denied(time.Hour)
	r.Firm = false
	p.learn(&a, r, instant(1000))
	require.False(t, p.deny(&a, instant(1001), r))
	answer := r.Append(wire.AppendAnswer(nil, wire.Done, 1))
	require.False(t, wire.ParseResult(answer, 0).Firm, "as of a node of before")
}

func TestATakeThatMayBeGivenBackKeepsDenialsFromBeingFirm(t *testing.T) {
	const span = 20 * time.Millisecond
	var s tentative
	id, now := bucket.ID{Lo: 5}, 1000*int64(span)+7
	none := func(at time.Duration) bool { return s.none(id, now+int64(at), span) }
	s.settle(id)
	require.True(t, none(0))
	s.begin(id, now, span)
	require.False(t, none(1))
	s.settle(id)
	require.True(t, none(1))
	s.settle(id)
	s.begin(id, now, span)
	require.False(t, none(1), "what settles once too often takes nothing away")
	require.False(t, none(span), "a span at least")
	require.True(t, none(2*span), "and two at most")
	s.begin(id, now+int64(2*span), span)
	s.begin(id, now+int64(3*span), span)
	s.settle(id)
	require.False(t, none(3*span+1))
	require.False(t, none(4*span))
	require.True(t, none(5*span))
	require.True(t, s.none(bucket.ID{Lo: 6}, now, span))
	s.begin(id, now+int64(6*span), span)
	require.True(t, none(60*span), "after long")
}

// Who has authority answers by the count.
func TestANodeDoesNotHoldItsOwnKeysBack(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Minute})
	a := wire.Ask{ID: l.id("k"), Limit: &l.numbers, Units: 1}
	n.pushbacks.sets.Store(new([pushbackSets]pushbackSet))
	n.pushbacks.learn(&a, denied(time.Hour), n.clock.Time())
	d, err := l.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, Owner, d.Source)
	require.True(t, d.Allowed)
}

func TestAFloodOfADeniedKeyAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a pool forgets at random")
	}
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 1, Per: time.Hour})
	keys := []string{ownedBy(t, ls[0], nodes[0]), ownedBy(t, ls[0], nodes[1])}
	for range 2 {
		for _, key := range keys {
			_, err := ls[0].Allow(t.Context(), key)
			require.NoError(t, err)
		}
	}
	ctx, asks, ds := t.Context(), []Ask{{Limiter: ls[0], Key: keys[0]}, {Limiter: ls[0], Key: keys[1]}}, make(Decisions, 2)
	var d Decision
	for _, ask := range map[string]func(){
		"alone":    func() { d, _ = ls[0].Allow(ctx, keys[1]) },
		"together": func() { ds, _ = nodes[0].AllowAllInto(ctx, asks, ds); d = ds[1] },
	} {
		ask()
		const runs = 1000
		before := nodes[1].Stats().Served
		allocated := testing.AllocsPerRun(runs, ask)
		asked := nodes[1].Stats().Served - before // once a second
		require.Less(t, asked, uint64(runs/2))
		if asked == 0 {
			require.Zero(t, allocated)
			require.Equal(t, Pushback, d.Source)
		}
	}
}

// On real sockets, and with asks that overlap.
func TestFewOfManyAsksAtATimeReachTheOwnerOfADeniedKey(t *testing.T) {
	t.Parallel()
	const asks = 60_000 // two thirds of them on the nodes that do not own the key
	whileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 3, nil)
		ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
		decided := admitsTheLimit(t, ls, ownedBy(t, ls[0], nodes[0]), 24, asks)
		served := nodes[0].Stats().Served
		t.Logf("of %d asks on other nodes, %d reached the owner", asks*2/3, served)
		require.LessOrEqual(t, served, uint64(100+asks*2/100))
		return decided
	})
}

// BenchmarkDeniedByPushback is a denial that this node remembers, beside one of a key
// that it owns.
func BenchmarkDeniedByPushback(b *testing.B) {
	nodes := fleet(b, 2, nil)
	ls := limiters(b, nodes, Limit{Name: "test", Rate: 1, Per: time.Hour})
	ctx := b.Context()
	for i, name := range []string{"owned", "remembered"} {
		b.Run(name, func(b *testing.B) {
			key := ownedBy(b, ls[0], nodes[i])
			for range 2 {
				if _, err := ls[0].Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if d, err := ls[0].Allow(ctx, key); err != nil || d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

package countsync

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// drawVector draws a vector of up to 4 origins, with tallies that an origin can have had: the
// refunds rise with the spent units. Each copy only has bounds of the expired units and of the
// time at which a tally grew.
func drawVector(t *rapid.T, label string) (v vector) {
	for origin := Member(1); origin <= 4; origin++ {
		if steps := rapid.IntRange(0, 5).Draw(t, label); steps > 0 {
			series := rapid.Int64Range(0, 1).Draw(t, label)
			gone, later := rapid.Int64Range(0, int64(steps)).Draw(t, label), rapid.Int64Range(0, 1).Draw(t, label)
			v = append(v, tally{origin: origin, series: series, spent: int64(steps * 3), refunded: int64(steps), expired: gone, changed: int64(2*steps) + later})
		}
	}
	return v
}

func TestVectorsAreASemilattice(t *testing.T) {
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawVector(t, "a"), drawVector(t, "b"), drawVector(t, "c")
		join := func(vs ...vector) (all vector) {
			for _, v := range vs {
				all = all.join(slices.Clone(v))
			}
			return all
		}
		for name, pair := range map[string][2]vector{
			"a join commutes":            {join(a, b), join(b, a)},
			"a join is associative":      {join(join(a, b), c), join(a, join(b, c))},
			"a join is idempotent":       {join(a, a), a},
			"an empty vector is neutral": {join(a, nil), a},
		} {
			require.True(t, slices.Equal(pair[0], pair[1]), "%s: %v, %v", name, pair[0], pair[1])
		}
		lasting := ages{late: math.MaxInt64, recovered: math.MaxInt64}
		ab := join(a, b)
		require.False(t, !ab.covers(a) || !ab.covers(b), "%v covers not both of %v and %v", ab, a, b)
		for _, one := range []vector{a, b} {
			for _, x := range join(a, b) {
				known := one.tallyOf(x.origin)
				if same := !x.isLater(&known) && !known.isLater(&x); same && (x.changed > known.changed || x.expired < known.expired) {
					t.Fatalf("of two bounds of %v and %v the wider one is in their join: %v", a, b, x)
				}
			}
		}
		if both := a.covers(b) && b.covers(a); both != slices.EqualFunc(a, b, func(x, y tally) bool { return !x.isLater(&y) && !y.isLater(&x) && x.origin == y.origin }) {
			t.Fatalf("of %v and %v each covers the other: %v", a, b, both)
		}
		if c := join(a, b); a.covers(b) && c.unitsBeyond(a, lasting) != 0 {
			t.Fatalf("%v has %d units beyond %v, which covers it", c, c.unitsBeyond(a, lasting), a)
		}
	})
}

// Two nodes refund units that both of them know, and together refund more than there were. The
// excess belongs to units of a third node, of which they hear later. These units are then
// refunded.
func TestEarlyRefundsOffsetUnitsThatArriveLater(t *testing.T) {
	lasting := ages{now: 9, late: math.MaxInt64, recovered: math.MaxInt64}
	known := vector{{origin: 1, series: 1, spent: 7, refunded: 7}, {origin: 2, series: 1, spent: 12, refunded: 14}, {origin: 3, series: 1, spent: 4, expired: 3}}
	for units, want := range map[int64]int64{0: 0, 1: 0, 5: 4, 12: 11} {
		other := vector{{origin: 4, series: 1, spent: 6 + units, expired: 6}}
		require.Equal(t, want, known.unitsOnTop(other, 0, units, lasting), units)
		replaces, merged := merge(known, other, 0, units, false, lasting)
		if replaces {
			merged += units
		}
		require.Equal(t, want, max(0, merged), units)
	}
	require.Zero(t, vector{{origin: 1, spent: 2, refunded: 5}}.unitsOnTop(vector{{origin: 4, spent: 1}}, 0, 1, lasting), "of three, one has come")
	spentSince := vector{{origin: 1, spent: 6, refunded: 6}, {origin: 2, spent: 3, refunded: 3}} // three of these units were spent after the refunds
	require.Zero(t, spentSince.unitsOnTop(vector{{origin: 4, spent: 3}}, 3, 3, lasting))
	require.EqualValues(t, 3, vector{{origin: 1, spent: 5}}.unitsOnTop(vector{{origin: 4, spent: 3}}, 9, 3, lasting), "units without a known origin were not refunded")
	late := lasting
	late.late = 1 // the units of a late refund had already recovered
	require.EqualValues(t, 5, known.unitsOnTop(vector{{origin: 4, series: 1, spent: 5}}, 0, 5, late))
}

// keeper is a node with one copy.
type keeper struct {
	name  Member
	store *bucket.Store
	v     vector
}

// deed contains units that were spent at a time, or refunded.
type deed struct {
	origin Member
	at     int64
	units  int64
	rest   int64 // units that have not been refunded
}

// gossip contains keepers that send each other their copies, in any order and with any delay.
type gossip struct {
	id      bucket.ID
	limit   bucket.Limit
	now     int64
	keepers []*keeper
	wire    []letter
	deeds   []deed
}

type letter struct {
	v     vector
	at    int64
	count bucket.Count
}

func newGossip(limit bucket.Limit, nodes int) *gossip {
	g := &gossip{id: bucket.ID{Hi: 1, Lo: 2}, limit: limit, now: 1e18}
	for i := range nodes {
		g.keepers = append(g.keepers, &keeper{name: Member(i + 1), store: bucket.NewStore(64, bucket.Salt{})})
	}
	return g
}

func (g *gossip) used(h *keeper) int64 {
	used, _, _ := h.store.Used(g.id, g.now)
	return used
}

func (g *gossip) spend(h *keeper, units int64) {
	if h.store.Take(g.id, &g.limit, g.now, units).Allowed {
		h.v = h.v.add(h.name, 0, units, g.now)
		g.deeds = append(g.deeds, deed{h.name, g.now, units, units})
	}
}

// refund returns units of the last deed that h has heard of, as far as no keeper has refunded them.
func (g *gossip) refund(h *keeper, units int64) {
	heard, last := make(map[Member]int64), -1
	for i, d := range g.deeds {
		heard[d.origin] += max(0, d.units)
		if d.rest > 0 && heard[d.origin] <= h.v.tallyOf(d.origin).spent {
			last = i
		}
	}
	if last < 0 {
		return
	}
	before := g.used(h)
	if units = min(units, before, g.deeds[last].rest); units > 0 && h.store.Refund(g.id, &g.limit, g.now, units, 0, false) {
		gave := before - g.used(h)
		h.v = h.v.add(h.name, 0, -gave, g.now)
		g.deeds[last].rest -= gave
		g.deeds = append(g.deeds, deed{h.name, g.now, -gave, 0})
	}
}

// step makes a keeper spend units, refund units, send its copy, or merge another copy.
func (g *gossip) step(t *rapid.T, refunds bool) {
	h := g.keepers[rapid.IntRange(0, len(g.keepers)-1).Draw(t, "node")]
	switch op := rapid.IntRange(0, 5).Draw(t, "op"); {
	case op <= 1:
		g.spend(h, rapid.Int64Range(1, 9).Draw(t, "units"))
	case op == 2 && refunds:
		g.refund(h, rapid.Int64Range(1, 9).Draw(t, "units"))
	case op <= 3:
		g.post(h)
	case len(g.wire) > 0:
		g.read(h, g.wire[rapid.IntRange(0, len(g.wire)-1).Draw(t, "letter")])
	}
}

func (g *gossip) post(h *keeper) {
	l := letter{v: slices.Clone(h.v), at: g.now}
	var c bucket.Count
	h.store.Export(g.id, g.now, bucket.Mark{}, &c)
	l.count = c
	g.wire = append(g.wire, l)
}

func (g *gossip) read(h *keeper, l letter) {
	// A count has ages, so it is imported at the time at which it was exported.
	var there keeper
	there.store = bucket.NewStore(64, bucket.Salt{})
	there.store.Import(g.id, &l.count, l.at, 0)
	var c bucket.Count
	there.store.Export(g.id, g.now, bucket.Mark{}, &c)
	earlier := c.RecoversIn(g.now) < h.store.RecoversIn(g.id, g.now)
	replaces, onTop := merge(h.v, l.v, g.used(h), g.used(&there), earlier, agesOf(&g.limit, g.now))
	if replaces {
		h.store.Import(g.id, &c, g.now, onTop)
	} else {
		h.store.SpendElsewhere(g.id, &g.limit, g.now, onTop)
	}
	h.v = h.v.join(slices.Clone(l.v))
}

// idealCopy returns the count of a copy with the vector v, if the copy had seen each deed in v when
// it happened.
func (g *gossip) idealCopy(v vector) *keeper {
	all := &keeper{store: bucket.NewStore(64, bucket.Salt{})}
	seen := make(map[Member][2]int64)
	for _, e := range g.deeds {
		t, s := v.tallyOf(e.origin), seen[e.origin]
		if e.units > 0 && s[0]+e.units <= t.spent {
			s[0] += e.units
			all.store.SpendElsewhere(g.id, &g.limit, e.at, e.units)
		} else if e.units < 0 && s[1]-e.units <= t.refunded {
			s[1] -= e.units
			all.store.SpendElsewhere(g.id, &g.limit, e.at, e.units)
		}
		seen[e.origin] = s
	}
	return all
}

func (g *gossip) history() (s string) {
	for _, e := range g.deeds {
		s += fmt.Sprintf("%d: %+d by %d\n", e.at-1e18, e.units, e.origin)
	}
	return s
}

// As long as no units recover, a copy has exactly the units of which it has heard. Each unit
// counts once, no matter by which path and how often it arrived, and which keeper refunded it.
func TestCopyCountsEachKnownUnitOnce(t *testing.T) {
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		limit := bucket.Limit{Algorithm: bucket.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")), Rate: 1_000_000, Per: 365 * 24 * time.Hour}
		if limit.Algorithm == bucket.TokenBucket || limit.Algorithm == bucket.LeakyBucket {
			limit.Rate, limit.Burst = 1, 1_000_000
		}
		g := newGossip(limit, rapid.IntRange(2, 4).Draw(t, "nodes"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			g.step(t, true)
			for _, h := range g.keepers {
				var net int64
				for _, t := range h.v {
					net += t.net()
				}
				if used := g.used(h); used != max(0, net) {
					t.Fatalf("%v: %d has %d, and has heard of %v\n%s", limit.Algorithm, h.name, used, h.v, g.history())
				}
			}
		}
	})
}

// If units recover, a copy has at least the rest of the units of which it has heard. In a
// SlidingWindow, where whole units slide out, it may have one unit less for each origin except
// the first.
func TestCopyHasAtLeastTheUnrecoveredKnownUnits(t *testing.T) {
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		windows := []bucket.Algorithm{bucket.FixedWindow, bucket.SlidingWindow, bucket.SlidingLog}
		limit := bucket.Limit{Algorithm: rapid.SampledFrom(windows).Draw(t, "algorithm"), Rate: 1000, Per: time.Second}
		if limit.Algorithm != bucket.SlidingLog {
			limit.Start = 1 // otherwise the windows of each copy begin with its first ask
		}
		g := newGossip(limit, rapid.IntRange(2, 4).Draw(t, "nodes"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			g.now += rapid.Int64Range(0, int64(recovery(&limit)/8)).Draw(t, "later")
			g.step(t, false)
			for _, h := range g.keepers {
				used, left := g.used(h), g.used(g.idealCopy(h.v))
				if limit.Algorithm == bucket.SlidingWindow {
					left -= int64(max(0, len(h.v)-1))
				}
				if used < left {
					t.Fatalf("%v: %d has %d, and %d are left of %v at %d\n%s", limit.Algorithm, h.name, used, left, h.v, g.now-1e18, g.history())
				}
			}
		}
	})
}

func TestMergeChoosesTheLesserBound(t *testing.T) {
	const early = 9
	by := ages{now: early, late: 7, recovered: 9}
	of := func(origin Member, spent, refunded, changed int64) tally {
		return tally{origin: origin, spent: spent, refunded: refunded, changed: changed}
	}
	for name, c := range map[string]struct {
		copied, other   vector
		used, otherUsed int64
		replaces        bool
		onTop           int64
	}{
		"two empty copies":                        {vector{}, vector{}, 0, 0, false, 0},
		"no origins, and the other has more":      {vector{}, vector{}, 2, 3, true, 0},
		"no origins, and the other has less":      {vector{}, vector{}, 3, 2, false, 0},
		"own units that are no longer used":       {vector{of(1, 9, 0, early)}, vector{of(2, 3, 0, early)}, 1, 3, false, 3},
		"a later copy with less in use":           {vector{of(1, 5, 0, early)}, vector{of(1, 5, 4, early)}, 5, 1, true, 0},
		"an earlier copy":                         {vector{of(1, 5, 4, early)}, vector{of(1, 5, 0, early)}, 1, 5, false, 0},
		"equal vectors, and the other has less":   {vector{of(1, 5, 0, early)}, vector{of(1, 5, 0, early)}, 5, 4, true, 0},
		"equal vectors, and the other has more":   {vector{of(1, 5, 0, early)}, vector{of(1, 5, 0, early)}, 4, 5, false, 0},
		"different origins":                       {vector{of(1, 5, 0, early)}, vector{of(2, 3, 0, early)}, 5, 3, false, 3},
		"a common origin, and the other has less": {vector{of(1, 5, 0, early), of(3, 4, 0, early)}, vector{of(2, 3, 0, early), of(3, 4, 0, early)}, 9, 6, true, 5},
		"units that the other no longer uses":     {vector{of(1, 5, 0, early)}, vector{of(2, 8, 0, early)}, 5, 3, false, 3},
		"recovered units of the other":            {vector{of(1, 5, 0, early)}, vector{of(2, 3, 0, 0)}, 5, 3, false, 0},
		"own recovered units":                     {vector{of(1, 5, 0, 0)}, vector{of(2, 3, 0, early)}, 5, 3, true, 0},
		"a refund":                                {vector{of(1, 9, 0, early)}, vector{of(2, 3, 5, early)}, 9, 0, false, -2},
		"more refunded than spent":                {vector{of(1, 0, 5, early), of(2, 10, 0, early)}, vector{of(1, 0, 5, early), of(3, 8, 0, early)}, 5, 3, false, 8},
		"a late refund of its own units":          {vector{of(1, 9, 0, early)}, vector{of(2, 3, 5, 1)}, 9, 0, false, 0},
		"a later series": {
			vector{of(1, 9, 0, early), {origin: 2, series: 1, spent: 8, changed: early}},
			vector{{origin: 2, series: 2, spent: 3, changed: early}}, 17, 11, false, 3,
		},
		"an earlier copy with less in use": {vector{of(1, 5, 0, early)}, vector{of(1, 3, 0, early)}, 5, 1, false, 0},
		"an earlier series": {
			vector{of(1, 9, 0, early), {origin: 2, series: 2, spent: 1, changed: early}},
			vector{{origin: 2, series: 1, spent: 8, changed: early}, of(3, 3, 0, early)}, 10, 11, false, 3,
		},
	} {
		replaces, onTop := merge(c.copied, c.other, c.used, c.otherUsed, true, by)
		if replaces != c.replaces || onTop != c.onTop {
			t.Errorf("%s: %v with %d on top, and not %v with %d", name, replaces, onTop, c.replaces, c.onTop)
		}
	}
	same := vector{of(1, 5, 0, early)}
	for _, earlier := range []bool{false, true} {
		replaces, onTop := merge(same, same, 5, 5, earlier, by)
		require.Equal(t, earlier, replaces, "copies of the same units")
		require.Zero(t, onTop)
	}
}

// add adds units of origin to v, and returns the result. Negative units are refunds.
func (v vector) add(origin Member, series, units, now int64) vector {
	i, ok := v.find(origin)
	if !ok {
		v = slices.Insert(v, i, tally{origin: origin, series: series})
	}
	if units > 0 {
		v[i].spent += units
	} else {
		v[i].refunded -= units
	}
	v[i].changed = now
	return v
}

func (t *tally) net() int64 { return t.spent - t.refunded }

// join returns the join of v and o.
func (v vector) join(o vector) vector {
	for _, t := range o {
		i, ok := v.find(t.origin)
		switch {
		case !ok:
			v = slices.Insert(v, i, t)
		case t.series > v[i].series:
			v[i] = t
		case t.series == v[i].series:
			v[i].join(&t)
		}
	}
	return v
}

// The count of a member that decides with an empty share contains all used units of the whole
// limit.
func TestUnitsCountUnderAnEmptyShare(t *testing.T) {
	for _, algorithm := range []bucket.Algorithm{bucket.TokenBucket, bucket.LeakyBucket} {
		whole := bucket.Limit{Algorithm: algorithm, Rate: 74, Per: 24 * time.Hour}
		share := whole
		share.Whole, share.Burst = whole.Capacity(), -1
		l := newLink(t)
		require.True(t, l.stores[1].Take(someID(1), &whole, l.now, whole.Rate).Allowed)
		require.False(t, l.stores[1].Take(someID(1), &share, l.now, 1).Allowed)
		l.settle()
		require.Equal(t, whole.Rate, l.used(0, someID(1)))
	}
}

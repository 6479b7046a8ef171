package bucket

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// granted describes admitted units: when they were admitted, and the receipt under which the
// store counts them.
type granted struct {
	t, units int64
	receipt  Receipt
}

// truth records the units that were actually admitted, in the way the algorithm counts them.
// Lent units are included when they are spent, and unspent lent units are not included.
type truth struct {
	l     *Limit
	all   []granted
	level *big.Rat // level of a bucket at the time at
	at    int64
}

// used returns the units that count at the time now, if a window begins at the time start.
func (o *truth) used(now, start int64) *big.Rat {
	used := new(big.Rat)
	switch o.l.Algorithm {
	case FixedWindow:
		for _, g := range o.all {
			if int64(g.receipt) == start {
				used = plus(used, rat(g.units))
			}
		}
	case SlidingLog:
		for _, g := range o.all {
			if now-g.t < int64(o.l.Per) {
				used = plus(used, rat(g.units))
			}
		}
	case TokenBucket, LeakyBucket:
		return o.drained(now)
	default:
		windows := slidingOracle{l: o.l}
		for _, g := range o.all {
			windows.all = append(windows.all, admission{int64(g.receipt), g.units})
		}
		used = rat(windows.counting(start, now))
	}
	return used
}

func (o *truth) drained(now int64) *big.Rat {
	level := minus(o.level, times(rat(now-o.at), ratio(o.l.Rate, int64(o.l.Per))))
	if level.Sign() < 0 {
		return new(big.Rat)
	}
	return level
}

// spend records admitted units, for which there must be room.
func (o *truth) spend(t *rapid.T, now, units int64, r Receipt) {
	if !o.l.IsBucket() && o.l.Algorithm != SlidingLog {
		require.True(t, int64(r) <= now && now-int64(r) < int64(o.l.Per), "spent after the end of the window")
	}
	left := minus(rat(o.l.Capacity()), o.used(now, int64(r)))
	require.LessOrEqual(t, rat(units).Cmp(left), 0, "%v admitted %d, but only %v are left", o.l.Algorithm, units, left)
	o.level, o.at = plus(o.drained(now), rat(units)), now
	o.all = append(o.all, granted{now, units, r})
}

// refund removes the newest units that count, if a window began at the time start.
func (o *truth) refund(now, start, units int64) {
	o.level, o.at = minus(o.drained(now), rat(units)), now
	if o.level.Sign() < 0 {
		o.level = new(big.Rat)
	}
	for i := len(o.all) - 1; i >= 0; i-- {
		g := &o.all[i]
		switch begun := start - int64(g.receipt); {
		case o.l.Algorithm == FixedWindow && begun != 0,
			o.l.Algorithm == SlidingWindow && begun > int64(o.l.Per),
			o.l.Algorithm == SlidingLog && now-g.t >= int64(o.l.Per):
		default:
			k := min(g.units, units)
			g.units -= k
			units -= k
		}
	}
}

// held is a lease of a borrower.
type held struct {
	rest         int64
	ends, closes int64 // end of the lease for the borrower, and for the owner
	receipt      Receipt
}

// Leases are spent and returned in random order, with takes, refunds and a fail-over in between.
// The number of admitted units must never be greater than the algorithm allows.
func TestLeasesStayWithinTheAlgorithm(t *testing.T) {
	rapid.Check(t, leasesAdmitNoMore)
}

func FuzzLeases(f *testing.F) { f.Fuzz(rapid.MakeFuzz(leasesAdmitNoMore)) }

func leasesAdmitNoMore(t *rapid.T) {
	l := Limit{
		Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		Rate:      rapid.SampledFrom([]int64{20, 100, 1000, 5000}).Draw(t, "rate"),
		Per:       rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, time.Minute}).Draw(t, "per"),
	}
	if l.IsBucket() {
		l.Burst = rapid.SampledFrom([]int64{0, 20, 100, 3000}).Draw(t, "burst")
	}
	id, now := ID{1, 2}, origin
	s, o := newStore(10, 1), &truth{l: &l, level: new(big.Rat), at: origin}
	if rapid.Bool().Draw(t, "tracked") {
		s.Track(1, now, nil)
	}
	var leases []held
	var takes []granted
	failedOver := int64(0) // until this time, leases of the previous store may be spent

	// lent returns the lent units as the owner counts them: the unspent units, and sometimes
	// more.
	lent := func() (out Lease) {
		for _, h := range leases {
			if h.closes > now {
				out.Units += h.rest
				out.Term = max(out.Term, time.Duration(h.closes-now))
			}
		}
		out.Units += rapid.SampledFrom([]int64{0, 0, 1, 7}).Draw(t, "additional lent units")
		return out
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now += rapid.OneOf(
			rapid.SampledFrom([]int64{0, 1, int64(time.Millisecond), int64(l.Per) - 1, int64(l.Per)}),
			rapid.Int64Range(0, int64(50*time.Millisecond)),
			rapid.Int64Range(0, int64(l.Per)/200),
			rapid.Int64Range(0, int64(l.Per)),
		).Draw(t, "elapsed")
		leases = slices.DeleteFunc(leases, func(h held) bool { return h.closes <= now })
		units := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, l.Capacity())).Draw(t, "units")
		switch rapid.SampledFrom([]string{"take", "lend", "lend", "lend", "spend", "spend", "spend all", "return", "return", "refund", "receipt", "collect", "fail over"}).Draw(t, "op") {
		case "take":
			r := s.Take(id, &l, now, units)
			if r.Allowed && units > 0 {
				o.spend(t, now, units, r.Receipt)
				takes = append(takes, granted{now, units, r.Receipt})
			} else if !r.Allowed {
				soonest := now + int64(r.RetryAfter)
				require.False(t, s.Peek(id, &l, soonest-1, units).Allowed, "before RetryAfter")
				require.True(t, s.Peek(id, &l, soonest, units).Allowed, "at RetryAfter")
			}
		case "lend":
			want := Lease{rapid.Int64Range(0, l.Capacity()).Draw(t, "want"), time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "term"))}
			var r Result
			least := time.Duration(rapid.Int64Range(0, int64(want.Term)).Draw(t, "least"))
			got := s.Lend(id, &l, now, units, want, least, lent(), &r)
			require.LessOrEqual(t, got.Units, want.Units)
			require.LessOrEqual(t, got.Term, want.Term)
			if !r.Allowed {
				require.Zero(t, got)
				continue
			}
			if units > 0 {
				o.spend(t, now, units, r.Receipt)
			}
			if got.Units > 0 {
				closes := now + int64(got.Term)
				leases = append(leases, held{got.Units, closes - int64(got.Term)/3, closes, r.Receipt})
			}
		case "spend", "spend all":
			if len(leases) == 0 {
				continue
			}
			h := &leases[rapid.IntRange(0, len(leases)-1).Draw(t, "lease")]
			if h.closes <= now {
				continue
			}
			k := min(h.rest, max(units, 1))
			if k > 0 {
				h.rest -= k
				o.spend(t, now, k, h.receipt)
			}
		case "return":
			if len(leases) == 0 || now < failedOver {
				continue
			}
			i := rapid.IntRange(0, len(leases)-1).Draw(t, "lease")
			h := leases[i]
			leases = slices.Delete(leases, i, i+1)
			s.Return(id, &l, now, h.rest, h.receipt, lent())
		case "refund":
			if now >= failedOver {
				v, _, _ := storedCount(s, id, &l, now)
				s.RefundBeside(id, &l, now, units, 0, false, lent())
				o.refund(now, v.at, units)
			}
		case "receipt":
			if len(takes) == 0 || l.IsBucket() || now < failedOver {
				continue
			}
			i := rapid.IntRange(0, len(takes)-1).Draw(t, "take")
			at := slices.IndexFunc(o.all, func(s granted) bool { return s == takes[i] })
			if at >= 0 { // otherwise some of its units were refunded
				s.RefundBeside(id, &l, now, takes[i].units, takes[i].receipt, false, lent())
				o.all[at].units = 0
			}
			takes = slices.Delete(takes, i, i+1)
		case "collect":
			s.collectAll(false, nil)
		case "fail over":
			var c Count
			s.Export(id, now, Mark{}, &c)
			s = newStore(10, 1)
			s.Import(id, sendCount(t, &c), now, 0)
			takes = nil
			for _, h := range leases {
				failedOver = max(failedOver, h.closes)
			}
		}
		checkStore(t, s)
		for _, ahead := range []int64{0, 1, int64(time.Millisecond), int64(10 * time.Millisecond), int64(l.Per) / 300, int64(l.Per) / 2} {
			o.checkCovered(t, s, id, now+ahead, leases)
		}
		for _, h := range leases {
			o.checkCovered(t, s, id, h.closes-1, leases)
			o.checkCovered(t, s, id, h.closes+1, leases)
		}
	}
}

// checkCovered requires that a store counts at least the units that were spent or may still be
// spent at the time now, if no other operation happens until then.
func (o *truth) checkCovered(t *rapid.T, s *Store, id ID, now int64, leases []held) {
	v, units, l := storedCount(s, id, o.l, now)
	used := rat(int64(units))
	if l.IsBucket() {
		used = plus(rat(int64(v.x)), ratio(int64(v.y), int64(l.per())))
	}
	most := o.used(now, v.at)
	for _, h := range leases {
		if h.closes > now {
			most = plus(most, rat(h.rest))
		}
	}
	require.GreaterOrEqual(t, used.Cmp(most), 0, "%v counts %v, but %v were spent or may be spent", l.Algorithm, used, most)
}

// storedCount returns the count of an ID in a store.
func storedCount(s *Store, id ID, l *Limit, now int64) (v cell, used uint64, judge *Limit) {
	sh, h := s.locate(id)
	c, l := sh.lookup(id, h, &s.placement, l, now)
	if c == nil {
		return cell{at: now}, 0, l
	}
	g := open(sh.logOf(l, c))
	v, used = l.advance(c.cell, &g, now)
	return v, used, l
}

func TestLendLimitsUnitsAndTerm(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name  string
		limit Limit
		used  int64
		after time.Duration // time of the first lease after the take
		want  Lease
		least time.Duration
		lent  Lease
	}{
		{"wanted units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 0, 0, Lease{50, 100 * ms}, 100 * ms, Lease{50, 100 * ms}},
		{"at most an eighth of the remaining units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 840, 0, Lease{50, 100 * ms}, 100 * ms, Lease{20, 100 * ms}},
		{"no lease with few remaining units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 990, 0, Lease{50, 100 * ms}, 100 * ms, Lease{}},
		{"shorter term at the end of a window, with fewer units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 1, 950 * ms, Lease{100, 100 * ms}, 100 * ms, Lease{49, 50*ms - 1}},
		{"term shorter than least, with fewer units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 1, 950 * ms, Lease{100, 500 * ms}, 100 * ms, Lease{49, 50*ms - 1}},
		{"term longer than least, with all units", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 1, 850 * ms, Lease{100, 500 * ms}, 100 * ms, Lease{100, 150*ms - 1}},
		{"no lease without least", Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Second}, 0, 0, Lease{50, 100 * ms}, 0, Lease{}},
		{"no lease just before the end of a window", Limit{Algorithm: SlidingWindow, Rate: 1000, Per: time.Second}, 1, 999 * ms, Lease{100, 100 * ms}, 100 * ms, Lease{}},
		{"shorter term at the end of a sliding window", Limit{Algorithm: SlidingWindow, Rate: 1000, Per: time.Second}, 100, 1950 * ms, Lease{100, 100 * ms}, 100 * ms, Lease{49, 50*ms - 1}},
		{"log at most a 256th of Per ahead", Limit{Algorithm: SlidingLog, Rate: 1000, Per: 2560 * ms}, 0, 0, Lease{100, 100 * ms}, 100 * ms, Lease{10, 10 * ms}},
		{"term in which a 32nd of the capacity drains", Limit{Algorithm: LeakyBucket, Rate: 1000, Per: time.Second, Burst: 320}, 0, 0, Lease{100, 100 * ms}, 100 * ms, Lease{10, 10 * ms}},
		{"no lease of a limit with few units", Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Second}, 0, 0, Lease{5, 100 * ms}, 100 * ms, Lease{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, id := newStore(10, 1), ID{1, 2}
			if test.used > 0 {
				require.True(t, s.Take(id, &test.limit, origin, test.used).Allowed)
			}
			var r Result
			now := origin + int64(test.after)
			require.Equal(t, test.lent, s.Lend(id, &test.limit, now, 0, test.want, test.least, Lease{}, &r))
			require.True(t, r.Allowed)
		})
	}
}

// A crash of the owner loses the uncollected units, which no replica has. Leases must not raise
// them above a sixteenth of the capacity.
func TestLendingStaysWithinTheUncollectedLimit(t *testing.T) {
	l := Limit{Algorithm: FixedWindow, Rate: 1600, Per: time.Minute}
	s, id := newStore(10, 1), ID{1, 2}
	s.Track(1, origin, nil)
	lend := func() int64 {
		var r Result
		return s.Lend(id, &l, origin, 1, Lease{80, 100 * time.Millisecond}, 100*time.Millisecond, Lease{}, &r).Units
	}
	require.EqualValues(t, 80, lend())
	require.EqualValues(t, 18, lend(), "100 are a sixteenth")
	require.Zero(t, lend())
	s.collectAll(true, nil)
	require.EqualValues(t, 80, lend())
}

// A refund without a receipt skips as many of the newest units as are lent. If the skipped units
// are newer than the entry of the lease in a log, the refund removes units from that entry.
func TestReturnedLeaseIsCompleteDespiteRefund(t *testing.T) {
	for _, algorithm := range []Algorithm{SlidingWindow, FixedWindow, SlidingLog} {
		t.Run(algorithm.String(), func(t *testing.T) {
			l := Limit{Algorithm: algorithm, Rate: 6400, Per: time.Minute}
			s, id := newStore(10, 1), ID{1, 2}
			used := func(now int64) int64 { return usedOf(s, id, now) }
			var r Result
			lent := s.Lend(id, &l, origin, 0, Lease{20, 100 * time.Millisecond}, 100*time.Millisecond, Lease{}, &r)
			require.EqualValues(t, 20, lent.Units)
			now := origin + int64(200*time.Millisecond)
			s.Take(id, &l, now, 25)
			require.True(t, s.RefundBeside(id, &l, now, 15, 0, false, lent))
			require.EqualValues(t, 30, used(now))
			s.Return(id, &l, now, 20, r.Receipt, Lease{})
			require.EqualValues(t, 10, used(now), "taken and not refunded")
			late := now + int64(2*l.Per)
			s.Take(id, &l, late, 5)
			s.Return(id, &l, late, 1, r.Receipt, Lease{})
			require.EqualValues(t, 5, used(late), "expired units of a lease are not refunded")
		})
	}
}

package bucket

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"sort"
)

// The oracles implement the definitions of the algorithms: they keep lists of all admissions,
// or rationals, and do not save time or memory.

type oracle interface {
	// used returns the number of units that count at the given time.
	used(now int64) *big.Rat
	// spend adds n units and returns the receipt.
	spend(now, n int64) Receipt
	refund(now, n int64, r Receipt, onlyIfLast bool) bool
	// debitAt adds n units to the units of the receipt, and reports whether the units of the
	// receipt still count.
	debitAt(now, n int64, r Receipt) bool
}

func newOracle(l *Limit) oracle {
	switch l.Algorithm {
	case FixedWindow:
		return &fixedOracle{l: l}
	case SlidingLog:
		return &logOracle{l: l}
	case TokenBucket, LeakyBucket:
		return &levelOracle{l: l, level: new(big.Rat)}
	}
	return &slidingOracle{l: l}
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// ceil rounds up, and limits the result to the largest int64.
func ceil(r *big.Rat) int64 {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return q.Int64()
}

// elapsed returns now − at without overflow, and never below zero.
func elapsed(at, now int64) *big.Rat {
	if now <= at {
		return new(big.Rat)
	}
	return minus(rat(now), rat(at))
}

type admission struct{ t, units int64 }

func sum(list []admission) (units int64) {
	for _, a := range list {
		units += a.units
	}
	return units
}

// fixedOracle keeps a window and the list of its admissions.
type fixedOracle struct {
	l     *Limit
	start int64
	in    []admission
}

func (o *fixedOracle) windowAt(now int64) (start int64, in []admission) {
	start, in = o.start, slices.Clone(o.in)
	for sum(in) > 0 && elapsed(start, now).Cmp(rat(int64(o.l.Per))) >= 0 {
		start += int64(o.l.Per)
		debt := min(max(sum(in)-o.l.Rate, 0), o.l.Rate)
		in = []admission{{start, debt}}
	}
	if sum(in) == 0 {
		return now, nil
	}
	return start, in
}

func (o *fixedOracle) used(now int64) *big.Rat {
	_, in := o.windowAt(now)
	return rat(sum(in))
}

func (o *fixedOracle) spend(now, n int64) Receipt {
	o.start, o.in = o.windowAt(now)
	o.in = append(o.in, admission{now, n})
	return Receipt(o.start)
}

func (o *fixedOracle) refund(now, n int64, r Receipt, _ bool) bool {
	start, in := o.windowAt(now)
	if r != 0 && int64(r) != start {
		return false
	}
	n = min(n, sum(in))
	if n == 0 {
		return false
	}
	o.start, o.in = start, append(in, admission{now, -n})
	return true
}

func (o *fixedOracle) debitAt(now, n int64, r Receipt) bool {
	start, in := o.windowAt(now)
	if sum(in) == 0 {
		start = min(int64(r), now)
		if elapsed(start, now).Cmp(rat(int64(o.l.Per))) >= 0 {
			return false
		}
	} else if int64(r) != start {
		return false
	}
	o.start, o.in = start, append(in, admission{now, n})
	return true
}

// slidingOracle keeps every admission under the start of its window. The units of the
// previous window are assumed to be evenly spread, each at its own time.
type slidingOracle struct {
	l     *Limit
	start int64
	all   []admission
}

func (o *slidingOracle) unitsIn(start int64) (units int64) {
	for _, a := range o.all {
		if a.t == start {
			units += a.units
		}
	}
	return units
}

// counting returns the units that count at the time now, if the open window began at the time start.
func (o *slidingOracle) counting(start, now int64) int64 {
	per, before := int64(o.l.Per), o.unitsIn(start-int64(o.l.Per))
	now = max(now, start)
	expired := sort.Search(int(before), func(k int) bool {
		after := new(big.Int).Mul(big.NewInt(int64(k)), big.NewInt(per))
		t := start - per + after.Div(after, big.NewInt(before)).Int64() // time of the k-th unit
		return elapsed(t, now).Cmp(rat(per)) < 0
	})
	return before - int64(expired) + o.unitsIn(start)
}

// alignedStart returns the start of a window that has no previous window.
func (o *slidingOracle) alignedStart(now int64) int64 {
	if o.l.Start == 0 {
		return now
	}
	into := new(big.Int).Sub(big.NewInt(now), big.NewInt(o.l.Start))
	return now - into.Mod(into, big.NewInt(int64(o.l.Per))).Int64()
}

// windowAt returns the start of the window at the time now. The open window continues while any units
// of it or of the previous window count. Otherwise a new window starts.
func (o *slidingOracle) windowAt(now int64) int64 {
	per := int64(o.l.Per)
	start := o.start
	for range 2 {
		if elapsed(start, now).Cmp(rat(per)) >= 0 {
			start += per
		}
	}
	if elapsed(start, now).Cmp(rat(per)) >= 0 || o.counting(start, now) == 0 {
		return o.alignedStart(now)
	}
	return start
}

func (o *slidingOracle) used(now int64) *big.Rat {
	start := o.windowAt(now)
	if len(o.all) == 0 || start != o.start && start != o.start+int64(o.l.Per) {
		return new(big.Rat)
	}
	return rat(o.counting(start, now))
}

func (o *slidingOracle) spend(now, n int64) Receipt {
	start := o.windowAt(now)
	if start != o.start && start != o.start+int64(o.l.Per) || o.used(now).Sign() == 0 {
		o.all = nil
	}
	o.start = start
	o.all = append(o.all, admission{start, n})
	return Receipt(start)
}

func (o *slidingOracle) refund(now, n int64, r Receipt, onlyIfLast bool) bool {
	if o.used(now).Sign() == 0 {
		return false
	}
	start, per := o.windowAt(now), int64(o.l.Per)
	gave := false
	for _, window := range []int64{start, start - per} {
		if r != 0 && int64(r) != window {
			continue
		}
		if window != start && onlyIfLast && o.unitsIn(start) > 0 {
			continue
		}
		k := min(n, o.unitsIn(window))
		if k > 0 {
			o.all = append(o.all, admission{window, -k})
			n -= k
			gave = true
		}
	}
	if gave {
		o.start = start
	}
	return gave
}

func (o *slidingOracle) debitAt(now, n int64, r Receipt) bool {
	start, per := o.windowAt(now), int64(o.l.Per)
	if o.used(now).Sign() == 0 {
		at := min(int64(r), now)
		e := elapsed(at, now)
		switch {
		case o.alignedStart(at) != at || e.Cmp(plus(rat(per), rat(per))) >= 0:
			return false
		case e.Cmp(rat(per)) >= 0:
			o.start = at + per
		default:
			o.start = at
		}
		o.all = []admission{{at, n}}
		return true
	}
	if int64(r) != start && int64(r) != start-per {
		return false
	}
	if n > 0 {
		o.start = start
		o.all = append(o.all, admission{int64(r), n})
	}
	return true
}

// logOracle keeps every admission.
type logOracle struct {
	l   *Limit
	all []admission
}

func (o *logOracle) latest() int64 {
	if len(o.all) == 0 {
		return math.MinInt64
	}
	return o.all[len(o.all)-1].t
}

func (o *logOracle) live(now int64) (list []admission) {
	for _, a := range o.all {
		if elapsed(a.t, now).Cmp(rat(int64(o.l.Per))) < 0 {
			list = append(list, a)
		}
	}
	return list
}

func (o *logOracle) used(now int64) *big.Rat { return rat(sum(o.live(now))) }

func (o *logOracle) spend(now, n int64) Receipt {
	if o.all = o.live(now); len(o.all) > 0 {
		now = max(now, o.latest())
	}
	if n > 0 {
		o.all = append(o.all, admission{now, n})
	}
	return Receipt(now)
}

// forget removes the oldest units.
func (o *logOracle) forget(n int64) {
	for n > 0 {
		k := min(n, o.all[0].units)
		n -= k
		if o.all[0].units -= k; o.all[0].units == 0 {
			o.all = o.all[1:]
		}
	}
}

func (o *logOracle) refund(now, n int64, r Receipt, onlyIfLast bool) bool {
	all := o.live(now)
	if onlyIfLast && (len(all) == 0 || all[len(all)-1].t != int64(r)) {
		return false
	}
	gave := false
	for i := range slices.Backward(all) {
		if r != 0 && all[i].t != int64(r) {
			continue
		}
		k := min(n, all[i].units)
		all[i].units -= k
		n -= k
		gave = gave || k > 0
	}
	if gave {
		o.all = slices.DeleteFunc(all, func(a admission) bool { return a.units == 0 })
	}
	return gave
}

func (o *logOracle) debitAt(now, n int64, r Receipt) bool {
	all, t := o.live(now), int64(r)
	switch latest := o.latest(); {
	case len(all) == 0:
		t = min(t, now)
	case t > latest:
		t = max(latest, min(t, now))
	}
	if elapsed(t, now).Cmp(rat(int64(o.l.Per))) >= 0 {
		return false
	}
	o.all = append(all, admission{t, n})
	slices.SortStableFunc(o.all, func(a, b admission) int { return cmp.Compare(a.t, b.t) })
	return true
}

// levelOracle keeps a rational level.
type levelOracle struct {
	l     *Limit
	now   int64
	level *big.Rat
}

func (o *levelOracle) perNano() *big.Rat { return ratio(o.l.Rate, int64(o.l.Per)) }

func (o *levelOracle) used(now int64) *big.Rat {
	level := minus(o.level, times(elapsed(o.now, now), o.perNano()))
	if level.Sign() < 0 {
		return new(big.Rat)
	}
	return level
}

func (o *levelOracle) advance(now int64) {
	level := o.used(now)
	if o.now = max(now, o.now); level.Sign() == 0 {
		o.now = now
	}
	o.level = level
}

func (o *levelOracle) spend(now, n int64) Receipt {
	o.advance(now)
	o.level = plus(o.level, rat(n))
	return o.emptyAt()
}

func (o *levelOracle) emptyAt() Receipt {
	if o.level.Sign() == 0 {
		return Receipt(o.now)
	}
	if o.l.Rate == 0 {
		return math.MaxInt64
	}
	return Receipt(ceil(plus(rat(o.now), times(o.level, ratio(int64(o.l.Per), o.l.Rate)))))
}

func (o *levelOracle) refund(now, n int64, r Receipt, onlyIfLast bool) bool {
	was := *o
	o.advance(now)
	last := r == o.emptyAt()
	give := least(rat(n), o.level)
	if r != 0 && o.l.Rate > 0 && (!last || o.l.Rate > int64(o.l.Per)) {
		left := minus(elapsed(o.now, int64(r)), rat(1))
		if left.Sign() < 0 {
			left.SetInt64(0)
		}
		give = least(give, times(left, o.perNano()))
	}
	if give.Sign() == 0 || onlyIfLast && !last {
		*o = was
		return false
	}
	o.level = minus(o.level, give)
	return true
}

func (o *levelOracle) debitAt(now, n int64, _ Receipt) bool {
	o.spend(now, n)
	return true
}

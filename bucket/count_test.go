package bucket

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// count is a cell with its log and its limit.
type count struct {
	*Limit
	c cell
	g *log
}

func newCount(l Limit) *count {
	k := &count{Limit: &l}
	if l.Algorithm == SlidingLog {
		k.g = new(log)
	}
	return k
}

func (k *count) takeUnits(now, units int64) Result { return k.Limit.takeUnits(&k.c, k.g, now, units) }
func (k *count) debit(now, units int64) Result {
	r, _ := k.Limit.debit(&k.c, k.g, now, units)
	return r
}

func (k *count) debitAt(now, units int64, r Receipt) (Result, int64) {
	return k.Limit.debitSpent(&k.c, k.g, now, units, Spent{Receipt: r})
}

func (k *count) peek(now, units int64) Result { return k.Limit.peek(&k.c, k.g, now, units) }
func (k *count) recoveryTime() int64          { return k.Limit.recoveryTime(&k.c) }
func (k *count) refund(now, units int64, r Receipt, onlyIfLast bool) bool {
	_, gave := k.Limit.refund(&k.c, k.g, now, units, r, onlyIfLast, Lease{})
	return gave
}

func (k *count) convert(to Limit, now int64) {
	if k.g == nil && to.Algorithm == SlidingLog {
		k.g = new(log)
	}
	to.convert(k.Limit, &k.c, k.g, now)
	if k.Limit = &to; to.Algorithm != SlidingLog {
		k.g = nil
	}
}

// used returns the number of units that count at the time now.
func (k *count) used(now int64) int64 {
	h := open(k.g)
	_, used := k.advance(k.c, &h, now)
	return int64(used)
}

func (k *count) clone() *count {
	copied := *k
	if k.g != nil {
		copied.g = &log{buf: slices.Clone(k.g.buf), head: k.g.head}
	}
	return &copied
}

var algorithms = []Algorithm{SlidingWindow, SlidingLog, FixedWindow, TokenBucket, LeakyBucket}

// origin is a time in this century.
const origin = int64(1_800_000_000_000_000_000)

func drawLimit(t *rapid.T) Limit {
	l := Limit{
		Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		Rate:      rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, maxUnits), rapid.Just(int64(maxUnits))).Draw(t, "rate"),
		Per: time.Duration(rapid.OneOf(
			rapid.Int64Range(1, 12), // so short that every step reaches the start or end of a window
			rapid.SampledFrom([]int64{int64(minPer), int64(time.Second), int64(time.Minute) + 1, int64(maxPer)}),
			rapid.Int64Range(int64(minPer), int64(maxPer)),
		).Draw(t, "per")),
	}
	if l.Algorithm == SlidingWindow && rapid.Bool().Draw(t, "aligned") {
		l.Start = rapid.Int64Range(1, maxStart).Draw(t, "start")
	}
	if l.Algorithm.isBucket() {
		l.Burst = rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(1, maxUnits)).Draw(t, "burst")
	}
	return l
}

func drawUnits(t *rapid.T, l *Limit) int64 {
	return rapid.OneOf(
		rapid.Int64Range(1, 3),
		rapid.Int64Range(1, l.Capacity()),
		rapid.Just(l.Capacity()),
		rapid.Just(l.Capacity()/2+1),
		rapid.Just(l.Capacity()+1),
	).Draw(t, "units")
}

func drawStep(t *rapid.T, l *Limit) int64 {
	per := int64(l.Per)
	return rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(-3, 3),
		rapid.Int64Range(0, per/5+1),
		rapid.Int64Range(0, per),
		rapid.SampledFrom([]int64{per - 1, per, per + 1, 2*per - 1, 2 * per, -per, per / max(l.Rate, 1)}),
		rapid.Int64Range(-per, 3*per),
	).Draw(t, "step")
}

// move returns now + step, limited to the range of int64.
func move(now, step int64) int64 {
	if step > 0 {
		return after(now, uint64(step))
	}
	if now < math.MinInt64-step {
		return math.MinInt64
	}
	return now + step
}

func agreesWithOracle(t *rapid.T) {
	l := drawLimit(t)
	k, o := newCount(l), newOracle(&l)
	now := rapid.SampledFrom([]int64{origin, origin + 12_345_678_901, 1, -5}).Draw(t, "now")
	capacity := l.Capacity()
	var receipts []Receipt
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		now = move(now, drawStep(t, &l))
		units := drawUnits(t, &l)
		before := o.used(now)
		used := ceil(before)
		require.Equal(t, used, k.used(now), "used")
		fits := used+units <= capacity
		switch op := rapid.SampledFrom([]string{"take", "take", "take", "take", "peek", "debit", "debit at", "refund"}).Draw(t, "op"); op {
		case "take":
			checkRetryAfter(t, k, now, units)
			r := k.takeUnits(now, units)
			require.Equal(t, fits, r.Allowed, "take")
			if !fits && units <= capacity {
				checkGrantedAt(t, o, &l, now, units, r)
			}
			require.Equal(t, capacity, r.Limit)
			if fits {
				require.Equal(t, o.spend(now, units), r.Receipt, "receipt")
				receipts = append(receipts, r.Receipt)
				used += units
			}
			checkWhole(t, o, &l, now, units, r)
			require.Equal(t, max(capacity-used, 0), r.Remaining, "remaining")
		case "peek":
			was := k.clone()
			r := k.peek(now, units)
			require.Equal(t, was, k.clone(), "a peek changes nothing")
			require.Equal(t, fits, r.Allowed, "peek")
			checkWhole(t, o, &l, now, units, r)
			require.Equal(t, max(capacity-used, 0), r.Remaining, "remaining")
		case "debit":
			r := k.debit(now, units)
			spent := min(units, max(2*capacity-used, 0))
			if log, ok := o.(*logOracle); ok {
				require.Equal(t, o.spend(now, min(units, 2*capacity)), r.Receipt, "receipt")
				log.forget(ceil(o.used(now)) - used - spent)
			} else {
				require.Equal(t, o.spend(now, spent), r.Receipt, "receipt")
			}
			receipts = append(receipts, r.Receipt)
			checkWhole(t, o, &l, now, 1, r)
			require.Equal(t, used+units <= capacity, r.Allowed, "a debt is no admission")
			require.Equal(t, r.Allowed, r.RetryAfter == 0)
			if !r.Allowed {
				checkGrantedAt(t, o, &l, now, 1, r)
			}
			require.Equal(t, max(capacity-used-spent, 0), r.Remaining, "remaining")
			require.LessOrEqual(t, k.used(now), max(used, 2*capacity), "a debt never exceeds one capacity")
		case "debit at":
			if len(receipts) == 0 {
				continue
			}
			receipt := rapid.SampledFrom(append(receipts, receipts[len(receipts)-1]+1)).Draw(t, "receipt")
			if receipt == 0 {
				continue // the receipt of the first instant of 1970, which means no receipt
			}
			spent := min(units, max(2*capacity-used, 0))
			if window, ok := o.(*slidingOracle); ok && int64(receipt) != window.windowAt(now) {
				spent = min(spent, max(2*capacity-window.unitsIn(window.windowAt(now)-int64(l.Per)), 0))
			}
			log, logs := o.(*logOracle)
			if logs {
				spent = min(units, 2*capacity)
			}
			if used == 0 {
				spent = min(units, 2*capacity)
			}
			was := k.clone()
			counts := o.debitAt(now, spent, receipt)
			if logs && counts {
				log.forget(max(0, ceil(o.used(now))-max(used, 2*capacity)))
			}
			r, counted := k.debitAt(now, units, receipt)
			if !counts {
				require.Zero(t, counted)
				require.False(t, r.Allowed)
				require.Equal(t, was, k.clone(), "an ended window is not debited")
				continue
			}
			require.Equal(t, spent, counted)
			checkWhole(t, o, &l, now, 1, r)
			used = ceil(o.used(now))
			require.Equal(t, spent == units && used <= capacity, r.Allowed)
			require.Equal(t, r.Allowed || used < capacity, r.RetryAfter == 0, "RetryAfter is zero if there is room")
			if r.RetryAfter > 0 {
				checkGrantedAt(t, o, &l, now, 1, r)
			}
			require.Equal(t, max(capacity-used, 0), r.Remaining, "remaining")
			require.LessOrEqual(t, k.used(now), max(used, 2*capacity), "a debt never exceeds one capacity")
		case "refund":
			receipt := Receipt(0)
			if len(receipts) > 0 {
				receipt = rapid.SampledFrom(append(receipts, 0, receipts[len(receipts)-1]+1)).Draw(t, "receipt")
			}
			onlyIfLast := receipt != 0 && rapid.Bool().Draw(t, "onlyIfLast")
			want := o.refund(now, units, receipt, onlyIfLast)
			require.Equal(t, want, k.refund(now, units, receipt, onlyIfLast), "refund")
			if !want {
				require.Equal(t, before, o.used(now))
			}
			require.LessOrEqual(t, k.used(now), used, "a refund never adds units")
		}
		require.Equal(t, ceil(o.used(now)), k.used(now), "used afterwards")
		checkReset(t, k, now)
	}
}

// checkGrantedAt requires that, according to the oracle, there is room for units at the
// RetryAfter of a denial or a debt, and not one nanosecond earlier.
func checkGrantedAt(t *rapid.T, o oracle, l *Limit, now, units int64, r Result) {
	require.GreaterOrEqual(t, r.ResetAfter, r.RetryAfter)
	then := after(now, uint64(r.RetryAfter))
	if then == math.MaxInt64 || r.RetryAfter == math.MaxInt64 {
		return
	}
	most := l.Capacity() - units
	require.Greater(t, ceil(o.used(then-1)), most, "%+v grants %d units before RetryAfter of %+v", l, units, r)
	require.LessOrEqual(t, ceil(o.used(then)), most, "%+v does not grant %d units at RetryAfter of %+v", l, units, r)
}

// checkWhole requires that, according to the oracle, the whole limit is available at the
// ResetAfter of a result, and not one nanosecond earlier. It must be called before o changes again.
// The ResetAfter of an ask of more units than the capacity is at least its RetryAfter.
func checkWhole(t *rapid.T, o oracle, l *Limit, now, units int64, r Result) {
	then := after(now, uint64(r.ResetAfter))
	if then == math.MaxInt64 || r.ResetAfter == math.MaxInt64 {
		return
	}
	require.Zero(t, ceil(o.used(then)), "%+v has used units at ResetAfter of %+v", l, r)
	if r.ResetAfter > 0 && (r.Allowed || units <= l.Capacity()) {
		require.Positive(t, ceil(o.used(then-1)), "%+v is whole before ResetAfter of %+v", l, r)
	}
}

// checkRetryAfter checks RetryAfter on copies of the count: the same ask must be admitted at
// RetryAfter, and denied one nanosecond earlier.
func checkRetryAfter(t require.TestingT, k *count, now, units int64) {
	r := k.clone().takeUnits(now, units)
	require.Equal(t, r.RetryAfter, k.peek(now, units).RetryAfter)
	switch {
	case r.Allowed:
		require.Zero(t, r.RetryAfter)
	case units > k.Capacity():
		require.Equal(t, k.Per, r.RetryAfter)
	default:
		require.Positive(t, r.RetryAfter)
		if then := after(now, uint64(r.RetryAfter)); then < math.MaxInt64 && r.RetryAfter < math.MaxInt64 {
			require.False(t, k.clone().takeUnits(then-1, units).Allowed, "%+v admits %d before RetryAfter %d", k, units, r.RetryAfter)
			require.True(t, k.clone().takeUnits(then, units).Allowed, "%+v denies %d at RetryAfter %d", k, units, r.RetryAfter)
		}
	}
}

// checkReset checks recoveryTime: no units are used at that time, and some units are used one
// nanosecond earlier. ResetAfter must end at that time.
func checkReset(t require.TestingT, k *count, now int64) {
	r := k.peek(now, 1)
	then := k.recoveryTime()
	if k.used(now) == 0 {
		require.Zero(t, r.ResetAfter)
		require.LessOrEqual(t, then, now)
		return
	}
	require.Positive(t, r.ResetAfter)
	require.GreaterOrEqual(t, r.ResetAfter, r.RetryAfter)
	if timeSince(now, then) > math.MaxInt64 {
		return // the time from now to then does not fit in a Duration
	}
	require.Equal(t, then, after(now, uint64(r.ResetAfter)))
	if then < math.MaxInt64 {
		require.Zero(t, k.used(then))
		require.Positive(t, k.used(then-1))
		require.Equal(t, newCount(*k.Limit).takeUnits(then, 1), k.clone().takeUnits(then, 1), "an empty count is equivalent to no count")
	}
}

func TestEveryAlgorithmAgreesWithItsOracle(t *testing.T) { rapid.Check(t, agreesWithOracle) }

func FuzzTake(f *testing.F) { f.Fuzz(rapid.MakeFuzz(agreesWithOracle)) }

func TestExtremeValuesNeitherPanicNorOverflow(t *testing.T) { rapid.Check(t, nothingPanics) }

func FuzzLogBytes(f *testing.F) { f.Fuzz(rapid.MakeFuzz(nothingPanics)) }

func nothingPanics(t *rapid.T) {
	extremes := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, 1 << 32, maxUnits, math.MaxInt64 - 1, math.MaxInt64}
	anyInt := rapid.OneOf(rapid.SampledFrom(extremes), rapid.Int64())
	drawAny := func() Limit {
		return Limit{
			Algorithm: Algorithm(rapid.Uint8Range(0, 7).Draw(t, "algorithm")),
			Rate:      anyInt.Draw(t, "rate"),
			Per:       time.Duration(anyInt.Draw(t, "per")),
			Burst:     anyInt.Draw(t, "burst"),
		}
	}
	l := drawAny()
	k := newCount(l)
	k.c = cell{anyInt.Draw(t, "at"), uint64(anyInt.Draw(t, "x")), uint64(anyInt.Draw(t, "y"))}
	if k.g != nil {
		k.g.buf = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "log")
		k.g.head = rapid.IntRange(0, len(k.g.buf)).Draw(t, "head")
	}
	for range 10 {
		now, units := anyInt.Draw(t, "now"), anyInt.Draw(t, "units")
		for _, r := range []Result{k.peek(now, units), k.takeUnits(now, units), k.debit(now, units)} {
			require.GreaterOrEqual(t, r.Remaining, int64(0))
			require.GreaterOrEqual(t, r.RetryAfter, time.Duration(0))
			require.GreaterOrEqual(t, r.ResetAfter, time.Duration(0))
		}
		require.GreaterOrEqual(t, k.used(now), int64(0))
		k.recoveryTime()
		receipt := Receipt(anyInt.Draw(t, "receipt"))
		k.refund(now, units, receipt, rapid.Bool().Draw(t, "onlyIfLast"))
		at := Spent{Receipt: receipt, Near: anyInt.Draw(t, "near")}
		k.Limit.find(k.c, k.g, now, at)
		k.Limit.debitSpent(&k.c, k.g, now, units, at)
		k.convert(drawAny(), now)
	}
}

func TestEmptyShareDeniesWithRetryAfterPer(t *testing.T) {
	for _, a := range algorithms {
		k := newCount(Limit{Algorithm: a, Rate: 0, Per: time.Second})
		r := k.takeUnits(origin, 1)
		require.False(t, r.Allowed, a)
		require.Equal(t, time.Second, r.RetryAfter, a)
		require.Zero(t, r.Limit)
	}
	k := newCount(Limit{Algorithm: TokenBucket, Rate: 33, Per: time.Second, Burst: -1})
	require.Equal(t, Result{RetryAfter: time.Second, ResetAfter: time.Second}, k.takeUnits(origin, 1), "a share of the Rate, without a Burst")

	k = newCount(Limit{Algorithm: TokenBucket, Rate: 0, Per: time.Second, Burst: 2})
	require.True(t, k.takeUnits(origin, 2).Allowed)
	r := k.takeUnits(origin+int64(maxPer), 1)
	require.False(t, r.Allowed, "a Rate of 0 never refills")
	require.Equal(t, time.Second, r.RetryAfter)
	require.Equal(t, time.Duration(math.MaxInt64), r.ResetAfter)
}

package bucket

import (
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// steadyTime returns the time of the k-th ask of a caller that asks steadily, at often times the
// rate, in whole nanoseconds. The argument phase, from 0 to Rate·often − 1, shifts all asks by
// phase/(Rate·often) nanoseconds before the times are rounded down.
func steadyTime(l *Limit, from, often, phase, k int64) int64 {
	hi, lo := bits.Mul64(uint64(k), uint64(l.Per))
	lo, carry := bits.Add64(lo, uint64(phase), 0)
	at, _ := bits.Div64(hi+carry, lo, uint64(l.Rate*often))
	return from + int64(at)
}

// drawSteady returns a limit that grants its rate to any steady caller. A bucket of one unit
// is full again only if the time of a unit is a whole number of nanoseconds.
func drawSteady(t *rapid.T) Limit {
	l := Limit{
		Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		Rate:      rapid.Int64Range(1, 12).Draw(t, "rate"),
		Per: time.Duration(rapid.OneOf(
			rapid.Int64Range(12, 60),
			rapid.SampledFrom([]int64{int64(minPer), int64(time.Second), int64(time.Minute) + 1, int64(24 * time.Hour)}),
		).Draw(t, "per")),
	}
	if l.Algorithm == SlidingWindow && rapid.Bool().Draw(t, "aligned") {
		l.Start = rapid.Int64Range(1, maxStart).Draw(t, "start")
	}
	return l
}

// One caller asks steadily, at a multiple of the rate. Another caller waits for RetryAfter after each denial.
func TestSteadyOrWaitingCallerIsGrantedTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const periods = 5
		l := drawSteady(t)
		steady, waiting := newCount(l), newCount(l)
		often := rapid.Int64Range(1, 12).Draw(t, "often")
		from := origin + rapid.Int64Range(0, int64(l.Per)).Draw(t, "from")
		phase := rapid.Int64Range(0, l.Rate*often-1).Draw(t, "phase")
		granted := int64(0)
		for i := range periods * l.Rate * often {
			if steady.takeUnits(steadyTime(&l, from, often, phase, i), 1).Allowed {
				granted++
			}
		}
		require.GreaterOrEqual(t, granted, periods*l.Rate)
		granted = 0
		for now := from; now < from+periods*int64(l.Per); {
			if r := waiting.takeUnits(now, 1); r.Allowed {
				granted++
			} else {
				now += int64(r.RetryAfter)
			}
		}
		require.GreaterOrEqual(t, granted, periods*l.Rate)
	})
}

// grantsSteadily reports whether a copy of k grants each unit to a caller that asks steadily
// from the given time on.
func grantsSteadily(k *count, from int64) bool {
	k = k.clone()
	for i := range 4 * k.Rate {
		if !k.takeUnits(steadyTime(k.Limit, from, 1, 0, i), 1).Allowed {
			return false
		}
	}
	return true
}

// drawUsed returns a used count, possibly with a debt, and the current time.
func drawUsed(t *rapid.T, l Limit) (k *count, now int64) {
	k, now = newCount(l), origin
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		now += rapid.Int64Range(0, int64(l.Per)/2).Draw(t, "step")
		units := rapid.Int64Range(1, l.Rate).Draw(t, "units")
		switch rapid.SampledFrom([]string{"take", "take", "take", "refund", "debit"}).Draw(t, "op") {
		case "refund":
			k.refund(now, units, 0, false)
		case "debit":
			k.debit(now, units)
		default:
			k.takeUnits(now, units)
		}
	}
	return k, now
}

func TestSteadyCallerIsNeverDeniedAfterReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t, drawSteady(t))
		r := k.peek(now, 1)
		require.True(t, grantsSteadily(k, now+int64(r.ResetAfter)), "%+v at %d: %+v", k.c, now, r)
	})
}

// A caller of a limit of 100 per minute that has spent 50 at once finds 51 units after a minute,
// and all 100 after another 59 seconds.
func TestResetAfterOfSlidingWindowIsExact(t *testing.T) {
	k := newCount(Limit{Algorithm: SlidingWindow, Rate: 100, Per: time.Minute})
	r := k.takeUnits(origin, 50)
	require.Equal(t, 2*time.Minute-time.Minute/50, r.ResetAfter.Round(time.Microsecond))
	require.EqualValues(t, 51, k.peek(origin+int64(time.Minute), 1).Remaining)
	require.EqualValues(t, 99, k.peek(origin+int64(r.ResetAfter)-1, 1).Remaining)
	require.EqualValues(t, 100, k.peek(origin+int64(r.ResetAfter), 1).Remaining)
}

package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestConversionKeepsUsedUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		k := newCount(l)
		now := origin
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += drawStep(t, &l)
			switch units := drawUnits(t, &l); rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				k.debit(now, units)
			case 1, 2:
				to := drawLimit(t)
				used := k.used(now)
				same := k.clone()
				same.convert(*same.Limit, now)
				require.Equal(t, k.c, same.c, "a conversion to the same numbers changes nothing")
				k.convert(to, now)
				l = to
				require.Equal(t, used, k.used(now), "from %+v to %+v", *same.Limit, to)
				if used == 0 {
					require.LessOrEqual(t, k.recoveryTime(), now)
				} else {
					require.Greater(t, k.recoveryTime(), now)
				}
			default:
				checkRetryAfter(t, k, now, units)
				k.takeUnits(now, units)
			}
			checkReset(t, k, now)
		}
	})
}

func TestConversionKeepsWindowsAndLevels(t *testing.T) {
	second := int64(time.Second)
	convert := func(from, to Limit) *count {
		k := newCount(from)
		require.True(t, k.takeUnits(origin, 3).Allowed)
		require.True(t, k.takeUnits(origin+second/2, 3).Allowed)
		k.convert(to, origin+second/2)
		return k
	}
	fixed := Limit{Algorithm: FixedWindow, Rate: 10, Per: time.Second}
	log := Limit{Algorithm: SlidingLog, Rate: 10, Per: time.Second}
	token := Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Minute}

	t.Run("open window under the new Per", func(t *testing.T) {
		to := fixed
		to.Per = 3 * time.Second
		require.Equal(t, origin+3*second, convert(fixed, to).recoveryTime())
		to.Per = 501 * time.Millisecond
		require.Equal(t, origin+501*second/1000, convert(fixed, to).recoveryTime())
		to.Per = 500 * time.Millisecond
		require.Equal(t, origin+second, convert(fixed, to).recoveryTime(), "otherwise the window starts now")
	})
	t.Run("debt of an ended window", func(t *testing.T) {
		named := fixed
		named.Start = origin
		for _, from := range []Limit{fixed, named} {
			for _, now := range []int64{origin + second, origin + 2*second - 1} {
				owes, paid := newCount(from), newCount(from)
				owes.debit(origin, 13)
				paid.debit(origin, 10)
				for _, rate := range []int64{1, 3, 12, 100} {
					to := from
					to.Rate = rate
					owing, free := owes.clone(), paid.clone()
					owing.convert(to, now)
					free.convert(to, now)
					require.Equal(t, int64(3), owing.used(now), "to %+v", to)
					require.Zero(t, free.used(now), "to %+v", to)
				}
			}
		}
	})
	t.Run("log within the new Per", func(t *testing.T) {
		to := log
		to.Per = 2 * time.Second
		require.Equal(t, int64(3), convert(log, to).used(origin+2*second))
		to.Per = 400 * time.Millisecond
		require.Equal(t, int64(6), convert(log, to).used(origin+second*9/10-1), "otherwise all units are used now")
		require.Zero(t, convert(log, to).used(origin+second*9/10))
	})
	t.Run("level before and after a new rate", func(t *testing.T) {
		k := newCount(token)
		k.takeUnits(origin, 10)
		to := token
		to.Rate, to.Burst = 60, 10
		k.convert(to, origin+30*second)
		require.Equal(t, int64(5), k.used(origin+30*second))
		require.Equal(t, int64(4), k.used(origin+31*second))
	})
	t.Run("fraction of a bucket", func(t *testing.T) {
		k := newCount(Limit{Algorithm: TokenBucket, Rate: 1, Per: 4 * time.Second, Burst: 10})
		k.takeUnits(origin, 2)
		k.convert(Limit{Algorithm: LeakyBucket, Rate: 1, Per: 8 * time.Second, Burst: 10}, origin+second)
		require.Equal(t, origin+second+14*second, k.recoveryTime(), "1 3/4 units at 8 s each")
	})
	t.Run("clock that steps back", func(t *testing.T) {
		for _, a := range algorithms {
			k := newCount(Limit{Algorithm: a, Rate: 10, Per: time.Second})
			k.takeUnits(origin, 10)
			k.convert(Limit{Algorithm: (a + 1) % 3, Rate: 10, Per: time.Minute}, origin-int64(time.Hour))
			require.GreaterOrEqual(t, k.recoveryTime(), origin+60*second, "%v", a)
		}
	})
	t.Run("bucket converted to a log", func(t *testing.T) {
		k := convert(token, log)
		require.Equal(t, int64(6), k.used(origin+second/2))
		require.Equal(t, origin+second*3/2, k.recoveryTime())
	})
}

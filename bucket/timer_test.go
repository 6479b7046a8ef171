package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var minuteTimer = TimerLimit(time.Minute, time.Millisecond)

func TestTimerEndsAtTheLatestEnd(t *testing.T) {
	const longest = 24 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		s, id, now, end := NewStore(10, Salt{}), ID{1, 2}, int64(time.Hour), int64(0)
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second}).Draw(t, "unit")
		timer := TimerLimit(longest, unit)
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			now += int64(rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, time.Second, time.Hour}).Draw(t, "later"))
			d := time.Duration(rapid.Int64Range(1, int64(longest)).Draw(t, "d"))
			units := max(1, int64(d/unit))
			s.Debit(id, &timer, now, units)
			end = max(end, now+units*int64(unit))
			left := s.RecoversIn(id, now)
			if late := left - time.Duration(end-now); late < 0 || late >= unit {
				t.Fatalf("the timer ends %v after the latest end", late)
			}
		}
	})
}

func TestTimerIsEvictedAsUsedUp(t *testing.T) {
	s := NewStore(1, Salt{})
	s.Debit(ID{1, 1}, &minuteTimer, 0, 60_000)
	s.Take(ID{2, 2}, &Limit{Rate: 1, Per: time.Minute}, 0, 1)
	require.EqualValues(t, 1, s.EvictedUsedUp())
}

package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTimerEndsAtTheLatestEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, id, now, end := NewStore(10, Salt{}), ID{1, 2}, int64(time.Hour), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			now += int64(rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, time.Second, time.Hour}).Draw(t, "later"))
			d := time.Duration(rapid.Int64Range(1, int64(2*LongestTimer)).Draw(t, "d"))
			s.ExtendTimer(id, now, d)
			end = max(end, now+int64(min(d, LongestTimer)))
			left := s.RecoversIn(id, now)
			if late := left - time.Duration(end-now); late < 0 || late > time.Millisecond {
				t.Fatalf("the timer ends %v after the latest end", late)
			}
		}
	})
}

func TestTimerIsEvictedAsUsedUp(t *testing.T) {
	s := NewStore(1, Salt{})
	s.ExtendTimer(ID{1, 1}, 0, time.Minute)
	judge, ok := s.Judge(ID{1, 1})
	require.True(t, ok && judge.IsTimer())
	s.Take(ID{2, 2}, &Limit{Rate: 1, Per: time.Minute}, 0, 1)
	require.EqualValues(t, 1, s.EvictedUsedUp())
	require.False(t, (&Limit{Algorithm: TokenBucket, Rate: 1000, Per: time.Second, Burst: 1}).IsTimer())
}

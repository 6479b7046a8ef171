package detect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

func TestSilenceCountsAtMostObservedTime(t *testing.T) {
	start := time.Unix(1000, 0)
	rapid.Check(t, func(t *rapid.T) {
		var s Silence
		s.Restart(start)
		now, planned := start, time.Duration(0)
		const limit = time.Second
		for range rapid.IntRange(1, 50).Draw(t, "checks") {
			pace := time.Duration(rapid.IntRange(1, 200).Draw(t, "pace")) * time.Millisecond
			late := time.Duration(rapid.IntRange(0, 2000).Draw(t, "late")) * time.Millisecond
			due := now.Add(pace)
			planned += pace + min(late, DelayTolerance)
			exceeded := s.Check(limit, due, due.Add(late))
			now = due.Add(late)
			if exceeded && planned < limit {
				t.Fatalf("exceeded after checks that observed %v", planned)
			}
			if !exceeded && late <= DelayTolerance && now.Sub(start) == planned && planned >= limit {
				t.Fatalf("not exceeded after %v of checks in time", planned)
			}
		}
	})
}

func TestExtraTimeIsAtMostASecond(t *testing.T) {
	start := time.Unix(1000, 0)
	var d schedulingDelay
	require.Zero(t, d.delay)
	d.record(start, start.Add(time.Minute))
	require.Equal(t, time.Second, d.delay)
	for _, c := range []struct{ own, reported, extra time.Duration }{
		{0, 0, 0},
		{DelayTolerance - 1, DelayTolerance - 1, 0},
		{DelayTolerance, 0, DelayTolerance},
		{0, 300 * time.Millisecond, 300 * time.Millisecond},
		{400 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond},
		{0, time.Hour, time.Second},
	} {
		require.Equal(t, c.extra, ExtraTime(c.own, c.reported))
	}
}

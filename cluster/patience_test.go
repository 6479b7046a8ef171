package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/drawn"
	"github.com/weir-go/weir/internal/patience"
)

func TestNoMoreCountsThanLooksCouldSee(t *testing.T) {
	start := time.Unix(1000, 0)
	rapid.Check(t, func(t *rapid.T) {
		var p patience.Patience
		p.Restart(start)
		now, planned := start, time.Duration(0)
		const most = time.Second
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			pace := time.Duration(rapid.IntRange(1, 200).Draw(t, "pace")) * time.Millisecond
			late := time.Duration(rapid.IntRange(0, 2000).Draw(t, "late")) * time.Millisecond
			due := now.Add(pace)
			planned += pace + min(late, patience.LateBy)
			exhausted := p.Exhausted(most, due, due.Add(late))
			now = due.Add(late)
			if exhausted && planned < most {
				t.Fatalf("exhausted after looks that saw %v", planned)
			}
			if !exhausted && late <= patience.LateBy && now.Sub(start) == planned && planned >= most {
				t.Fatalf("not exhausted after %v of looks in time", planned)
			}
		}
	})
}

func TestLatenessIsAllowedForUpToASecond(t *testing.T) {
	start := time.Unix(1000, 0)
	var l patience.Lateness
	require.Zero(t, l.By())
	l.Looked(start, start.Add(time.Minute))
	require.Equal(t, time.Second, l.By())
	for _, c := range []struct{ own, said, allowed time.Duration }{
		{0, 0, 0},
		{patience.LateBy - 1, patience.LateBy - 1, 0},
		{patience.LateBy, 0, patience.LateBy},
		{0, 300 * time.Millisecond, 300 * time.Millisecond},
		{400 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond},
		{0, time.Hour, time.Second},
	} {
		require.Equal(t, c.allowed, patience.Allowed(c.own, c.said))
	}
}

package weir

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

func TestAllowAllOfOwnedLimitsAllocatesTheDecisionsAlone(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a pool forgets at random")
	}
	n, err := Start(t.Context(), Config{Logger: quiet})
	require.NoError(t, err)
	defer n.Close()
	var asks []Ask
	for i, calendar := range []Calendar{NoCalendar, Day, NoCalendar} {
		l := Limit{Name: fmt.Sprint(i), Algorithm: FixedWindow, Rate: 1_000_000, Calendar: calendar}
		if calendar == NoCalendar {
			l.Per = time.Hour
		}
		limiter, err := n.Limiter(l)
		require.NoError(t, err)
		asks = append(asks, Ask{Limiter: limiter, Key: "k", Shadow: i == 2})
	}
	ctx, ds := t.Context(), make(Decisions, 3)
	require.Zero(t, testing.AllocsPerRun(1000, func() { ds, _ = n.AllowAllInto(ctx, asks, ds) }))
	require.True(t, ds.Allowed())
	require.EqualValues(t, 1, testing.AllocsPerRun(1000, func() { ds, _ = n.AllowAll(ctx, asks...) }))
}

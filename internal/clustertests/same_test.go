package clustertests

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// The decisions of one node and of a cluster of five are the same, even if replicas are being
// sent when the clock is stepped.
func TestOneNodeAndFiveAdmitTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var clock atomic.Int64
		clock.Store(time.Unix(1_800_000_000, 0).UnixNano())
		cfg := weir.Config{Now: func() time.Time { return time.Unix(0, clock.Load()) }, Timeout: 2 * time.Second, Logger: quiet}
		five := newWorldOf(t, 5, false, cfg)
		one, err := weir.Start(t.Context(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, one.Close()) }()
		five.setLinks(weirtest.Link{Latency: 20 * time.Millisecond})
		for _, algorithm := range algorithms {
			l := weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 10, Per: time.Minute}
			alone, err := one.Limiter(l)
			require.NoError(t, err)
			together := five.limiters(t, l)
			for i := range 300 {
				key, units := fmt.Sprint(i%7), int64(1+i%3)
				a, err := alone.AllowN(t.Context(), key, units)
				require.NoError(t, err)
				b, err := together[five.names[i%5]].AllowN(t.Context(), key, units)
				require.NoError(t, err)
				require.Contains(t, []weir.Source{weir.Owner, weir.Forwarded, weir.Pushback}, b.Source)
				a.Source, b.Source = 0, 0
				require.Equal(t, a, b, "%v, ask %d", algorithm, i)
				clock.Add(int64(i%5) * int64(time.Second))
			}
		}
	})
}

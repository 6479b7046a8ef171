package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMillisecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3_600_000, 1<<63 - 1: 9_223_372_036_855,
	} {
		require.Equal(t, want, milliseconds(d), "%v", d)
	}
}

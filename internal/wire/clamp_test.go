package wire

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationStaysWithinItsBound(t *testing.T) {
	const most = time.Second
	for _, c := range []struct {
		got, want time.Duration
	}{
		{clampDuration(uint32(0), time.Microsecond, most), 0},
		{clampDuration(uint32(1), time.Microsecond, most), time.Microsecond},
		{clampDuration(uint32(999_999), time.Microsecond, most), most - time.Microsecond},
		{clampDuration(uint32(1_000_000), time.Microsecond, most), most},
		{clampDuration(uint32(1_000_001), time.Microsecond, most), most},
		{clampDuration(uint32(math.MaxUint32), time.Microsecond, most), most},
		{clampDuration(uint16(math.MaxUint16), time.Millisecond, most), most},
		{clampDuration(uint64(math.MaxUint64), time.Nanosecond, most), most},
		{clampDuration(uint64(1<<63), time.Nanosecond, most), most},
		{clampDuration(uint64(math.MaxUint64), time.Hour, most), most},
		{clampDuration(int64(-1), time.Nanosecond, most), 0},
		{clampDuration(int64(math.MinInt64), time.Nanosecond, most), 0},
		{clampDuration(int64(math.MaxInt64), time.Nanosecond, most), most},
		{clampDuration(uint64(math.MaxUint64), time.Nanosecond, math.MaxInt64), math.MaxInt64},
	} {
		require.Equal(t, c.want, c.got)
	}
}

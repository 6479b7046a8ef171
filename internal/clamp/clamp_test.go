package clamp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADurationStaysWithinItsBound(t *testing.T) {
	const most = time.Second
	for _, c := range []struct {
		got, want time.Duration
	}{
		{Duration(uint32(0), time.Microsecond, most), 0},
		{Duration(uint32(1), time.Microsecond, most), time.Microsecond},
		{Duration(uint32(999_999), time.Microsecond, most), most - time.Microsecond},
		{Duration(uint32(1_000_000), time.Microsecond, most), most},
		{Duration(uint32(1_000_001), time.Microsecond, most), most},
		{Duration(uint32(math.MaxUint32), time.Microsecond, most), most},
		{Duration(uint16(math.MaxUint16), time.Millisecond, most), most},
		{Duration(uint64(math.MaxUint64), time.Nanosecond, most), most},
		{Duration(uint64(1<<63), time.Nanosecond, most), most},
		{Duration(uint64(math.MaxUint64), time.Hour, most), most},
		{Duration(int64(-1), time.Nanosecond, most), 0},
		{Duration(int64(math.MinInt64), time.Nanosecond, most), 0},
		{Duration(int64(math.MaxInt64), time.Nanosecond, most), most},
		{Duration(uint64(math.MaxUint64), time.Nanosecond, math.MaxInt64), math.MaxInt64},
	} {
		require.Equal(t, c.want, c.got)
	}
}

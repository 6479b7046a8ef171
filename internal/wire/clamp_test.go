package wire_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/clamp"
)

func TestADurationStaysWithinItsBound(t *testing.T) {
	const most = time.Second
	for _, c := range []struct {
		got, want time.Duration
	}{
		{clamp.Duration(uint32(0), time.Microsecond, most), 0},
		{clamp.Duration(uint32(1), time.Microsecond, most), time.Microsecond},
		{clamp.Duration(uint32(999_999), time.Microsecond, most), most - time.Microsecond},
		{clamp.Duration(uint32(1_000_000), time.Microsecond, most), most},
		{clamp.Duration(uint32(1_000_001), time.Microsecond, most), most},
		{clamp.Duration(uint32(math.MaxUint32), time.Microsecond, most), most},
		{clamp.Duration(uint16(math.MaxUint16), time.Millisecond, most), most},
		{clamp.Duration(uint64(math.MaxUint64), time.Nanosecond, most), most},
		{clamp.Duration(uint64(1<<63), time.Nanosecond, most), most},
		{clamp.Duration(uint64(math.MaxUint64), time.Hour, most), most},
		{clamp.Duration(int64(-1), time.Nanosecond, most), 0},
		{clamp.Duration(int64(math.MinInt64), time.Nanosecond, most), 0},
		{clamp.Duration(int64(math.MaxInt64), time.Nanosecond, most), most},
		{clamp.Duration(uint64(math.MaxUint64), time.Nanosecond, math.MaxInt64), math.MaxInt64},
	} {
		require.Equal(t, c.want, c.got)
	}
}

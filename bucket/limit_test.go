package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	for _, test := range []struct {
		name     string
		limit    Limit
		messages []string // empty if the limit is valid
	}{
		{"minimum", Limit{Rate: 1, Per: time.Millisecond}, nil},
		{"maximum", Limit{Algorithm: TokenBucket, Rate: maxUnits, Per: maxPer, Burst: maxUnits}, nil},
		{"largest log", Limit{Algorithm: SlidingLog, Rate: 100_000, Per: time.Hour}, nil},
		{"zero limit", Limit{}, []string{"Rate is 0", "Per is 0s"}},
		{"all fields too low", Limit{Algorithm: TokenBucket, Rate: -1, Per: -1, Burst: -1}, []string{"Rate is -1", "Per is -1ns", "Burst is -1"}},
		{"all fields too high", Limit{Algorithm: 9, Rate: math.MaxInt64, Per: math.MaxInt64, Burst: math.MaxInt64},
			[]string{"Algorithm is 9", "Rate is 9223372036854775807", "Per is 2562047h", "Burst is 9223372036854775807"}},
		{"log that is too large", Limit{Algorithm: SlidingLog, Rate: 100_001, Per: time.Hour}, []string{"Rate is 100001"}},
		{"window with a burst", Limit{Algorithm: FixedWindow, Rate: 1, Per: time.Hour, Burst: 1}, []string{"Burst is 1"}},
		{"burst of 101 years", Limit{Algorithm: LeakyBucket, Rate: 1, Per: 365 * 24 * time.Hour, Burst: 101}, []string{"Burst is 101"}},
		{"start of a sliding window", Limit{Rate: 1, Per: time.Hour, Start: origin}, nil},
		{"start of a log", Limit{Algorithm: SlidingLog, Rate: 1, Per: time.Hour, Start: 7}, []string{"Start is 7: only fixed_window and sliding_window"}},
		{"start out of range", Limit{Algorithm: FixedWindow, Rate: 1, Per: time.Hour, Start: 1<<62 + 1}, []string{"Start is 4611686018427387905: it must be from"}},
		{"all but one unit kept", Limit{Algorithm: TokenBucket, Rate: 1, Per: time.Second, Burst: 20, Keep: 19}, nil},
		{"all units kept", Limit{Rate: 20, Per: time.Second, Keep: 20}, []string{"Keep is 20: it must be from 0 to 19 units"}},
		{"fewer than no units kept", Limit{Rate: 20, Per: time.Second, Keep: -1}, []string{"Keep is -1: it must be from 0 to 19 units"}},
		{"a queue that keeps units", Limit{Algorithm: LeakyBucket, Rate: 20, Per: time.Second, Keep: 1}, []string{"Keep is 1: leaky_bucket has a queue"}},
		{"burst of 100 years", Limit{Algorithm: LeakyBucket, Rate: 1, Per: 365 * 24 * time.Hour, Burst: 100}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.limit.Validate()
			if len(test.messages) == 0 {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			for _, message := range test.messages {
				require.ErrorContains(t, err, message)
			}
			require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), len(test.messages))
		})
	}
}

func TestCapacityIsRateOrBurst(t *testing.T) {
	for want, l := range map[int64]Limit{
		5:  {Algorithm: FixedWindow, Rate: 5, Burst: 9},
		9:  {Algorithm: TokenBucket, Rate: 5, Burst: 9},
		7:  {Algorithm: LeakyBucket, Rate: 7},
		0:  {Algorithm: TokenBucket, Rate: 5, Burst: -1},
		11: {Rate: 11},
	} {
		require.Equal(t, want, l.Capacity())
	}
	require.Zero(t, (&Limit{Rate: -1}).Capacity())
}

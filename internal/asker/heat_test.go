package asker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

func someID(rng *rand.Rand) bucket.ID { return bucket.ID{Hi: rng.Uint64(), Lo: rng.Uint64()} }

func TestFrequentKeyIsHot(t *testing.T) {
	for _, test := range []struct {
		name  string
		every time.Duration
		asks  int
		pace  float64 // 0 if the key is not hot
	}{
		{"five asks at once", 0, 5, 0},
		{"six asks at once", 0, 6, 3},
		{"an ask a second, for a minute", time.Second, 60, 0},
		{"two asks a second", time.Second / 2, 120, 0},
		{"six asks a second", time.Second / 6, 360, 6},
		{"a hundred asks a second", time.Second / 100, 1000, 100},
		{"ten thousand asks a second", time.Second / 10_000, 100_000, 10_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h heat
			id, now, pace := bucket.ID{Hi: 1 << 60, Lo: 2}, int64(time.Hour), 0.0
			for range test.asks {
				pace = h.recordAsk(id, now)
				now += int64(test.every)
			}
			require.InDelta(t, test.pace, pace, test.pace/4+0.1)
		})
	}
}

func TestFloodOfKeysHidesNoHotKey(t *testing.T) {
	var h heat
	rng := rand.New(rand.NewPCG(1, 2))
	hot, now := make([]bucket.ID, 1000), int64(time.Hour)
	for i := range hot {
		hot[i] = someID(rng)
	}
	found, asks, floods := 0, 0, 0
	for i := range 400_000 { // for four seconds: 25 asks a second of each hot key, and 75,000 a second of keys that occur once
		now += int64(10 * time.Microsecond)
		if i%4 > 0 {
			if h.recordAsk(someID(rng), now) > 0 {
				floods++
			}
			continue
		}
		pace := h.recordAsk(hot[i/4%len(hot)], now)
		if i > 200_000 {
			asks++
			if pace > 0 {
				found++
			}
		}
	}
	t.Logf("%d of %d asks of hot keys and %d of 300,000 other asks are hot", found, asks, floods)
	require.Greater(t, found, asks*95/100)
	require.Less(t, floods, 300)
}

func TestColdKeyAllocatesNothing(t *testing.T) {
	var h heat
	var i uint64
	h.recordAsk(bucket.ID{}, 1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		h.recordAsk(bucket.ID{Hi: i << 40, Lo: i}, int64(time.Hour))
	}))
}

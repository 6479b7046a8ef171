package weir

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flood is a full node under keys that nobody has seen before.
type flood struct {
	node  *Node
	limit *Limiter
	clock *hand
	seen  int
}

const (
	floodKeys = 2_000
	floodRate = 10
)

func newFlood(t *testing.T, l Limit) *flood {
	f := &flood{clock: newHand()}
	f.node = solo(t, Config{MaxKeys: floodKeys, Now: f.clock.Now, Logger: quiet})
	f.limit = limiter(t, f.node, l)
	return f
}

func floodLimit(a Algorithm) Limit { return Limit{Algorithm: a, Rate: floodRate, Per: time.Hour} }

// deny uses up the limit for keys.
func (f *flood) deny(t *testing.T, keys int) {
	for i := range keys {
		f.use(t, fmt.Sprint("denied ", i), floodRate)
		d, err := f.limit.Allow(t.Context(), fmt.Sprint("denied ", i))
		require.NoError(t, err)
		require.False(t, d.Allowed, "denied %d", i)
	}
}

// fresh has keys asked for that nobody has seen before, each so often. The clock moves
// by so much that no limit gives a unit back meanwhile.
func (f *flood) fresh(t *testing.T, keys, asks int) {
	for i := range keys {
		f.use(t, fmt.Sprint("fresh ", f.seen), asks)
		if f.seen++; i%10 == 0 {
			f.clock.Step(10 * time.Millisecond)
		}
	}
}

func (f *flood) use(t *testing.T, key string, times int) {
	for range times {
		_, err := f.limit.Allow(t.Context(), key)
		require.NoError(t, err)
	}
}

// begunAgain is how many of the keys that were denied are not any more.
func (f *flood) begunAgain(t *testing.T, keys int) (n int) {
	for i := range keys {
		d, err := f.limit.Peek(t.Context(), fmt.Sprint("denied ", i))
		require.NoError(t, err)
		if d.Allowed {
			n++
		}
	}
	return n
}

func TestX(t *testing.T) {
	for _, a := range algorithms[2:3] {
		for _, part := range []int{5, 25, 50, 75, 90, 95} {
			f := newFlood(t, floodLimit(a))
			f.deny(t, floodKeys*part/100)
			f.fresh(t, 200_000, 1)
			f2 := newFlood(t, floodLimit(a))
			f2.fresh(t, 10_000, 1)
			f2.deny(t, floodKeys*part/100)
			f2.fresh(t, 200_000, 1)
			fmt.Println(a, part, f.begunAgain(t, floodKeys*part/100), f.node.Stats().Evicted, f.node.counts.EvictedUsedUp(), f2.begunAgain(t, floodKeys*part/100), f2.node.counts.EvictedUsedUp())
		}
		for _, n := range []int{1000, 1400, 1600, 1700, 1800, 1900, 2000, 4000, 10000, 50000} {
			f := newFlood(t, floodLimit(a))
			f.deny(t, 100)
			f.fresh(t, 10000, 1)
			f.fresh(t, n, 10)
			fmt.Println(a, n, f.begunAgain(t, 100), f.node.Stats().Evicted, f.node.counts.EvictedUsedUp())
		}
	}
}

package weir

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// flooded is a node that is asked for more keys than it has room for.
type flooded struct {
	node  *Node
	limit *Limiter
	clock *hand
	seen  int
}

const (
	floodedKeys = 2_000 // MaxKeys
	floodedRate = 10
)

// newFlooded starts such a node. The seed determines the places of the counts in memory, which
// differ between processes. The number of counts that a flood evicts depends a little on these
// places.
func newFlooded(t *testing.T, a Algorithm, seed byte) *flooded {
	f := &flooded{clock: newHand()}
	f.node = solo(t, Config{MaxKeys: floodedKeys, Now: f.clock.Now, Logger: quiet, Rand: rand.NewChaCha8([32]byte{seed})})
	f.limit = limiter(t, f.node, Limit{Algorithm: a, Rate: floodedRate, Per: time.Hour})
	return f
}

func (f *flooded) use(t *testing.T, key string, times int) {
	for range times {
		if _, err := f.limit.Allow(t.Context(), key); err != nil { // require takes longer than the check
			t.Fatal(err)
		}
	}
}

// deny uses up the limit for the given number of keys.
func (f *flooded) deny(t *testing.T, keys int) {
	for i := range keys {
		f.use(t, fmt.Sprint("denied ", i), floodedRate)
	}
	require.Zero(t, f.countAllowed(t, keys))
}

// checkNewKeys checks keys that were not checked before, 1 ms apart. 200,000 keys take 200 s, in
// which no algorithm returns a unit of a limit of 10 an hour.
func (f *flooded) checkNewKeys(t *testing.T, keys, asks int) {
	for range keys {
		f.use(t, fmt.Sprint("fresh ", f.seen), asks)
		f.clock.Step(time.Millisecond)
		f.seen++
	}
}

// countAllowed returns the number of denied keys that would now be allowed.
func (f *flooded) countAllowed(t *testing.T, keys int) (n int) {
	for i := range keys {
		d, err := f.limit.Peek(t.Context(), fmt.Sprint("denied ", i))
		require.NoError(t, err)
		if d.Allowed {
			n++
		}
	}
	return n
}

// A flood that uses up the limit of each of its keys fills the store with counts that are used
// up. docs/floods.md has these numbers, which are averages.
func TestFloodOfUsedUpKeysEvictsDeniedKeys(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	for _, a := range algorithms {
		for keys, most := range map[int]float64{900: 0.1, 1_400: 1, 1_900: 25, 200_000: 100} {
			if keys == 200_000 && a != SlidingWindow {
				continue // this case takes 2,000,000 checks, and evicts all denied keys
			}
			t.Run(fmt.Sprintf("%v, %d keys", a, keys), func(t *testing.T) {
				t.Parallel()
				stores, all := 1, 0
				if keys == 200_000 {
					testenv.SkipUnlessFull(t, "the floods of 1,900 keys, which also push out what is used up")
				} else {
					stores = testenv.PickFull(t, 3, 20)
				}
				for seed := range stores {
					f := newFlooded(t, a, byte(seed))
					f.deny(t, 100)
					f.checkNewKeys(t, 2*floodedKeys, 1) // the store is full of counts of other keys
					f.checkNewKeys(t, keys, floodedRate)
					again := f.countAllowed(t, 100)
					require.LessOrEqual(t, uint64(again), f.node.Stats().EvictedUsedUp)
					all += again
				}
				mean := float64(all) / float64(stores)
				require.LessOrEqual(t, mean, most)
			})
		}
	}
}

package countsync

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// Units that are granted during concurrent takes must be unspent: units that were taken before
// are not granted, and granted units are not taken.
func TestGrantedUnitsAreNotTakenConcurrently(t *testing.T) {
	const whole = 4000
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: whole, Per: time.Hour, Start: int64(time.Hour)}
	at := Time{int64(time.Hour), int64(time.Hour)}
	h := NewHoldings(NewRegions("near", []string{"far"}, nil), 1, bucket.NewStore(1<<16, bucket.Salt{}), at)
	h.agreed, h.knownSince = []bool{true, true}, h.knownSince-2*keptFor
	h.partsUntil.Store(at.Monotonic + 1) // so that takes are judged by the parts in the store where possible
	total := int64(0)
	for round := range 1000 {
		id := bucket.ID{Hi: rand.Uint64(), Lo: rand.Uint64()}
		sh := h.shard(id)
		sh.mu.Lock()
		x := h.holdingOf(sh, id, &limit, at)
		sh.mu.Unlock()
		var taken [2]int64
		var done sync.WaitGroup
		for k := range taken {
			done.Go(func() {
				var r bucket.Result
				for r.Allowed = true; r.Allowed; {
					if h.TakeUnits(id, &limit, at, 1, &r); r.Allowed {
						taken[k]++
					}
				}
			})
		}
		far := &x.accounts[h.regions.index("far")]
		far.grantedUntil = at.Monotonic + keptFor
		released := int64(0)
		for range 50 {
			sh.mu.Lock()
			_, granted := h.release(x, far, 7, at)
			sh.mu.Unlock()
			released += granted
		}
		done.Wait()
		total += released
		require.LessOrEqual(t, taken[0]+taken[1]+released, int64(whole/2), "round %d", round)
	}
	require.Positive(t, total)
}

package asker

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// heat records how often IDs were recently requested from other members, so that a node requests leases
// only for hot keys. It records at most heatSets*heatWays IDs, in 256 KB, and costs some nanoseconds for
// each take with Leases that this node sends to the owner itself. Other checks do not use it.
//
// Each ID belongs to a set. The weight of past asks is halved every heatHalf ticks. If the set is
// full, an ask of a further ID subtracts the weight of one ask from the lightest ID, or replaces this ID if it
// weighs less than one ask. So a flood of keys that occur once does not replace frequent keys. Two concurrent
// asks may be counted as one ask.
type heat struct {
	sets atomic.Pointer[[heatSets]heatSet] // nil until the first ask
}

const (
	heatSets = 1 << 12
	heatWays = 8
	heatTick = 16 * time.Millisecond
	heatHalf = 64 // ticks
	heatUnit = 64 // weight of a single ask
	heatMost = 1<<28 - 1

	// hotAfter is the weight at which an ID is hot: six asks in quick succession, or about
	// three a second.
	hotAfter = 6 * heatUnit
	// heatMean is the time in seconds over which a weight averages the asks. In each tick, a
	// weight falls by 1/(2*heatHalf) of its value at the last ask.
	heatMean = float64(2*heatHalf*heatTick) / float64(time.Second)
)

// heatSet has the size of a cache line. For each ID it contains 20 bits of the ID, the tick
// of its last ask in 16 bits, and its weight at that time in 28 bits.
type heatSet [heatWays]atomic.Uint64

// recordAsk counts an ask, and returns the number of asks of the ID per second, or zero if the ID
// is not hot.
func (h *heat) recordAsk(id bucket.ID, steady int64) (pace float64) {
	sets := h.sets.Load()
	if sets == nil {
		h.sets.CompareAndSwap(nil, new([heatSets]heatSet))
		sets = h.sets.Load()
	}
	set := &sets[id.Lo%heatSets]
	tag, now := id.Hi>>44, uint64(steady)/uint64(heatTick)&0xffff
	var lightest *atomic.Uint64
	least := uint64(heatMost + 1)
	for i := range set {
		c := set[i].Load()
		weight := currentWeight(c, now)
		if c>>44 == tag && c != 0 {
			weight = min(weight+heatUnit, heatMost)
			set[i].Store(tag<<44 | now<<28 | weight)
			if weight < hotAfter {
				return 0
			}
			return float64(weight) / heatUnit / heatMean
		}
		if weight < least {
			lightest, least = &set[i], weight
		}
	}
	if least < heatUnit {
		lightest.Store(tag<<44 | now<<28 | heatUnit)
	} else {
		lightest.Store(lightest.Load()&^(0xffff<<28|heatMost) | now<<28 | (least - heatUnit))
	}
	return 0
}

// currentWeight returns the present weight of the entry c at the tick now. The weight falls exponentially from
// one half-life to the next, and linearly within each.
func currentWeight(c, now uint64) uint64 {
	ticks := (now - c>>28) & 0xffff
	halves := ticks / heatHalf
	if halves > 28 {
		return 0
	}
	weight := c & heatMost >> halves
	return weight - weight*(ticks%heatHalf)/(2*heatHalf)
}

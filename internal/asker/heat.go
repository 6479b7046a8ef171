package asker

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// heat is how often ids were asked for elsewhere of late, so that leases are asked for
// where they save hops. It remembers heatSets*heatWays ids at most, in 256 KB, and costs
// a check that leaves the node some nanoseconds; others do not come by it.
//
// An id has its place in one of the sets. What was asked weighs half as much each
// heatHalf; where the set is full, the lightest gives way, after as many asks of others
// as it weighs, so that a flood of keys that come once does not push out those that come
// often. Two asks at once may count as one.
type heat struct {
	sets atomic.Pointer[[heatSets]heatSet] // nil until the first ask
}

const (
	heatSets = 1 << 12
	heatWays = 8
	heatTick = 16 * time.Millisecond
	heatHalf = 64 // ticks
	heatUnit = 64 // the weight of one ask
	heatMost = 1<<28 - 1

	// hotAfter asks in quick succession make an id hot, or some three a second.
	hotAfter = 6 * heatUnit
	// heatMean is the seconds that a weight is the asks of: it falls by one part in
	// 2*heatHalf a tick of what it was at the last ask.
	heatMean = float64(2*heatHalf*heatTick) / float64(time.Second)
)

// heatSet fills a cache line. Of each id: 20 bits of it, the tick when it was asked for
// last, in 16 bits, and in 28 what it weighed then.
type heatSet [heatWays]atomic.Uint64

// asked counts an ask, and says how many a second there are of the id; zero if it is not
// hot.
func (h *heat) asked(id bucket.ID, steady int64) (pace float64) {
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
		weight := weighs(c, now)
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

// weighs is what c weighs by now: as a half-life has it, but straight within each.
func weighs(c, now uint64) uint64 {
	ticks := (now - c>>28) & 0xffff
	halves := ticks / heatHalf
	if halves > 28 {
		return 0
	}
	weight := c & heatMost >> halves
	return weight - weight*(ticks%heatHalf)/(2*heatHalf)
}

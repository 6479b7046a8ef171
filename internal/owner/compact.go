package owner

import "time"

const (
	// CompactEvery is the time between two calls of Compact. At this rate, it takes about ten
	// seconds to compact a store of five million counts.
	CompactEvery = 100 * time.Millisecond
	// compactRest is the time until the next call after a pass over the store that freed no count.
	// Memory may be freed later by this time. There is no rest if the store is half full or
	// has compactFew counts, because it may soon evict counts.
	compactRest = 5 * time.Second
)

const (
	compactFew    = 400_000 // below this number of counts, and below half of maxKeys, a call makes one step
	compactRounds = 10      // steps of a call if there are more counts, or in a pass that began after a rest
)

// Compact frees a part of the memory of counts that have recovered, and returns the time until the next
// call. maxKeys is the number of counts that the node may hold.
func (o *Owner) Compact(maxKeys int, now int64) time.Duration {
	rounds, many := 1, o.counts.Len() >= min(compactFew, maxKeys/2)
	if many || o.compacts.rested {
		rounds = compactRounds // a pass after a rest is faster, to make up for the rest
	}
	done := false
	for range rounds {
		freed, last := o.counts.Compact(now)
		o.compacts.freed += freed
		if done = last; done {
			break
		}
	}
	rests := done && o.compacts.freed == 0 && !many
	if done {
		o.compacts.freed = 0
	}
	if o.compacts.rested = rests || o.compacts.rested && !done; rests {
		return compactRest
	}
	return CompactEvery
}

// compaction is the state of Compact between two calls.
type compaction struct {
	freed  int  // the number of counts that this pass over the store has freed
	rested bool // whether this pass began after a rest
}

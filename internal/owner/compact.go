package owner

import "time"

// CompactEvery is the time between two calls of Compact. At this rate, a store of five million counts is
// compacted within about ten seconds.
const CompactEvery = 100 * time.Millisecond

const (
	compactFew    = 400_000 // below this number of counts, one step is enough
	compactRounds = 10      // steps of one call if there are more
)

// Compact frees a part of the memory of counts that have recovered. maxKeys is the number of counts that
// the node may hold.
func (o *Owner) Compact(maxKeys int, now int64) {
	rounds := 1
	if o.counts.Len() >= min(compactFew, maxKeys/2) {
		rounds = compactRounds
	}
	for range rounds {
		o.counts.Compact(now)
	}
}

package weir

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

// Stats is a snapshot of a node's counters. They only grow, but for Keys,
// Stream, Published, Outage, Unjoined, and what Cluster says of joining.
type Stats struct {
	Decisions map[Source]Outcomes // by where they were made; checks that others made here are theirs
	Shadows   Outcomes            // of asks with Shadow, wherever they were decided; not among Decisions
	Served    uint64              // checks that others made here
	Passed    uint64              // checks that came here and were passed on
	Overdue   uint64              // checks that came here and were dropped, since they had waited here for longer than their askers do
	LateUnits uint64              // units admitted by answers that came after their askers gave up, and refunded
	Conflicts uint64              // times that a limit was seen to have other numbers than another of its Name and Version, here or on another member; it grows for as long as members differ
	Keys      int                 // counts held
	Evicted   uint64              // counts dropped before they had recovered, because MaxKeys was reached

	EvictedUsedUp uint64 // of these, counts that had nothing left: keys that were denied, and begin again

	Stream    StreamStats            // of what keeps the replicas
	Published PublishedStats         // of Publish
	Holdings  HoldingStats           // of Global limits
	Regions   map[string]RegionStats // by the name of another region, of what Global limits need
	Outage    OutageStats            // of checks that are not decided by those who own their keys
	// Unjoined is for how long, since Start, this node has counted alone though
	// Config.Join names other nodes: no other member has ever been met, and
	// Cluster.Unanswered says why. Zero from the first member on, and if Join names
	// no others.
	Unjoined time.Duration
	Cluster  cluster.Stats // of the peer port and the membership
}

// StreamStats says how far the replicas are behind, and what is to be told yet.
type StreamStats struct {
	Unsent  int           // counts whose last changes some member has not acknowledged
	Lag     time.Duration // how long the oldest of these has waited
	Tallies int           // of counts that several nodes have spent from, or one without authority, which have not recovered: one for each of these nodes
	Resets  int           // resets of the last 20 minutes that are remembered, so that no copy from before one comes back
	Bytes   int           // that Tallies and Resets take, about: 260 MB at most

	// TalliesDropped is how many tallies were forgotten before they had recovered, since
	// a node keeps 1,048,576. Of what such a one said was spent, what the owner has not
	// been told yet is admitted once more; what it has been told can count twice there,
	// when another copy comes. It only grows.
	TalliesDropped uint64
	// ResetsDropped is how many resets were forgotten before their time, since a node
	// keeps 1,048,576: a member that has not heard of such a one can bring the count back
	// as it was, which then denies until it has recovered. It only grows.
	ResetsDropped uint64
}

// PublishedStats says what this node knows of what nodes have published.
type PublishedStats struct {
	Values     int    // that hold
	Tombstones int    // names that were taken back within the last day
	Bytes      int    // of names and values
	Revision   uint64 // as Node.Published gives it
	Dropped    uint64 // names that there was no room for: two sides of a split had too many together. It only grows
}

func (b *board) stats() PublishedStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return PublishedStats{b.values, len(b.all) - b.values, b.bytes, b.revision, b.dropped}
}

// Outcomes counts decisions.
type Outcomes struct{ Allowed, Denied uint64 }

// meters are the counters. They are striped by id so that checks of different
// keys do not share a cache line.
type meters struct {
	stripes   [64]stripe
	served    atomic.Uint64
	passed    atomic.Uint64
	overdue   atomic.Uint64
	lateUnits atomic.Uint64
}

// stripe fills whole cache lines.
type stripe struct {
	allowed, denied [sources + 1]atomic.Uint64 // by source, and in the last place the shadows
	_               [(64 - 2*(int(sources)+1)*8%64) % 64]byte
}

func (m *meters) decided(id bucket.ID, r *result, shadow bool) {
	s := &m.stripes[id.Hi%uint64(len(m.stripes))]
	of := r.source
	if shadow {
		of = sources
	}
	if r.Allowed {
		s.allowed[of].Add(1)
	} else {
		s.denied[of].Add(1)
	}
}

func (m *meters) outcomes() map[Source]Outcomes {
	total := make(map[Source]Outcomes)
	for source := Owner; source < sources; source++ {
		if o := m.sum(source); o != (Outcomes{}) {
			total[source] = o
		}
	}
	return total
}

func (m *meters) shadows() Outcomes { return m.sum(sources) }

func (m *meters) sum(of Source) (o Outcomes) {
	for i := range m.stripes {
		o.Allowed += m.stripes[i].allowed[of].Load()
		o.Denied += m.stripes[i].denied[of].Load()
	}
	return o
}

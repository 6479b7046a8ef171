package weir

import (
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/wire"
)

// Stats is a snapshot of a node's counters. They only grow, but for Keys, MaxKeys,
// Stream, Published, Snapshots, Outage, Unjoined, and what Cluster says of joining.
type Stats struct {
	Decisions map[Source]Outcomes // by where they were made, without those of Peek; checks that others made here are theirs
	// Limits is Decisions by the names of limits, of those that have decided anything. A
	// node counts apart the first 4,096 names that it is given, and the limits of all
	// further names together as OtherLimits.
	Limits  map[string]map[Source]Outcomes
	Latency map[Source]Latency // of the same Decisions, by where they were made
	Shadows Outcomes           // of asks with Shadow and of Limiter.Shadow, wherever they were decided; not among Decisions
	// ShadowLimits is Shadows by the names of limits, as Limits is Decisions.
	ShadowLimits map[string]Outcomes
	Served       uint64 // checks that others made here
	Passed       uint64 // checks that came here and were passed on
	Overdue      uint64 // checks that came here and were dropped, since they had waited here for longer than their askers do
	LateUnits    uint64 // units admitted by answers that came after their askers gave up, and refunded
	Canceled     uint64 // checks whose context was canceled before they were decided, as callers went away; not among Decisions
	Conflicts    uint64 // times that a limit was seen to have other numbers than another of its Name and Version, here or on another member; it grows for as long as members differ
	Bytes        int    // that counts take in memory, without the entries of SlidingLogs
	Keys         int    // counts held
	MaxKeys      int    // counts that may be held: Config's, or its default
	Evicted      uint64 // counts dropped before they had recovered, because MaxKeys was reached

	EvictedUsedUp uint64 // of these, counts that had nothing left: keys that were denied, and begin again

	// Missing is the members of the roster that no member on this node's side is connected to, and for
	// how long this node has not.
	Missing      map[string]time.Duration
	Leases       LeaseStats             // of units that nodes lend each other
	Reservations ReservationStats       // of Limiter.Reserve
	Holds        HoldStats              // of InFlight limits
	Stream       StreamStats            // of what keeps the replicas
	Published    PublishedStats         // of Publish
	Snapshots    SnapshotStats          // what is written of counts that are to outlive a stop of all nodes
	Holdings     HoldingStats           // of Global limits
	Regions      map[string]RegionStats // by the name of another region, of what Global limits need
	Outage       OutageStats            // of checks that are not decided by nodes that own their keys
	// Unjoined is for how long, since Start, this node has counted alone though
	// Config.Join names other nodes: no other member has ever been met, and
	// Cluster.Unanswered says why. Zero from the first member on, and if Join names
	// no others.
	Unjoined time.Duration
	Cluster  cluster.Stats // of the peer port and the membership
}

// HoldStats says what is held of InFlight limits.
type HoldStats struct {
	Held  int    // holds of this node's callers and clients
	Known int    // holds of all nodes of which this one knows, as it answers for their counts or did so lately
	Lost  uint64 // holds of this node that nobody has renewed for HoldTerm; it only grows
}

// LeaseStats says what is lent: units that their owner has debited, and that the
// borrower may spend. A crash of that node loses them.
type LeaseStats struct {
	HeldUnits int // units left in the leases that this node holds
	LentUnits int // the maximum number of units that other nodes may still spend
}

// ReservationStats counts reservations. Of those Made here and not Carried, the ones that are
// neither Settled, Canceled nor Unsettled are open.
type ReservationStats struct {
	Made          uint64 // estimates that were allowed
	Settled       uint64 // by Settle, here, wherever they were made
	Canceled      uint64 // by Cancel, likewise
	Carried       uint64 // of those made here, whose Text was asked for: another process may settle them
	Unsettled     uint64 // of those made here and not carried, that expired while nobody had settled them: their estimates stay spent
	UnitsReturned uint64 // that estimates exceeded the actual costs by
	UnitsDebited  uint64 // that they fell short by
}

// StreamStats says how far the replicas are behind, and what is to be told yet.
type StreamStats struct {
	Unsent  int           // counts whose last changes some member has not acknowledged
	Lag     time.Duration // how long the oldest of these has waited
	Tallies int           // of counts that several nodes have spent from, or one without authority, which have not recovered: one for each of these nodes
	Resets  int           // resets of the last 30 minutes that are remembered, so that no copy from before one comes back
	Sent    uint64        // counts that were sent to other members, each time: states, and what was spent without authority. It only grows
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

// Outcomes counts decisions.
type Outcomes struct{ Allowed, Denied uint64 }

func (o *Outcomes) add(more stats.Outcomes) {
	o.Allowed += more.Allowed
	o.Denied += more.Denied
}

// OtherLimits is the name in Stats.Limits of the limits whose names came after the first
// 4,096. A limit that has this name itself is counted with them.
const OtherLimits = "(other)"

// Latency is how long checks took that one source decided: from when the check had read
// the clock to its answer, which leaves out the hash of its key. A check is measured by
// chance, one in 64 and then for 64, but the first few: so that figures are of all
// checks, and Count is about that of Decisions.
type Latency struct {
	Count uint64
	Sum   time.Duration
	// Buckets says for each of LatencyBounds how many took no longer than that.
	Buckets []uint64
}

// LatencyBounds returns the upper bounds of the buckets of a Latency, 250 ns to 1 s.
func LatencyBounds() []time.Duration { return stats.LatencyBounds() }

// Package stats has the same name: else this does not compile.
var _ = map[bool]struct{}{false: {}, OtherLimits == stats.Others: {}}

// read sets what the meters have of decisions.
func (s *Stats) read(m *stats.Meters) {
	s.Decisions, s.Limits, s.Latency = make(map[Source]Outcomes), make(map[string]map[Source]Outcomes), make(map[Source]Latency)
	s.ShadowLimits = make(map[string]Outcomes)
	for name, limit := range m.Limits.All() {
		for from := wire.Owner; from < wire.Sources; from++ {
			o, source := limit.Sum(from), Source(from)
			if o == (stats.Outcomes{}) {
				continue
			}
			if s.Limits[name] == nil {
				s.Limits[name] = make(map[Source]Outcomes)
			}
			s.Limits[name][source] = Outcomes(o)
			all := s.Decisions[source]
			all.add(o)
			s.Decisions[source] = all
		}
		if o := limit.Sum(stats.Shadows); o != (stats.Outcomes{}) {
			s.Shadows.add(o)
			s.ShadowLimits[name] = Outcomes(o)
		}
	}
	for source := wire.Owner; source < wire.Sources; source++ {
		if l := m.Latency(source); l.Count > 0 {
			s.Latency[Source(source)] = Latency(l)
		}
	}
}

// OutageStats is the outage under way, as of the last second. An outage is while
// members of the roster are not reached, or the roster is below Config.Expect, or
// checks of this node are decided by a stand-in, by shares, or as FailOpen and
// FailClosed say; it is over when nothing of that has been so for five seconds.
type OutageStats struct {
	Since time.Time // zero if there is none; the fields below, but for Count, are zero then, too
	// Missing is the members, sorted, that checks went without in the last five seconds:
	// those that are not reached, that have stalled (they leave asks of this node
	// unanswered and say nothing), or that did not answer a check in time. It is empty
	// where checks went without an owner for other reasons: deadlines that are too
	// short, a relay that was late, a roster below Config.Expect.
	Missing   []string
	Decisions uint64 // of this node's own checks since then, made in one of those ways: Stats.Decisions has them by Source
	Count     uint64 // outages that have begun since Start
}

// PastOutage is an outage that has ended.
type PastOutage struct {
	Since, Until time.Time // Until is when it was last seen to last
	Missing      []string  // names of members that checks went without at any time of it, sorted
	Decisions    uint64    // of this node's own checks, as in OutageStats
}

// Outages returns the last outages of this node that have ended, at most 20, the newest
// first. It remembers none from before Start.
func (n *Node) Outages() []PastOutage {
	var past []PastOutage
	for _, o := range n.outage.Past() {
		past = append(past, PastOutage(o))
	}
	return past
}

// watchEvery is how often a node looks for an outage, and so the least time between two
// lines of its log about one.
const watchEvery = time.Second

// watchOutages checks each second for an outage while one lasts or may begin. Otherwise it waits for an
// event that can begin one.
func (n *Node) watchOutages() {
	tick := time.NewTimer(watchEvery)
	defer tick.Stop()
	var event <-chan struct{} // nil while the node is observed
	for {
		select {
		case <-event:
			n.outage.Resume(n.env.Monotonic())
			event = nil
			tick.Reset(watchEvery)
		case <-tick.C:
			n.outage.Observe(n.meters.Limits.OutageFacts(n.env.View()), n.env.Monotonic()).Log(n.cfg.Logger)
			if n.outage.MayRest() {
				event = n.outage.Event
				continue
			}
			tick.Reset(watchEvery)
		case <-n.env.Done():
			return
		}
	}
}

// HoldingStats says what this node keeps of its region's part of Global limits.
// Without other regions it is zero.
type HoldingStats struct {
	Keys   int    // that have a holding here, also as a copy of another node's; at most 262,144
	Beyond uint64 // times that a key was asked for that there was no room for: it is judged by the part that the region begins with. It only grows
}

// RegionStats says what this node has told another region of Global limits.
type RegionStats struct {
	Reached    bool          // it answered within the last ten seconds; a region that nothing is told is not asked either
	Lag        time.Duration // how long it has left all statements unanswered, since the first of them; zero once it answers one
	Statements uint64        // sent: each is of one key
	Unanswered uint64        // of these
	Served     uint64        // statements of that region that were answered here
	Disputed   uint64        // messages that were refused because the region shares limits out in another way: its Regions or RegionShares differ
	Refused    uint64        // requests of that region that were refused: beyond 2,000, 200 counts to reset or 16 MiB in a second, of a Regional limit, of a time to come, or not a region's to make
	Sent       uint64        // bytes of statements and answers, without what the connection adds
	Received   uint64        // bytes of the same, but for answers that refuse or cannot be read
}

func regionStats(all map[string]regions.Stats) (stats map[string]RegionStats) {
	for name, s := range all {
		if stats == nil {
			stats = make(map[string]RegionStats, len(all))
		}
		stats[name] = RegionStats(s)
	}
	return stats
}

// SnapshotStats are about Config.Snapshots. They are zero without it.
type SnapshotStats struct {
	Loading  bool          // what is there is being loaded, and the node is not Ready
	Loaded   int           // counts that were loaded
	LoadTook time.Duration // that it took
	Refused  int           // snapshots that were not loaded, or not to their end; the log has the reasons
	Skipped  int           // snapshots that were not loaded, as the cluster went on without their node
	Foreign  int           // nodes of other clusters or regions that write to the same place

	Saved    uint64        // snapshots that were written
	Failures uint64        // that were not
	Error    string        // of the last that was not, if none was written since; else empty
	Age      time.Duration // since the writing of the last one began; zero if none was written
	Took     time.Duration // that its writing took
	Bytes    int64         // of it
	Counts   int           // in it
}

// Stats is a snapshot of the node's counters.
func (n *Node) Stats() Stats {
	c, t := n.cluster.Stats(), n.env.Time()
	s := Stats{
		Served:    n.meters.Served.Load(),
		Passed:    n.meters.Passed.Load(),
		Overdue:   n.meters.Overdue.Load(),
		LateUnits: n.meters.LateUnits.Load(),
		Canceled:  n.meters.Canceled.Load(),
		Conflicts: n.registry.Conflicts(),
		Keys:      n.counts.Len(),
		MaxKeys:   n.cfg.MaxKeys,
		Bytes:     n.counts.Bytes(),
		Evicted:   n.counts.Evicted(),

		EvictedUsedUp: n.counts.EvictedUsedUp(),

		Missing: n.env.View().Missing(n.env.Monotonic()),
		Leases:  LeaseStats{HeldUnits: n.asker.HeldUnits(t), LentUnits: n.owner.LentUnits(t.Monotonic)},

		Reservations: ReservationStats(n.clients.reservations.Stats()),

		Stream:    StreamStats(n.handover.Stats()),
		Published: PublishedStats(n.published.Stats()),
		Snapshots: SnapshotStats(n.joining.snapshots.Stats()),
		Holdings:  HoldingStats(n.regions.HoldingStats()),
		Regions:   regionStats(n.regions.Stats()),
		Outage:    OutageStats(n.outage.Stats()),
		Holds:     HoldStats(n.clients.holds.Stats()),
		Unjoined:  n.unjoined(&c),
		Cluster:   c,
	}
	s.read(&n.meters)
	return s
}

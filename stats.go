package weir

import (
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/wire"
)

// Stats is a snapshot of the counters of a node. The counters only grow, except Keys, MaxKeys,
// Bytes, Missing, Leases, Holds, Stream, Published, Snapshots, Outage, Unjoined, the Keys of
// Holdings, the Reached and Lag of Regions, and of Cluster the RoundTrips, the SchedulingDelay and the fields
// about joining.
type Stats struct {
	Decisions map[Source]Outcomes // decisions by Source, without Peeks. A check is counted only on the node whose Limiter was called
	// Limits is Decisions by the names of limits, for limits with at least 1 decision. A node counts the
	// first 4,096 names separately, and the limits of all further names together as OtherLimits.
	Limits  map[string]map[Source]Outcomes
	Latency map[Source]Latency // durations of the checks in Decisions, by Source
	Shadows Outcomes           // decisions about asks with Shadow and by Limiter.Shadow, from all sources; not included in Decisions
	// ShadowLimits is Shadows by the names of limits, like Limits.
	ShadowLimits  map[string]Outcomes
	Bans          map[string]BanStats // by the names of limits, without limits whose BanStats are zero
	Served        uint64              // checks, refunds and other operations of other nodes on a count or a hold that this node executed, and did not pass on
	Passed        uint64              // checks, refunds and other operations of other nodes on a count or a hold that this node passed on to another member
	Overdue       uint64              // checks of other nodes that this node dropped, because they had waited here for more than twice the wait of the asking nodes
	LateUnits     uint64              // units of grants that arrived too late, and that this node refunded
	Canceled      uint64              // checks and waits whose context was canceled before the decision; not included in Decisions
	Conflicts     uint64              // number of comparisons that found two limits of the same Name and Version with different numbers, on this node or on this node and a member; grows as long as members differ
	Bytes         int                 // memory of the counts, without the entries of SlidingLogs
	Keys          int                 // number of counts
	MaxKeys       int                 // maximum number of counts: Config.MaxKeys, or its default
	Evicted       uint64              // counts that were evicted before they had recovered, because MaxKeys was reached
	EvictedUsedUp uint64              // evicted counts without units left: their keys were denied, and have the whole limit again

	// Missing has the members to which no member on the side of this node is connected, and the
	// time for which this node has not been connected to each of them.
	Missing      map[string]time.Duration
	Leases       LeaseStats             // units that nodes lend each other
	Reservations ReservationStats       // reservations of Limiter.Reserve
	Holds        HoldStats              // holds of InFlight limits
	Stream       StreamStats            // the stream that keeps the replicas
	Published    PublishedStats         // values of Publish
	Snapshots    SnapshotStats          // snapshots of durable counts
	Holdings     HoldingStats           // holdings of Global limits
	Regions      map[string]RegionStats // the exchange about Global limits, by the name of the other region
	Outage       OutageStats            // the current outage: checks that are not decided by the owners of their keys
	// Unjoined is how long this node has counted alone since Start although Config.Join names other
	// nodes: this node has never met another member, and Cluster.Unanswered has the reasons.
	// Unjoined is zero once a member was met, and if Join names no other nodes.
	Unjoined time.Duration
	Cluster  cluster.Stats // connections and membership
}

// BanStats counts the bans of a limit (Limit.Ban). Both numbers only grow.
type BanStats struct {
	Begun  uint64 // bans that denials of this node have begun
	Denied uint64 // decisions that denied a banned key, which Decisions include
}

// HoldStats counts holds of InFlight limits.
type HoldStats struct {
	Held  int    // holds of the callers and clients of this node
	Known int    // holds of all nodes that this node knows, because it answers or recently answered for their counts, or has replicas
	Lost  uint64 // holds of this node that no member has renewed for nine tenths of HoldTerm; only grows
}

// LeaseStats counts lent units, which the owner of a key has debited and lent to another node, the
// borrower. If the borrower crashes, the units stay spent.
type LeaseStats struct {
	HeldUnits int // units left in the leases that this node holds
	LentUnits int // the maximum number of units that other nodes may still spend
}

// ReservationStats counts reservations. A reservation is open from when it is made until it is settled,
// canceled or exported by Reservation.Text, or expires.
type ReservationStats struct {
	Made          uint64 // estimates that were allowed
	Settled       uint64 // settled by Settle on this node, including reservations made on other nodes
	Canceled      uint64 // settled by Cancel on this node, including reservations made on other nodes
	Carried       uint64 // made here, and exported by Text, so that another process may settle them
	Unsettled     uint64 // made here, not exported by Text, and expired without being settled: their estimates stay spent
	UnitsReturned uint64 // units that were refunded because estimates exceeded the actual costs
	UnitsDebited  uint64 // units that were debited because estimates fell short of the actual costs
}

// StreamStats describes the delay of the replicas, and the state of the stream.
type StreamStats struct {
	Unsent  int           // counts with changes that a member has not acknowledged
	Lag     time.Duration // how long the oldest of these changes has waited
	Tallies int           // number of tallies: one for each node that has spent from a count, while the count has not recovered, if several nodes or a node without authority have spent from it
	Resets  int           // resets of the last 30 minutes, which are remembered so that no replica from before a reset returns
	Sent    uint64        // number of times that a count, or the units that were spent from it without authority, were sent to a member. Only grows
	Bytes   int           // approximate memory of Tallies and Resets, at most 280 MB

	// TalliesDropped is the number of tallies that were forgotten before their counts had recovered,
	// because a node keeps at most 1,048,576. Units of a forgotten tally that the owner has not yet
	// received are admitted once more. Units that the owner has received can be counted twice on
	// the owner, when a further replica arrives. TalliesDropped only grows.
	TalliesDropped uint64
	// ResetsDropped is the number of resets that were forgotten before their time, because a node
	// keeps at most 1,048,576. A member that has not received such a reset can restore the count from
	// before the reset, and the key is denied until the count has recovered. ResetsDropped only grows.
	ResetsDropped uint64
}

// PublishedStats describes the published values that this node knows.
type PublishedStats struct {
	Values     int    // values that are not deleted
	Tombstones int    // names that were deleted within the last day
	Bytes      int    // size of the names and values
	Revision   uint64 // the revision that Node.Published returns
	Dropped    uint64 // values and deletions that this node dropped because two sides of a partition had too many together, except those that a full node drops on arrival. Only grows
}

// Outcomes counts decisions.
type Outcomes struct{ Allowed, Denied uint64 }

func (o *Outcomes) add(more stats.Outcomes) {
	o.Allowed += more.Allowed
	o.Denied += more.Denied
}

// OtherLimits, "(other)", is the name in Stats.Limits for the limits whose names came after the
// first 4,096. A limit whose own name is "(other)" is counted together with these limits.
const OtherLimits = stats.Others

// Latency is the duration of the checks that a source decided: from the time at which the check
// read the clock to the decision, without hashing the key. Each of the first few checks is
// measured. Later 1 check in 64 is measured and counts as 64, so that the figures stand for all
// checks, and Count is close to the number of Decisions.
type Latency struct {
	Count   uint64
	Sum     time.Duration
	Buckets []uint64 // for each of LatencyBounds, the number of checks that took at most that time
}

// LatencyBounds returns the upper bounds of the buckets of a Latency, 250 ns to 1 s.
func LatencyBounds() []time.Duration { return stats.LatencyBounds() }

// read sets the fields that are derived from the meters of decisions.
func (s *Stats) read(m *stats.Meters) {
	s.Decisions, s.Limits, s.Latency = make(map[Source]Outcomes), make(map[string]map[Source]Outcomes), make(map[Source]Latency)
	s.ShadowLimits, s.Bans = make(map[string]Outcomes), make(map[string]BanStats)
	for name, limit := range m.Limits.AllCounters() {
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
		if b := (BanStats{limit.BansBegun.Load(), limit.Banned.Load()}); b != (BanStats{}) {
			s.Bans[name] = b
		}
	}
	for source := wire.Owner; source < wire.Sources; source++ {
		if l := m.Latency(source); l.Count > 0 {
			s.Latency[Source(source)] = Latency(l)
		}
	}
}

// OutageStats is the current outage, as of the last second. An outage lasts while members of the
// roster are not reachable, the roster is below Config.Expect, or checks of this node are decided
// by a stand-in, within shares, or by FailOpen or FailClosed. An outage ends once none of these
// conditions has been true for five seconds.
type OutageStats struct {
	Since time.Time // zero without an outage; the fields below, except Count, are then zero as well
	// Missing has the members, sorted, that were missing at any time in the last five seconds: they were
	// not reachable, had stalled (left requests of this node unanswered and sent nothing), or did not
	// answer a check in time. Missing is empty if checks were not decided by the owner for other reasons:
	// deadlines that are too short, a late relay, or a roster below Config.Expect.
	Missing   []string
	Decisions uint64 // checks of this node since Since that were decided by a stand-in, within shares, or by FailOpen or FailClosed
	Count     uint64 // outages since Start, including the current outage
}

// PastOutage is an outage that has ended.
type PastOutage struct {
	Since, Until time.Time // Until is the last time at which it was observed
	Missing      []string  // sorted names of members that were missing at any time of the outage
	Decisions    uint64    // checks of this node during the outage, as in OutageStats
}

// Outages returns the last outages of this node, newest first. It returns at most 20, and none that has
// not ended. Outages before Start are not included.
func (n *Node) Outages() []PastOutage {
	return convert(n.outage.PastOutages(), func(o stats.PastOutage) PastOutage { return PastOutage(o) })
}

// watchEvery is the time between two checks for an outage, and so the minimum time between two
// log lines about an outage.
const watchEvery = time.Second

// watchOutages checks each second for an outage while an outage lasts or may begin. Otherwise it waits for an
// event that can begin an outage.
func (n *Node) watchOutages() {
	tick := time.NewTimer(watchEvery)
	defer tick.Stop()
	var event <-chan struct{} // nil while tick fires each second; Event while watchOutages waits for an event
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

// HoldingStats describes the holdings of Global limits on this node, and is zero without other regions.
type HoldingStats struct {
	Keys   int    // keys with a holding here, including replicas of other nodes; at most 262,144
	Beyond uint64 // checks of keys for which there was no room: they are judged by the initial part of the region. Only grows
}

// RegionStats describes the exchange of this node with another region about Global limits.
type RegionStats struct {
	Reached    bool          // the region answered within the last ten seconds; false if no statements were sent to it
	Lag        time.Duration // time since the first statement that was sent after the last answer of the region; zero once the region answers
	Statements uint64        // statements for that region, each about a key, including those that could not be sent
	Unanswered uint64        // statements that were not answered, including those that could not be sent
	Served     uint64        // statements of that region that were answered here
	Disputed   uint64        // messages that were refused because the Regions or RegionShares of the region differ
	Refused    uint64        // requests of that region that were refused: beyond 2,000, 200 counts to reset or 16 MiB in a second, about a Regional limit, with a time in the future, or not permitted to a region
	Sent       uint64        // bytes of statements and answers, without the overhead of the connection
	Received   uint64        // bytes of statements and answers that were received, except answers that refuse or are malformed
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

// SnapshotStats describes the snapshots in Config.Snapshots, and is zero without them.
type SnapshotStats struct {
	Loading  bool          // snapshots are being loaded, and the node is not Ready
	Loaded   int           // counts that were loaded
	LoadTook time.Duration // duration of the loading
	Refused  int           // snapshots that were not loaded, or only in part; the log has the reasons
	Skipped  int           // snapshots that were not loaded, because the cluster continued without the nodes that wrote them
	Foreign  int           // nodes of other clusters or regions that write to the same Store

	Saved    uint64        // snapshots that were written
	Failures uint64        // snapshots that could not be written
	Error    string        // error of the last snapshot if it could not be written, or empty
	Age      time.Duration // time since the writing of the last snapshot began; zero if there is none
	Took     time.Duration // duration of writing the last snapshot
	Bytes    int64         // size of the last snapshot
	Counts   int           // number of counts in the last snapshot
}

// Stats returns a snapshot of the counters of the node.
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
		Missing:   n.env.View().Missing(n.env.Monotonic()),
		Leases:    LeaseStats{HeldUnits: n.asker.HeldUnits(t), LentUnits: n.owner.LentUnits(t.Monotonic)},
		Stream:    StreamStats(n.handover.Stats()),
		Published: PublishedStats(n.published.Stats()),
		Snapshots: SnapshotStats(n.snapshots.Stats()),
		Holdings:  HoldingStats(n.regions.HoldingStats()),
		Regions:   regionStats(n.regions.Stats()),
		Outage:    OutageStats(n.outage.Stats()),
		Holds:     HoldStats(n.clients.holds.Stats()),
		Unjoined:  n.handover.UnjoinedTime(&c),
		Cluster:   c,

		EvictedUsedUp: n.counts.EvictedUsedUp(),
		Reservations:  ReservationStats(n.clients.reservations.Stats()),
	}
	s.read(&n.meters)
	return s
}

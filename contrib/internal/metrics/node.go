package metrics

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/buildinfo"
)

// NodeStats is the data of a node's metrics at one moment.
type NodeStats struct {
	weir.Stats
	Ready   bool
	Members []weir.Member
	Share   float64 // fraction of all keys that the ring assigns to the node
}

// ReadNode reads the data of a node's metrics.
func ReadNode(node *weir.Node) NodeStats {
	s := NodeStats{Stats: node.Stats(), Ready: node.Ready(), Members: node.Members()}
	for _, m := range s.Members {
		if m.Self {
			s.Share = node.Ring()[m.Name]
		}
	}
	return s
}

// OfNode returns the metrics of a node.
func OfNode() []Family[NodeStats] { return ofNode }

var ofNode = []Family[NodeStats]{
	{Name: "weir_build_info", Help: "Always 1. The labels have the version of Weir in this program, and the version of Go that built it.",
		Kind: Gauge, Labels: []string{"version", "goversion"}, Read: func(_ *NodeStats, emit Emit) {
			emit(1, buildinfo.Version(), runtime.Version())
		}},
	{Name: "weir_decisions_total", Help: "Decisions about the checks of this node, by source and outcome.",
		Kind: Counter, Labels: []string{"source", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			// The first value that has the text of an unknown source comes after the last source.
			for source := weir.Owner; source.String() != weir.Source(255).String(); source++ {
				o := s.Decisions[source]
				emit(float64(o.Allowed), source.String(), "allowed")
				emit(float64(o.Denied), source.String(), "denied")
			}
		}},
	{Name: "weir_limit_decisions_total", Help: "Decisions by limit. The limits after the first 4,096 names are counted together as (other).",
		Kind: Counter, Labels: []string{"limit", "source", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			for limit, of := range s.Limits {
				for source, o := range of {
					emit(float64(o.Allowed), quoteInvalid(limit), source.String(), "allowed")
					emit(float64(o.Denied), quoteInvalid(limit), source.String(), "denied")
				}
			}
		}},
	{Name: "weir_check_seconds", Help: "Duration of checks by source. The node measures each of the first few checks, and later 1 check in 64, which counts as 64 checks.",
		Kind: Histogram, Labels: []string{"source"}, Spread: func(s *NodeStats, emit EmitSpread) {
			for source := weir.Owner; source.String() != weir.Source(255).String(); source++ {
				emit(s.Latency[source], source.String())
			}
		}},
	{Name: "weir_limit_shadows_total", Help: "Decisions of shadows by limit. The names are those of weir_limit_decisions_total.",
		Kind: Counter, Labels: []string{"limit", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			for limit, o := range s.ShadowLimits {
				emit(float64(o.Allowed), quoteInvalid(limit), "allowed")
				emit(float64(o.Denied), quoteInvalid(limit), "denied")
			}
		}},
	{Name: "weir_bans_total", Help: "Bans by limit, counted by the node whose denial began the ban.",
		Kind: Counter, Labels: []string{"limit"}, Read: func(s *NodeStats, emit Emit) {
			for limit, b := range s.Bans {
				emit(float64(b.Begun), quoteInvalid(limit))
			}
		}},
	{Name: "weir_banned_total", Help: "Decisions by limit that denied a banned key. Other metrics of decisions include them.",
		Kind: Counter, Labels: []string{"limit"}, Read: func(s *NodeStats, emit Emit) {
			for limit, b := range s.Bans {
				emit(float64(b.Denied), quoteInvalid(limit))
			}
		}},
	split("weir_served_total", "Checks of other nodes by result: this node decided them, passed them on, or dropped them because their callers had given up.", Counter, "result",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"decided": s.Served, "passed": s.Passed, "overdue": s.Overdue}
		}),
	counter("weir_limit_conflicts_total", "Times that this node found two limits of the same name and version with different numbers, here or on another member.", func(s *NodeStats) uint64 { return s.Conflicts }),
	gauge("weir_keys", "Counts in memory.", func(s *NodeStats) int { return s.Keys }),
	gauge("weir_keys_max", "Maximum number of counts in memory (Config.MaxKeys).", func(s *NodeStats) int { return s.MaxKeys }),
	gauge("weir_store_bytes", "Memory of the counts in bytes, without the entries of sliding logs.", func(s *NodeStats) int { return s.Bytes }),
	counter("weir_evicted_total", "Counts that the node evicted before they had recovered, because weir_keys_max was reached.", func(s *NodeStats) uint64 { return s.Evicted }),
	counter("weir_evicted_used_up_total", "Evicted counts without units left. Their keys were denied, and have the whole limit again.", func(s *NodeStats) uint64 { return s.EvictedUsedUp }),
	gauge("weir_ready", "1 if the node is ready: it waits neither for authority over its counts, nor for a first other member, nor for snapshots that it loads.", func(s *NodeStats) bool { return s.Ready }),

	gauge("weir_holds", "Holds of the callers and clients of this node.", func(s *NodeStats) int { return s.Holds.Held }),
	gauge("weir_holds_known", "Holds of all nodes that this node knows, because it answers or recently answered for their counts, or has replicas.", func(s *NodeStats) int { return s.Holds.Known }),
	counter("weir_holds_lost_total", "Holds of this node that no member has renewed in time.", func(s *NodeStats) uint64 { return s.Holds.Lost }),

	split("weir_lease_units", "Units of leases: units left in the leases that this node holds, and the maximum number of lent units that other nodes can still spend.", Gauge, "direction",
		func(s *NodeStats) map[string]int {
			return map[string]int{"held": s.Leases.HeldUnits, "lent": s.Leases.LentUnits}
		}),

	split("weir_reservations_total", "Reservations by event: made, settled, canceled, exported as text (carried), or expired without being settled (unsettled).", Counter, "event",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{
				"made": s.Reservations.Made, "settled": s.Reservations.Settled, "canceled": s.Reservations.Canceled, "carried": s.Reservations.Carried, "unsettled": s.Reservations.Unsettled,
			}
		}),
	split("weir_reservation_units_total", "Units that reservations refunded because estimates exceeded the actual costs (returned), and debited because estimates fell short of them (debited).", Counter, "direction",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"returned": s.Reservations.UnitsReturned, "debited": s.Reservations.UnitsDebited}
		}),

	gauge("weir_outage_since_timestamp_seconds", "Start of the current outage in Unix time in seconds. 0 without an outage.", func(s *NodeStats) time.Time { return s.Outage.Since }),
	gauge("weir_outage_missing", "Members that are not reachable, have stalled, or did not answer a check in time, in the current outage.", func(s *NodeStats) int { return len(s.Outage.Missing) }),
	counter("weir_outages_total", "Outages of this node that have begun.", func(s *NodeStats) uint64 { return s.Outage.Count }),

	gauge("weir_stream_unsent", "Counts with changes that a member has not acknowledged.", func(s *NodeStats) int { return s.Stream.Unsent }),
	gauge("weir_stream_lag_seconds", "Age in seconds of the oldest change that a member has not acknowledged.", func(s *NodeStats) time.Duration { return s.Stream.Lag }),
	counter("weir_stream_sent_total", "Counts that this node sent to other members. A count that is sent again counts again.", func(s *NodeStats) uint64 { return s.Stream.Sent }),
	gauge("weir_stream_tallies", "Tallies of counts from which several nodes, or a node without authority, have spent units.", func(s *NodeStats) int { return s.Stream.Tallies }),
	split("weir_state_dropped_total", "State for which this node had no room, by kind.", Counter, "kind",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{
				"tally": s.Stream.TalliesDropped, "reset": s.Stream.ResetsDropped, "published": s.Published.Dropped, "holding": s.Holdings.Beyond,
			}
		}),

	gauge("weir_published_values", "Published values that are not deleted.", func(s *NodeStats) int { return s.Published.Values }),
	gauge("weir_published_bytes", "Size of the published names and values in bytes.", func(s *NodeStats) int { return s.Published.Bytes }),

	gauge("weir_snapshot_age_seconds", "Seconds since the start of the last snapshot of counts. 0 if the node has written no snapshot.", func(s *NodeStats) time.Duration { return s.Snapshots.Age }),
	gauge("weir_snapshot_failed", "1 if the last attempt to write a snapshot failed.", func(s *NodeStats) bool { return s.Snapshots.Error != "" }),
	split("weir_snapshot_seconds", "Seconds in which the node wrote the last snapshot, and loaded snapshots at its start.", Gauge, "operation",
		func(s *NodeStats) map[string]time.Duration {
			return map[string]time.Duration{"write": s.Snapshots.Took, "load": s.Snapshots.LoadTook}
		}),
	gauge("weir_snapshot_bytes", "Size of the last snapshot in bytes.", func(s *NodeStats) int64 { return s.Snapshots.Bytes }),
	counter("weir_snapshot_saved_total", "Snapshots that this node has written.", func(s *NodeStats) uint64 { return s.Snapshots.Saved }),
	counter("weir_snapshot_refused_total", "Snapshots that this node did not load at its start, or not to their end.", func(s *NodeStats) int { return s.Snapshots.Refused }),
	gauge("weir_snapshot_foreign", "Nodes of other clusters or regions that write snapshots to the same place.", func(s *NodeStats) int { return s.Snapshots.Foreign }),

	ofRegion("weir_region_reached", "1 if the region answered within the last ten seconds. It is also 0 if this node had no statements to send.", Gauge, func(r weir.RegionStats) bool { return r.Reached }),
	ofRegion("weir_region_statements_total", "Statements that this node sent to the region, each about one key.", Counter, func(r weir.RegionStats) uint64 { return r.Statements }),
	ofRegion("weir_region_unanswered_total", "Statements that this node sent to the region, and that the region did not answer.", Counter, func(r weir.RegionStats) uint64 { return r.Unanswered }),
	splitRegion("weir_region_refused_total", "Messages of the region that this node refused, by reason. disputed: the Regions or RegionShares of the region differ. forbidden: the messages exceed the permitted rate or size, or regions may not send them.", Counter, "reason",
		func(r weir.RegionStats) map[string]uint64 {
			return map[string]uint64{"disputed": r.Disputed, "forbidden": r.Refused}
		}),
	splitRegion("weir_region_bytes_total", "Bytes of the statements and answers exchanged with the region, without the overhead of the connection.", Counter, "direction",
		func(r weir.RegionStats) map[string]uint64 {
			return map[string]uint64{"sent": r.Sent, "received": r.Received}
		}),

	{Name: "weir_cluster_refused_total", Help: "Connections, gossip packets and members that this node refused at its peer port, by reason.",
		Kind: Counter, Labels: []string{"reason"}, Read: func(s *NodeStats, emit Emit) {
			for _, reason := range refusals {
				emit(float64(s.Cluster.Refused[reason]), reason)
			}
			for reason, n := range s.Cluster.Refused { // a cluster.Cluster from another package may have other reasons
				if !slices.Contains(refusals, reason) {
					emit(float64(n), quoteInvalid(reason))
				}
			}
		}},
	split("weir_cluster_faults_total", "Requests that were not answered in time, answers that arrived too late, and messages dropped because a queue was full or the message was too long.", Counter, "kind",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"timeout": s.Cluster.Timeouts, "late": s.Cluster.Late, "dropped": s.Cluster.Dropped}
		}),
	gauge("weir_cluster_join_failed", "1 if the last attempt to join failed.", func(s *NodeStats) bool { return s.Cluster.JoinError != "" }),
	gauge("weir_cluster_unjoined_seconds", "Seconds since its start for which this node has counted alone although Config.Join names other nodes. 0 after it has met a member.", func(s *NodeStats) time.Duration { return s.Unjoined }),
	split("weir_cluster_round_trip_seconds", "Median and maximum of the smoothed mean round trip times to members in seconds. The failure detector uses these times.", Gauge, "statistic",
		func(s *NodeStats) map[string]time.Duration {
			median, most := spreadOf(s.Cluster.RoundTrips)
			return map[string]time.Duration{"median": median, "max": most}
		}),
	gauge("weir_cluster_scheduling_delay_seconds", "Delay in seconds with which the timers of this process fire, at most a second.", func(s *NodeStats) time.Duration { return s.Cluster.SchedulingDelay }),
	gauge("weir_cluster_missing_seconds", "Longest time in seconds for which a member has been missing from the side of this node. 0 if no member is missing.", func(s *NodeStats) time.Duration {
		_, most := spreadOf(s.Missing)
		return most
	}),
	gauge("weir_ring_share_ratio", "Fraction of all keys that this node owns, 0 to 1.", func(s *NodeStats) float64 { return s.Share }),
	{Name: "weir_cluster_members", Help: "Members in the roster of this node, including this node, by state.",
		Kind: Gauge, Labels: []string{"state"}, Read: func(s *NodeStats, emit Emit) {
			for _, state := range states {
				n := 0
				for _, m := range s.Members {
					if m.State == state {
						n++
					}
				}
				emit(float64(n), state.String())
			}
		}},
}

// spreadOf returns the median and the maximum of the times of members, or zeros without
// members. No metric has the name of a member as a label, so the number of series does
// not depend on the size of the cluster.
func spreadOf(times map[string]time.Duration) (median, most time.Duration) {
	if len(times) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(maps.Values(times))
	return sorted[(len(sorted)-1)/2], sorted[len(sorted)-1]
}

// Refusals returns the reasons by which package cluster counts refusals.
func Refusals() []string { return refusals }

var refusals = []string{"garbage", "version", "oversized", "authentication", "record", "tls", "seed", "region", "identity", "timeout", "crowded", "packet", "flood", "members"}

// States returns the states that weir.Node.Members reports.
func States() []weir.MemberState { return states }

var states = []weir.MemberState{weir.Joining, weir.Serving, weir.Missing, weir.Dead}

// quoteInvalid quotes a name that is not valid UTF-8, because such a label would fail the
// whole scrape.
func quoteInvalid(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.Quote(name)
}

func ofRegion[N number](name, help string, kind Kind, read func(r weir.RegionStats) N) Family[NodeStats] {
	return Family[NodeStats]{Name: name, Help: help, Kind: kind, Labels: []string{"region"}, Read: func(s *NodeStats, emit Emit) {
		for region, r := range s.Regions {
			emit(valueOf(read(r)), quoteInvalid(region))
		}
	}}
}

// splitRegion returns a family with a series for each region and each value of another
// label.
func splitRegion[N number](name, help string, kind Kind, label string, read func(r weir.RegionStats) map[string]N) Family[NodeStats] {
	return Family[NodeStats]{Name: name, Help: help, Kind: kind, Labels: []string{"region", label}, Read: func(s *NodeStats, emit Emit) {
		for region, r := range s.Regions {
			for value, n := range read(r) {
				emit(valueOf(n), quoteInvalid(region), value)
			}
		}
	}}
}

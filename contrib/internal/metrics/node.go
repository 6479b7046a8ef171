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

// NodeStats is a reading of a node.
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
	{Name: "weir_build_info", Help: "Always 1; the version of Weir in this program, and the version of Go that built it.",
		Kind: Gauge, Labels: []string{"version", "goversion"}, Read: func(_ *NodeStats, emit Emit) {
			emit(1, buildinfo.Version(), runtime.Version())
		}},
	{Name: "weir_decisions_total", Help: "Decisions for checks of this node, by source and outcome.",
		Kind: Counter, Labels: []string{"source", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			// The names end after the last source.
			for source := weir.Owner; source.String() != weir.Source(255).String(); source++ {
				o := s.Decisions[source]
				emit(float64(o.Allowed), source.String(), "allowed")
				emit(float64(o.Denied), source.String(), "denied")
			}
		}},
	{Name: "weir_limit_decisions_total", Help: "Decisions by limit; limits beyond the first 4,096 names share (other).",
		Kind: Counter, Labels: []string{"limit", "source", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			for limit, of := range s.Limits {
				for source, o := range of {
					emit(float64(o.Allowed), quoteInvalid(limit), source.String(), "allowed")
					emit(float64(o.Denied), quoteInvalid(limit), source.String(), "denied")
				}
			}
		}},
	{Name: "weir_check_seconds", Help: "Duration of checks by source; one in 64 is measured, and counts for 64.",
		Kind: Histogram, Labels: []string{"source"}, Spread: func(s *NodeStats, emit EmitSpread) {
			for source := weir.Owner; source.String() != weir.Source(255).String(); source++ {
				emit(s.Latency[source], source.String())
			}
		}},
	{Name: "weir_limit_shadows_total", Help: "Decisions of shadows by limit, with the names of weir_limit_decisions_total.",
		Kind: Counter, Labels: []string{"limit", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			for limit, o := range s.ShadowLimits {
				emit(float64(o.Allowed), quoteInvalid(limit), "allowed")
				emit(float64(o.Denied), quoteInvalid(limit), "denied")
			}
		}},
	split("weir_served_total", "Checks of other nodes by result: decided here, passed on, or dropped because their callers had given up.", Counter, "result",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"decided": s.Served, "passed": s.Passed, "overdue": s.Overdue}
		}),
	counter("weir_limit_conflicts_total", "Times that limits of one name and version had other numbers, here or on another member.", func(s *NodeStats) uint64 { return s.Conflicts }),
	gauge("weir_keys", "Counts held.", func(s *NodeStats) int { return s.Keys }),
	gauge("weir_keys_max", "The most counts that may be held: MaxKeys.", func(s *NodeStats) int { return s.MaxKeys }),
	gauge("weir_store_bytes", "Memory of counts, without the entries of sliding logs.", func(s *NodeStats) int { return s.Bytes }),
	counter("weir_evicted_total", "Counts evicted before they had recovered, because MaxKeys was reached.", func(s *NodeStats) uint64 { return s.Evicted }),
	counter("weir_evicted_used_up_total", "Counts evicted with nothing left: denied keys that start again.", func(s *NodeStats) uint64 { return s.EvictedUsedUp }),
	gauge("weir_ready", "1 if the node waits for no authority, nor for a first member.", func(s *NodeStats) bool { return s.Ready }),

	gauge("weir_holds", "Holds of this node's callers and clients.", func(s *NodeStats) int { return s.Holds.Held }),
	gauge("weir_holds_known", "Holds of all nodes that this node knows, as it answers for their counts or did so lately.", func(s *NodeStats) int { return s.Holds.Known }),
	counter("weir_holds_lost_total", "Holds of this node that no member has renewed in time.", func(s *NodeStats) uint64 { return s.Holds.Lost }),

	split("weir_lease_units", "Units left in the leases that this node holds, and lent units that others may still spend, at most.", Gauge, "direction",
		func(s *NodeStats) map[string]int {
			return map[string]int{"held": s.Leases.HeldUnits, "lent": s.Leases.LentUnits}
		}),

	split("weir_reservations_total", "Reservations by event: made, settled, canceled, carried as a text, or expired unsettled.", Counter, "event",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{
				"made": s.Reservations.Made, "settled": s.Reservations.Settled, "canceled": s.Reservations.Canceled, "carried": s.Reservations.Carried, "unsettled": s.Reservations.Unsettled,
			}
		}),
	split("weir_reservation_units_total", "Units by which estimates exceeded the actual costs, and by which they fell short.", Counter, "direction",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"returned": s.Reservations.UnitsReturned, "debited": s.Reservations.UnitsDebited}
		}),

	gauge("weir_outage_since_timestamp_seconds", "Start of the current outage in Unix time, 0 if there is none.", func(s *NodeStats) time.Time { return s.Outage.Since }),
	gauge("weir_outage_missing", "Members that are unreachable, stalled or late in the current outage.", func(s *NodeStats) int { return len(s.Outage.Missing) }),
	counter("weir_outages_total", "Outages that have begun.", func(s *NodeStats) uint64 { return s.Outage.Count }),

	gauge("weir_stream_unsent", "Counts with changes that some member has not acknowledged.", func(s *NodeStats) int { return s.Stream.Unsent }),
	gauge("weir_stream_lag_seconds", "Age of the oldest change that is not acknowledged.", func(s *NodeStats) time.Duration { return s.Stream.Lag }),
	counter("weir_stream_sent_total", "Counts sent to other members.", func(s *NodeStats) uint64 { return s.Stream.Sent }),
	gauge("weir_stream_tallies", "Tallies of counts that several nodes, or one without authority, have spent from.", func(s *NodeStats) int { return s.Stream.Tallies }),
	split("weir_state_dropped_total", "State for which this node had no room, by kind.", Counter, "kind",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{
				"tally": s.Stream.TalliesDropped, "reset": s.Stream.ResetsDropped, "published": s.Published.Dropped, "holding": s.Holdings.Beyond,
			}
		}),

	gauge("weir_published_values", "Published values in force.", func(s *NodeStats) int { return s.Published.Values }),
	gauge("weir_published_bytes", "Size of published names and values.", func(s *NodeStats) int { return s.Published.Bytes }),

	gauge("weir_snapshot_age_seconds", "Time since the last snapshot of counts was begun; 0 if none was written.", func(s *NodeStats) time.Duration { return s.Snapshots.Age }),
	gauge("weir_snapshot_failed", "1 if the last attempt to write a snapshot failed.", func(s *NodeStats) bool { return s.Snapshots.Error != "" }),
	split("weir_snapshot_seconds", "Duration of writing the last snapshot, and of loading snapshots at the start.", Gauge, "operation",
		func(s *NodeStats) map[string]time.Duration {
			return map[string]time.Duration{"write": s.Snapshots.Took, "load": s.Snapshots.LoadTook}
		}),
	gauge("weir_snapshot_bytes", "Size of the last snapshot.", func(s *NodeStats) int64 { return s.Snapshots.Bytes }),
	counter("weir_snapshot_saved_total", "Snapshots written.", func(s *NodeStats) uint64 { return s.Snapshots.Saved }),
	counter("weir_snapshot_refused_total", "Snapshots that were not loaded at the start, or not to their end.", func(s *NodeStats) int { return s.Snapshots.Refused }),
	gauge("weir_snapshot_foreign", "Nodes of other clusters or regions that write snapshots to the same place.", func(s *NodeStats) int { return s.Snapshots.Foreign }),

	ofRegion("weir_region_reached", "1 if the region answered within the last ten seconds; it is asked only if there is something to tell.", Gauge, func(r weir.RegionStats) bool { return r.Reached }),
	ofRegion("weir_region_statements_total", "Statements sent to the region.", Counter, func(r weir.RegionStats) uint64 { return r.Statements }),
	ofRegion("weir_region_unanswered_total", "Statements sent to the region that it did not answer.", Counter, func(r weir.RegionStats) uint64 { return r.Unanswered }),
	splitRegion("weir_region_refused_total", "Messages of the region that were refused: its Regions or RegionShares differ, or they exceed its rate or size, or are forbidden to a region.", Counter, "reason",
		func(r weir.RegionStats) map[string]uint64 {
			return map[string]uint64{"disputed": r.Disputed, "forbidden": r.Refused}
		}),
	splitRegion("weir_region_bytes_total", "Size of the statements and answers exchanged with the region.", Counter, "direction",
		func(r weir.RegionStats) map[string]uint64 {
			return map[string]uint64{"sent": r.Sent, "received": r.Received}
		}),

	{Name: "weir_cluster_refused_total", Help: "Connections and gossip refused at the peer port, by reason.",
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
	split("weir_cluster_faults_total", "Requests without an answer in time, answers that came too late, and messages refused because a queue was full.", Counter, "kind",
		func(s *NodeStats) map[string]uint64 {
			return map[string]uint64{"timeout": s.Cluster.Timeouts, "late": s.Cluster.Late, "dropped": s.Cluster.Dropped}
		}),
	gauge("weir_cluster_join_failed", "1 if the last attempt to join failed.", func(s *NodeStats) bool { return s.Cluster.JoinError != "" }),
	gauge("weir_cluster_unjoined_seconds", "Time for which this node has counted alone although Join names others; 0 once it meets one.", func(s *NodeStats) time.Duration { return s.Unjoined }),
	split("weir_cluster_round_trip_seconds", "Smoothed mean response times of members, as the failure detector uses them: their median and maximum.", Gauge, "statistic",
		func(s *NodeStats) map[string]time.Duration {
			median, most := spreadOf(s.Cluster.RoundTrips)
			return map[string]time.Duration{"median": median, "max": most}
		}),
	gauge("weir_cluster_scheduling_delay_seconds", "SchedulingDelay of this process's timers, up to a second.", func(s *NodeStats) time.Duration { return s.Cluster.SchedulingDelay }),
	gauge("weir_cluster_missing_seconds", "Time for which a member is missing from this node's side, the longest of all; 0 if none is.", func(s *NodeStats) time.Duration {
		_, most := spreadOf(s.Missing)
		return most
	}),
	gauge("weir_ring_share_ratio", "This node's part of all keys on the ring.", func(s *NodeStats) float64 { return s.Share }),
	{Name: "weir_cluster_members", Help: "Members of this node's roster, itself included, by state.",
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

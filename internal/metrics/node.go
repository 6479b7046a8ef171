package metrics

import (
	"runtime"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/release"
)

// NodeStats is one reading of a node.
type NodeStats struct {
	weir.Stats
	Ready   bool
	Members []weir.Member
	Share   float64 // of all keys, that the ring gives to it
}

// ReadNode reads all that a node's metrics are made of.
func ReadNode(node *weir.Node) NodeStats {
	s := NodeStats{Stats: node.Stats(), Ready: node.Ready(), Members: node.Members()}
	for _, m := range s.Members {
		if m.Self {
			s.Share = node.Ring()[m.Name]
		}
	}
	return s
}

// OfNode are the metrics of a node.
func OfNode() []Family[NodeStats] { return ofNode }

var ofNode = []Family[NodeStats]{
	{Name: "weir_build_info", Help: "Always 1; the version of Weir in this program, and the version of Go that built it.",
		Kind: Gauge, Labels: []string{"version", "goversion"}, Read: func(_ *NodeStats, emit Emit) {
			emit(1, release.Version(), runtime.Version())
		}},
	{Name: "weir_decisions_total", Help: "Decisions for checks of this node, by source and outcome.",
		Kind: Counter, Labels: []string{"source", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			// Past the last source the names end.
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
					emit(float64(o.Allowed), label(limit), source.String(), "allowed")
					emit(float64(o.Denied), label(limit), source.String(), "denied")
				}
			}
		}},
	{Name: "weir_check_seconds", Help: "Duration of checks by source; one in 64 is measured, and counts for 64.",
		Kind: Histogram, Labels: []string{"source"}, Spread: func(s *NodeStats, emit EmitSpread) {
			for source := weir.Owner; source.String() != weir.Source(255).String(); source++ {
				emit(s.Latency[source], source.String())
			}
		}},
	gauge("weir_top_keys_asked", "Keys asked for most that are remembered.", func(s *NodeStats) int { return s.TopKeys.Asked }),
	gauge("weir_top_keys_denied", "Keys denied most that are remembered.", func(s *NodeStats) int { return s.TopKeys.Denied }),
	counter("weir_top_keys_dropped_total", "Asks left out of the top keys, because another was being counted.", func(s *NodeStats) uint64 { return s.TopKeys.Dropped }),
	{Name: "weir_shadows_total", Help: "Decisions of shadows, which are not enforced and not among the other decisions.",
		Kind: Counter, Labels: []string{"outcome"}, Read: func(s *NodeStats, emit Emit) {
			emit(float64(s.Shadows.Allowed), "allowed")
			emit(float64(s.Shadows.Denied), "denied")
		}},
	{Name: "weir_limit_shadows_total", Help: "Decisions of shadows by limit, with the names of weir_limit_decisions_total.",
		Kind: Counter, Labels: []string{"limit", "outcome"}, Read: func(s *NodeStats, emit Emit) {
			for limit, o := range s.ShadowLimits {
				emit(float64(o.Allowed), label(limit), "allowed")
				emit(float64(o.Denied), label(limit), "denied")
			}
		}},
	counter("weir_served_total", "Checks of other nodes that were decided here.", func(s *NodeStats) uint64 { return s.Served }),
	counter("weir_passed_total", "Checks that arrived here and were passed on.", func(s *NodeStats) uint64 { return s.Passed }),
	counter("weir_overdue_total", "Checks of other nodes dropped because their callers had given up.", func(s *NodeStats) uint64 { return s.Overdue }),
	counter("weir_late_units_total", "Units of late answers, which were refunded.", func(s *NodeStats) uint64 { return s.LateUnits }),
	counter("weir_canceled_total", "Checks whose callers left before a decision; they are not among the decisions.", func(s *NodeStats) uint64 { return s.Canceled }),
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

	gauge("weir_leases_held", "Leases that other nodes have lent to this node.", func(s *NodeStats) int { return s.Leases.Held }),
	gauge("weir_leases_held_units", "Units left in the leases that this node holds.", func(s *NodeStats) int { return s.Leases.HeldUnits }),
	gauge("weir_leases_lent", "Counts of which this node has lent units.", func(s *NodeStats) int { return s.Leases.Lent }),
	gauge("weir_leases_lent_units", "Lent units that others may still spend, at most.", func(s *NodeStats) int { return s.Leases.LentUnits }),

	counter("weir_reservations_made_total", "Reservations whose estimate was allowed.", func(s *NodeStats) uint64 { return s.Reservations.Made }),
	counter("weir_reservations_settled_total", "Reservations settled with their actual cost.", func(s *NodeStats) uint64 { return s.Reservations.Settled }),
	counter("weir_reservations_canceled_total", "Reservations canceled: the whole estimate was given back.", func(s *NodeStats) uint64 { return s.Reservations.Canceled }),
	counter("weir_reservations_carried_total", "Reservations made here whose text was given out, for any process to settle.", func(s *NodeStats) uint64 { return s.Reservations.Carried }),
	counter("weir_reservations_unsettled_total", "Reservations that expired unsettled: their estimates stay spent.", func(s *NodeStats) uint64 { return s.Reservations.Unsettled }),
	counter("weir_reservations_returned_units_total", "Units that estimates exceeded the actual costs by.", func(s *NodeStats) uint64 { return s.Reservations.UnitsReturned }),
	counter("weir_reservations_debited_units_total", "Units that estimates fell short of the actual costs by.", func(s *NodeStats) uint64 { return s.Reservations.UnitsDebited }),

	gauge("weir_outage_since_timestamp_seconds", "Start of the current outage in Unix time, 0 if there is none.", func(s *NodeStats) time.Time { return s.Outage.Since }),
	gauge("weir_outage_missing", "Members that are unreachable, stalled or late in the current outage.", func(s *NodeStats) int { return len(s.Outage.Missing) }),
	gauge("weir_outage_decisions", "Decisions in the current outage that owners did not make.", func(s *NodeStats) uint64 { return s.Outage.Decisions }),
	counter("weir_outages_total", "Outages that have begun.", func(s *NodeStats) uint64 { return s.Outage.Count }),

	gauge("weir_stream_unsent", "Counts with changes that some member has not acknowledged.", func(s *NodeStats) int { return s.Stream.Unsent }),
	gauge("weir_stream_lag_seconds", "Age of the oldest change that is not acknowledged.", func(s *NodeStats) time.Duration { return s.Stream.Lag }),
	counter("weir_stream_sent_total", "Counts sent to other members.", func(s *NodeStats) uint64 { return s.Stream.Sent }),
	gauge("weir_stream_tallies", "Tallies of counts that several nodes, or one without authority, have spent from.", func(s *NodeStats) int { return s.Stream.Tallies }),
	gauge("weir_stream_resets", "Resets of the last 20 minutes that are remembered.", func(s *NodeStats) int { return s.Stream.Resets }),
	gauge("weir_stream_bytes", "Approximate size of tallies and resets.", func(s *NodeStats) int { return s.Stream.Bytes }),
	counter("weir_stream_tallies_dropped_total", "Tallies dropped before they had recovered, because there were too many.", func(s *NodeStats) uint64 { return s.Stream.TalliesDropped }),
	counter("weir_stream_resets_dropped_total", "Resets dropped early, because there were too many.", func(s *NodeStats) uint64 { return s.Stream.ResetsDropped }),

	gauge("weir_published_values", "Published values in force.", func(s *NodeStats) int { return s.Published.Values }),
	gauge("weir_published_tombstones", "Published names removed within the last day.", func(s *NodeStats) int { return s.Published.Tombstones }),
	gauge("weir_published_bytes", "Size of published names and values.", func(s *NodeStats) int { return s.Published.Bytes }),
	gauge("weir_published_revision", "Grows with each change of published values that reaches this node.", func(s *NodeStats) uint64 { return s.Published.Revision }),
	counter("weir_published_dropped_total", "Published names dropped for lack of room: two sides of a split had too many together.", func(s *NodeStats) uint64 { return s.Published.Dropped }),

	gauge("weir_snapshot_age_seconds", "Time since the last snapshot of counts was begun; 0 if none was written.", func(s *NodeStats) time.Duration { return s.Snapshots.Age }),
	gauge("weir_snapshot_failed", "1 if the last attempt to write a snapshot failed.", func(s *NodeStats) bool { return s.Snapshots.Error != "" }),
	gauge("weir_snapshot_seconds", "Duration of writing the last snapshot.", func(s *NodeStats) time.Duration { return s.Snapshots.Took }),
	gauge("weir_snapshot_bytes", "Size of the last snapshot.", func(s *NodeStats) int64 { return s.Snapshots.Bytes }),
	gauge("weir_snapshot_counts", "Counts in the last snapshot.", func(s *NodeStats) int { return s.Snapshots.Counts }),
	counter("weir_snapshot_saved_total", "Snapshots written.", func(s *NodeStats) uint64 { return s.Snapshots.Saved }),
	counter("weir_snapshot_failures_total", "Snapshots that were not written.", func(s *NodeStats) uint64 { return s.Snapshots.Failures }),
	gauge("weir_snapshot_loading", "1 while the node loads snapshots, and is not ready.", func(s *NodeStats) bool { return s.Snapshots.Loading }),
	gauge("weir_snapshot_loaded_counts", "Counts loaded at the start.", func(s *NodeStats) int { return s.Snapshots.Loaded }),
	gauge("weir_snapshot_load_seconds", "Duration of loading snapshots at the start.", func(s *NodeStats) time.Duration { return s.Snapshots.LoadTook }),
	counter("weir_snapshot_refused_total", "Snapshots that were not loaded at the start, or not to their end.", func(s *NodeStats) int { return s.Snapshots.Refused }),
	counter("weir_snapshot_skipped_total", "Snapshots that were not loaded at the start, as the cluster went on without their node.", func(s *NodeStats) int { return s.Snapshots.Skipped }),
	gauge("weir_snapshot_foreign", "Nodes of other clusters or regions that write snapshots to the same place.", func(s *NodeStats) int { return s.Snapshots.Foreign }),

	gauge("weir_holdings", "Keys of Global limits with a holding here, copies included.", func(s *NodeStats) int { return s.Holdings.Keys }),
	counter("weir_holdings_beyond_total", "Times that there was no room for a key's holding.", func(s *NodeStats) uint64 { return s.Holdings.Beyond }),

	ofRegion("weir_region_reached", "1 if the region answered within the last ten seconds; it is asked only if there is something to tell.", Gauge, func(r weir.RegionStats) bool { return r.Reached }),
	ofRegion("weir_region_lag_seconds", "Time for which the region has answered no statement; 0 once it answers one.", Gauge, func(r weir.RegionStats) time.Duration { return r.Lag }),
	ofRegion("weir_region_statements_total", "Statements sent to the region.", Counter, func(r weir.RegionStats) uint64 { return r.Statements }),
	ofRegion("weir_region_unanswered_total", "Statements sent to the region that it did not answer.", Counter, func(r weir.RegionStats) uint64 { return r.Unanswered }),
	ofRegion("weir_region_served_total", "Statements of the region that were answered here.", Counter, func(r weir.RegionStats) uint64 { return r.Served }),
	ofRegion("weir_region_disputed_total", "Messages refused because the region's Regions or RegionShares differ.", Counter, func(r weir.RegionStats) uint64 { return r.Disputed }),
	ofRegion("weir_region_refused_total", "Requests of the region that were refused: beyond its rate or size, or forbidden to a region.", Counter, func(r weir.RegionStats) uint64 { return r.Refused }),
	ofRegion("weir_region_sent_bytes_total", "Size of the statements and answers sent to the region.", Counter, func(r weir.RegionStats) uint64 { return r.Sent }),
	ofRegion("weir_region_received_bytes_total", "Size of the statements and answers received from the region.", Counter, func(r weir.RegionStats) uint64 { return r.Received }),

	{Name: "weir_cluster_refused_total", Help: "Connections and gossip refused at the peer port, by reason.",
		Kind: Counter, Labels: []string{"reason"}, Read: func(s *NodeStats, emit Emit) {
			for _, reason := range refusals {
				emit(float64(s.Cluster.Refused[reason]), reason)
			}
			for reason, n := range s.Cluster.Refused { // a cluster.Cluster that is not ours may have its own
				if !slices.Contains(refusals, reason) {
					emit(float64(n), label(reason))
				}
			}
		}},
	counter("weir_cluster_timeouts_total", "Requests to other nodes without an answer in time.", func(s *NodeStats) uint64 { return s.Cluster.Timeouts }),
	counter("weir_cluster_late_total", "Answers of other nodes that came too late.", func(s *NodeStats) uint64 { return s.Cluster.Late }),
	counter("weir_cluster_dropped_total", "Messages to other nodes refused because a queue was full.", func(s *NodeStats) uint64 { return s.Cluster.Dropped }),
	gauge("weir_cluster_join_failed", "1 if the last attempt to join failed.", func(s *NodeStats) bool { return s.Cluster.JoinError != "" }),
	gauge("weir_cluster_join_reached", "Members that the last attempt to join reached.", func(s *NodeStats) int { return s.Cluster.JoinedCount }),
	gauge("weir_cluster_join_unanswered", "Entries of Join at which no other node has answered since the start.", func(s *NodeStats) int { return len(s.Cluster.Unanswered) }),
	gauge("weir_cluster_unjoined_seconds", "Time for which this node has counted alone although Join names others; 0 once it meets one.", func(s *NodeStats) time.Duration { return s.Unjoined }),
	ofMember("weir_cluster_round_trip_seconds", "Smoothed mean of a member's response time, as the failure detector uses it.",
		func(s *NodeStats) map[string]time.Duration { return s.Cluster.RoundTrips }),
	gauge("weir_cluster_lateness_seconds", "Lateness of this process's timers, up to a second.", func(s *NodeStats) time.Duration { return s.Cluster.Lateness }),
	ofMember("weir_cluster_unheard_seconds", "Time since this node's side last heard a member; heard members have no series.",
		func(s *NodeStats) map[string]time.Duration { return s.Unheard }),
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

// Refusals are the reasons that package cluster counts by.
func Refusals() []string { return refusals }

var refusals = []string{"garbage", "version", "oversized", "authentication", "record", "tls", "seed", "region", "identity", "timeout", "crowded", "packet", "flood", "members"}

// States are those that weir.Node.Members has.
func States() []weir.MemberState { return states }

var states = []weir.MemberState{weir.Joining, weir.Serving, weir.Unheard, weir.Dead}

// label is a name as a label may have it: one that is not UTF-8 would cost the
// whole scrape.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.Quote(name)
}

// ofMember has a series for each member of a map: no more than a roster has, 1,024.
func ofMember(name, help string, read func(s *NodeStats) map[string]time.Duration) Family[NodeStats] {
	return Family[NodeStats]{Name: name, Help: help, Kind: Gauge, Labels: []string{"member"}, Read: func(s *NodeStats, emit Emit) {
		for member, d := range read(s) {
			emit(d.Seconds(), label(member))
		}
	}}
}

func ofRegion[N number](name, help string, kind Kind, read func(r weir.RegionStats) N) Family[NodeStats] {
	return Family[NodeStats]{Name: name, Help: help, Kind: kind, Labels: []string{"region"}, Read: func(s *NodeStats, emit Emit) {
		for region, r := range s.Regions {
			emit(valueOf(read(r)), label(region))
		}
	}}
}

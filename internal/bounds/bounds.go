// Package bounds computes the maximum number of units that a limit admits in each
// situation. It is the only home of the formulas in docs/guarantees.md, by which the
// simulator and the demo judge.
//
// The package is pure. A formula holds for every window of the limit's Per, over all
// nodes, or over all regions of a Global limit.
package bounds

import (
	"math"

	"github.com/weir-go/weir"
)

// Situation describes the events in a window, or in the two seconds before the window. The
// zero value is a healthy cluster. If there are several events, the additional units that
// they admit are summed: each event lets units be spent a second time, and no event undoes
// an earlier event.
type Situation struct {
	// Changes is c of the guarantees table, the number of changes of connectivity. A
	// split into m sides counts m−1, and the end of the split counts m−1 again.
	Changes int
	Sides   int // maximum number of sides at the same time that know of each other; 0 or 1 if there is no split
	Crashes int // crashes of owners with a copy of their counts on another member
	Bare    int // crashes of owners without a copy of their counts on another member
	Late    int // spells in which an owner lives but does not answer in time
	// Strangers is the number of sides that the other sides do not know, because they have
	// never met or have forgotten each other. Each of them may have the whole limit in
	// addition to the other sides.
	Strangers int
	Nodes     int     // maximum number of nodes that ran at the same time; used for FailOpen
	Stepped   float64 // units that became available because clocks stepped forward, as a multiple of Healthy
	// InFlight is the number of units that were in flight when authority moved or an
	// owner crashed. A start or a leave counts a unit, and the units that the limit
	// grants in a round trip. A crash counts the units that were admitted in two round
	// trips.
	InFlight int64
	// Unsaved is the number of units that were admitted before a stop of all nodes and
	// are in no snapshot that was loaded since. For a limit whose counts are in
	// snapshots, it is 0 after an orderly stop. After a crash of all nodes, it counts the
	// units since each node's last snapshot. For other limits, all units are unsaved.
	Unsaved int64

	// Global reports whether the limit is a Global limit over regions. In this case,
	// Regional is the sum of the Excess of all regions, because the part of a region is
	// at most Healthy. Bound then uses only Regional, Crashes, InFlight and Unsaved.
	Global   bool
	Regional float64
}

// Capacity returns the number of units that a limit can grant at one time. A split
// divides the capacity between the sides, and copies may lag by a sixteenth of it.
func Capacity(l *weir.Limit) int64 {
	if IsBucket(l) && l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// Healthy returns L, the maximum that the algorithm admits in a healthy cluster
// (docs/algorithms.md). It includes schedules with refunds, because late answers are
// refunded. For a SlidingWindow or a FixedWindow of a single unit, L is 1 if windows begin
// with the first check of a key, because no window precedes that check. The windows of a
// Global or a calendar limit begin by the clock. Such a limit of a single unit admits a unit
// at the end of a window, and a second unit when the next window begins.
func Healthy(l *weir.Limit) int64 {
	byClock := l.Scope == weir.Global || l.Calendar != 0
	switch {
	case l.Algorithm == weir.SlidingLog:
		return l.Rate
	case IsBucket(l):
		return Capacity(l) + l.Rate
	case l.Rate == 1 && !byClock:
		return 1
	}
	return 2 * l.Rate
}

// Excess returns the units that a situation admits in addition to L, as a multiple of L
// (docs/partitions.md):
//
//   - A change of connectivity: L. Until a side has noticed the change, it has the units that
//     it had before. When three or more sides meet, some nodes are connected to most members,
//     but not to the owner, for a moment.
//   - A split by MajorityShare: below 1.5·L in total, and as much again with each change of
//     connectivity. A majority has L, and the rest has less than half of L.
//   - A split by FailOpen: L for each other side. While a change has effects, also L for each
//     node, until its side agrees on a stand-in.
//   - An owner that is late: L. The asking node cannot distinguish a late owner from a lost
//     owner, and the stand-in has the whole limit.
//   - A crash without a copy: L. The count begins again.
//   - A side that does not know of a second side: L. With policies other than FailOpen, also L
//     again with each change of connectivity: when two sides that have forgotten each other
//     meet, each may stand in without a copy of its own count.
//   - A step of a clock: the units that become available by the step.
func Excess(p weir.PartitionPolicy, s Situation) float64 {
	e := float64(s.Bare+s.Late+s.Strangers) + s.Stepped
	switch {
	case p == weir.FailOpen:
		e += float64(max(0, s.Sides-1))
		if s.Changes+s.Late+s.Crashes+s.Bare > 0 {
			e += float64(s.Nodes + s.Changes)
		}
	case p == weir.MajorityShare && s.Sides > 1:
		e += 1.5*float64(1+s.Changes) - 1
	default:
		e += float64(s.Changes)
	}
	if p != weir.FailOpen {
		e += float64(s.Strangers * s.Changes)
	}
	return e
}

// Bound returns the maximum number of units in a window of Per. When an owner crashes,
// its copy lags by less than a sixteenth of the capacity, because an owner sends a change
// of that size immediately. After a stop of all nodes, the limit admits the unsaved units
// once more.
func Bound(l *weir.Limit, s Situation) int64 {
	excess := Excess(l.Partition, s)
	if s.Global {
		excess = s.Regional
	}
	most := float64(Healthy(l))*(1+excess) + float64(s.Crashes)*math.Floor(float64(Capacity(l))/16)
	if !s.Global && l.Partition == weir.MajorityShare && s.Sides > 1 {
		most = math.Ceil(most) - 1 // below the bound
	}
	return int64(most) + s.InFlight + s.Unsaved
}

// IsBucket reports whether the algorithm of a limit is a bucket, which has a Burst.
func IsBucket(l *weir.Limit) bool {
	return l.Algorithm == weir.TokenBucket || l.Algorithm == weir.LeakyBucket
}

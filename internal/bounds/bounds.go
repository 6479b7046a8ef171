// Package bounds is what a limit admits at most in each situation: the one home of the
// formulas that docs/guarantees.md states, which the simulator
// and the demo judge by.
//
// It is pure. A formula holds for windows of the limit's Per that are placed anywhere, over
// all nodes, or over all regions of a Global limit.
package bounds

import (
	"math"

	"github.com/weir-go/weir"
)

// Situation is what a window holds, or has in the two seconds before it. The zero value is
// a healthy cluster. Where several hold, what they admit adds up: each is of what is spent
// twice because of one event, and events do not undo each other.
type Situation struct {
	// Changes is c of the guarantees table, the changes of connectivity: a split into m
	// sides is m−1 of them, and so is its heal.
	Changes int
	Sides   int // the most at one time, of those that know of each other; up to 1 is no split
	Crashes int // of owners of which another member has copies
	Bare    int // crashes of owners whose counts nobody else has
	Late    int // spells in which an owner lives and does not answer in time
	// Strangers is how many sides may have the whole limit beside another that does: they
	// have not met it, or have forgotten it.
	Strangers int
	Nodes     int     // the most that ran at one time; it matters for FailOpen
	Stepped   float64 // how much of the limit flowed in as clocks stepped forward, in times L
	// InFlight is units that were on their way as authority moved or an owner crashed: of a
	// start or leave, one and what the limit grants in a round trip; of a crash, what was
	// admitted in two.
	InFlight int64
	// Unsaved is units that were admitted before all nodes stopped, and are in no snapshot that
	// was loaded since: of a limit whose counts snapshots have, none after a stop in order, and
	// those since each node's last snapshot after a crash of all; of other limits, all.
	Unsaved int64

	// Global is true of a Global limit over regions. Then Regional is the sum of Excess of
	// the regions, of which each has L at most, and all else but Crashes, InFlight and Unsaved is
	// theirs.
	Global   bool
	Regional float64
}

// Capacity is what a limit has to give at one time: what is shared out in a split, and what
// copies may be behind by a sixteenth of.
func Capacity(l *weir.Limit) int64 {
	if isBucket(l) && l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// Healthy is L: what the algorithm admits (docs/algorithms.md). Late answers are refunded,
// hence the schedules there that have a refund. Of a limit of one unit windows that begin
// with a key's first ask admit one, as nothing precedes that ask; those of a Global or a
// calendar limit begin by the clock, and admit one at the end of a window and one more as
// the next begins.
func Healthy(l *weir.Limit) int64 {
	byClock := l.Scope == weir.Global || l.Calendar != 0
	switch {
	case l.Algorithm == weir.SlidingLog:
		return l.Rate
	case isBucket(l):
		return Capacity(l) + l.Rate
	case l.Rate == 1 && !byClock:
		return 1
	}
	return 2 * l.Rate
}

// Excess is how many times L a situation admits on top of L (docs/partitions.md):
//
//   - Each change of connectivity, L: until a side has noticed it, it has all that it had. As
//     three or more sides meet, some hear most members, but not the owner, for a moment.
//   - A split by MajorityShare, below 1.5·L in all: a majority has L, the rest less than half.
//   - A split by FailOpen, L for each other side; and for each node while something changes,
//     until its side agrees on a stand-in.
//   - An owner that is late, L: the asker cannot tell late from lost, and its stand-in has
//     the whole limit.
//   - A crash without a copy, L: the count begins again.
//   - A side that does not know of another, L, and L again with each change of connectivity: as two
//     sides that have forgotten each other meet, each may stand in without a copy of its own count.
//   - A step of a clock, what flows in meanwhile.
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

// Bound is the most units that a window of Per holds. An owner's copy is behind by less than
// a sixteenth of the capacity when it crashes, as so many are sent at once. What no snapshot
// has when all nodes stop is admitted once more.
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

func isBucket(l *weir.Limit) bool {
	return l.Algorithm == weir.TokenBucket || l.Algorithm == weir.LeakyBucket
}

package main

import (
	"time"

	"github.com/weir-go/weir"
)

// Journal is the record of a run. The judge, the report and the chart read it.
type Journal struct {
	Scenario *Scenario
	Checks   []Check  // sorted by Asked
	Ends     []Ending // the final state, after all faults had ended
	// Unsettled describes the state that was wrong after all links had been whole and all
	// nodes thawed for two minutes. Unsettled is empty if each node saw exactly the
	// running nodes of its region and had sent them all its counts, and each key of the
	// witness limit had an owner.
	Unsettled string
	Took      time.Duration // real time

	Absences []absence
	// Starts contains the times at which nodes began to start. The first time is that of the nodes
	// that run from the beginning, and negative. Another start waits for the leave of the previous
	// node on the host, and may begin later than its fault.
	Starts []time.Duration
	WAN    WAN

	Holds    []Held     // holds of in-flight limits
	Probes   []Probe    // probes of in-flight limits
	Reserved []Reserved // each also has a Check in Checks, whose Units are the minUnits of the reservation
	Spends   []Spend
}

// WAN is the traffic of all nodes, while they ran, to other regions about Global limits.
type WAN struct {
	Statements, Disputed uint64
	Bytes                uint64 // bytes of statements and answers
}

// Check is a request and its answer. Times are virtual, since the beginning.
type Check struct {
	Asked, Answered time.Duration
	Units           int64
	Key             int32 // index among the keys of the limit
	Limit           int16 // index in Scenario.Limits, or witness
	Node            int16 // index in Scenario.Nodes
	Allowed         bool
	Critical        bool
	Source          weir.Source
	Banned          time.Duration // the rest of the ban or pause of the key; 0 if the key is neither banned nor paused
	Err             string        // empty if there is no error
}

// witness is the Check.Limit of the witness limit, which every run adds. This limit is so
// large that it denies nothing, its Per is longer than the run, and it is FailOpen. So at
// the end, the count of each key must be the number of units that were admitted since the
// last reset and not returned, apart from the losses in losses.go.
const witness = -1

// Ending is the final state of a key of the witness limit.
type Ending struct {
	Key       int32
	Reset     uint64  // the number of the last reset that the owner knows, 0 if the owner knows no reset
	Known     uint64  // the highest number of a reset that a node knew, and that no crash can have lost
	Total     int64   // the number of units that the nodes spent during the run, minus the number of returned units
	Spent     int64   // the part of Total of nodes that knew of the same last reset as the owner
	Granted   int64   // units that callers were granted, minus the units that they gave back
	Ungranted int64   // units that may be spent without a grant, by the rules of losses.go
	Used      int64   // count of the owner after the last heal
	Owners    []int16 // the nodes that answer for the key themselves; there must be one
	// Replica is the count of the stand-in after the run, once the owner was killed, or
	// -1 if the owner was not killed.
	Replica  int64
	Lost     int64 // upper bound of the spent units that crashes have lost (see losses.go); all spent units if more nodes crashed than there were replicas
	Regained int64 // upper bound of the returned units that crashes have lost (see losses.go)
	Stale    int64 // units that callers returned after the reset: these units may have been spent before the reset, and separated nodes may have returned the same units
}

// Broken is an invariant that does not hold.
type Broken struct {
	Invariant string        // name of the invariant
	At        time.Duration // time in the run; if the invariant is about a window, the end of the window
	Finding   string        // the finding, the allowed value, the limit and the key
}

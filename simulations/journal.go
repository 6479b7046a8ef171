package main

import (
	"time"

	"github.com/weir-go/weir"
)

// Journal is what came of a run: what the invariants are judged by, and what is
// printed and drawn.
type Journal struct {
	Scenario *Scenario
	Checks   []Check  // ascending by Asked
	Ends     []Ending // what was found once everything was healed and quiet
	// Unsettled says what was not as it should be when all links had been whole
	// and all nodes thawed for two minutes; empty if every node saw exactly those
	// that ran, and had told them everything.
	Unsettled string
	Took      time.Duration // of real time

	// Absences are all times in which a node that ran was not connected to another node that ran.
	Absences []absence
	WAN      WAN

	Holds    []Held     // of in-flight limits
	Probes   []Probe    // the same
	Reserved []Reserved // the checks of these are in Checks, of so many units as count in any case
	Spends   []Spend
}

// WAN is what all nodes have sent to other regions about Global limits, until they
// ended or the run did.
type WAN struct {
	Statements, Disputed uint64
	Bytes                uint64 // of statements and answers
}

// Check is one ask and its answer. Times are virtual, since the beginning.
type Check struct {
	Asked, Answered time.Duration
	Units           int64
	Key             int32 // of the limit's keys
	Limit           int16 // index in Scenario.Limits; witness for the run's own
	Node            int16 // index in Scenario.Nodes
	Allowed         bool
	Source          weir.Source
	Err             string // empty if there is none
}

// witness is the Check.Limit of the limit that every run adds: it is so large
// that it denies nothing, its Per outlasts the run and it is FailOpen, so that at
// the end each key's count must be what was admitted of it, to the unit.
const witness = -1

// Ending is the end of one key of the witness.
type Ending struct {
	Key       int32
	Reset     uint64  // the number of the last reset that the owner knows of, 0 of none
	Known     uint64  // the highest number that a node knew, and no crash can have taken
	Total     int64   // units that nodes spent in the run, minus the units that they returned
	Spent     int64   // of these, what was spent and given back by nodes that knew of no other reset than the owner
	Granted   int64   // units that callers were granted
	Ungranted int64   // units that may be spent without a grant, by the rules of losses.go
	Used      int64   // units that the owner counts, after the last heal
	Owners    []int16 // the nodes that answer for the key themselves; one, if all is well
	// Replica is what its stand-in counts once the owner has been killed after
	// the run; -1 where the owner was not.
	Replica  int64
	Lost     int64 // of what was spent, what crashes may have taken with them, as losses.go says; all of it if more crashed than there were replicas
	Regained int64 // of what was given back, the same
	Stale    int64 // units that callers gave back after the reset: they may have had them before it, and nodes that were apart may have taken the same ones off
}

// Broken is an invariant that does not hold.
type Broken struct {
	Invariant string        // its name, as invariants.go lists them
	At        time.Duration // where in the run; the window's end, for one about a window
	Says      string        // what was found, what was allowed, and of which limit and key
}

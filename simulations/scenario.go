package main

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// Scenario is what befalls a cluster, and what it is asked meanwhile. Its file
// form is in format.go.
type Scenario struct {
	Name  string // of the file, without its ending
	About string // what it shows, in a sentence or two
	Seed  uint64
	Lasts time.Duration // of virtual time, without what the checker appends

	Gossip  bool          // real memberlist and real frames; else membership is simulated, and a run replays exactly
	Network weirtest.Link // what all links are like
	Nodes   []Node

	Replicas int           // as weir.Config
	Expect   int           // as weir.Config
	Timeout  time.Duration // as weir.Config
	Forget   time.Duration // as weir.Config

	Limits []weir.Limit
	Loads  []Load
	Faults []Fault // ascending by At
}

// Node is a host of the scenario, and the node on it.
type Node struct {
	Name   string
	Region string
	Later  bool // its first start is a fault's (FaultStart), not the beginning's
}

// Load is who asks for what. A load with a Rate asks evenly (each instant drawn
// within its slot), one with a Burst all at once, and an Adversary at the worst
// moments: a burst of the whole limit at every node right before and after every fault, 1 s
// and 2 s after it, and at every multiple of the limit's Per.
type Load struct {
	Limit     string   // its name
	Keys      int      // how many keys it draws from; 1 if zero
	Zipf      float64  // the exponent of their popularity, above 1; all alike if zero
	From      []string // the nodes that ask; all that run if empty
	Units     int64    // each ask; 1 if zero
	Rate      float64  // asks a second, over all of From together
	Burst     int      // asks at Begins, over all of From together
	Adversary bool
	Begins    time.Duration
	Ends      time.Duration // the scenario's end if zero
}

// FaultKind is what a fault does.
type FaultKind uint8

const (
	FaultSplit  FaultKind = iota + 1 // Sides: every link between nodes of different sides goes down; those on no side keep theirs
	FaultHeal                        // every link is up and as Network again
	FaultCut                         // From, To: one direction goes down
	FaultLink                        // From, To: one direction is as Link from now on; empty From or To stands for all
	FaultKill                        // Nodes: as kill -9
	FaultStart                       // Nodes: a node starts on the host, as a new incarnation
	FaultLeave                       // Nodes: Leave, then Close
	FaultFreeze                      // Nodes: their network is held both ways, and they are asked nothing
	FaultThaw                        // Nodes
	FaultSkew                        // Nodes: their clocks step By
)

// Fault is something that happens at a moment.
type Fault struct {
	At       time.Duration
	Kind     FaultKind
	Nodes    []string
	Sides    [][]string
	From, To string
	Link     weirtest.Link
	By       time.Duration
}

package main

import (
	"iter"
	"slices"
	"time"

	"github.com/weir-go/weir"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// Scenario is what happens to a cluster, and what it is asked meanwhile. Its file
// form is in format.go.
type Scenario struct {
	Name  string // of the file, without its ending
	About string // what it shows, in a sentence or two
	Seed  uint64
	Lasts time.Duration // of virtual time, without what the checker appends

	Gossip  bool          // real memberlist and real frames; else membership is simulated, and a run replays exactly
	Network weirtest.Link // what all links are like
	WAN     weirtest.Link // what those between regions are like instead; weirtest's own if zero
	Nodes   []Node

	Settings

	Limits []weir.Limit
	Loads  []Load
	Faults []Fault // ascending by At
}

// Settings are those of every node, as in weir.Config unless a comment differs.
type Settings struct {
	Replicas     int
	Expect       int
	Timeout      time.Duration
	Forget       time.Duration
	MaxKeys      int // so many that no count is evicted if zero
	RegionShares map[string]int64
	Hot          int            // asks a second more of the witness' keys that are reset now and then, so that they are lent
	Snapshots    time.Duration  // as weir.Config's SnapshotEvery; 0 if no node writes any
	Shared       bool           // all hosts of a region keep their snapshots in one place
	Caps         countsync.Caps // of every node's stream
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
	Keeps     time.Duration // of an InFlight limit: what is held is released within it
	TTL       time.Duration // of an InFlight limit: clients hold its units, renew each hold in time, and release most of them
	Settles   time.Duration // units are reserved, and most of that is settled within it; 0 if they are spent
	Begins    time.Duration
	Ends      time.Duration // the scenario's end if zero
}

// FaultKind is what a fault does.
type FaultKind uint8

const (
	FaultSplit  FaultKind = iota + 1 // Sides: every link between nodes of different sides goes down; those on no side keep theirs
	FaultHeal                        // every link is up and as Network again
	FaultCut                         // From, To: one direction goes down
	FaultLink                        // From, To: one direction is as Link from now on
	FaultKill                        // Nodes: as kill -9
	FaultStart                       // Nodes: a node starts on the host, as a new incarnation
	FaultLeave                       // Nodes: Leave, then Close
	FaultFreeze                      // Nodes: their network is held both ways, and they are asked nothing
	FaultThaw                        // Nodes
	FaultSkew                        // Nodes: their clocks step By
	FaultSlow                        // Nodes: their hosts are paused for Pauses once in Every, out of step; no more if Pauses is 0
	FaultLose                        // Nodes: their snapshots are gone
	FaultRevert                      // Nodes: the snapshot before the newest is the newest
)

// Fault is something that happens at a moment.
type Fault struct {
	At       time.Duration
	Kind     FaultKind
	Nodes    []string
	Sides    [][]string
	From, To string // nodes or regions; empty stands for all
	Breaks   bool   // of a split or a cut: connections across it end at once, and do not fall silent
	Link     weirtest.Link
	By       time.Duration
	Pauses   time.Duration
	Every    time.Duration // zero if Pauses is
}

// covers reports whether a fault with From and To is about what is sent from one node to
// another. A region is all of its nodes towards those of others: what is within it
// stays as it is.
func (f *Fault) covers(from, to *Node) bool {
	end := func(name string, n, other *Node) bool {
		return name == "" || name == n.Name || name == n.Region && n.Region != other.Region
	}
	return from.Name != to.Name && end(f.From, from, to) && end(f.To, to, from)
}

// between yields each direction between two nodes that a split, a cut or a link is about, by
// their indices in Nodes.
func (s *Scenario) between(f *Fault) iter.Seq2[int, int] {
	side := make(map[string]int)
	for i, names := range f.Sides {
		for _, name := range names {
			side[name] = i + 1
		}
	}
	return func(yield func(from, to int) bool) {
		for i := range s.Nodes {
			for j := range s.Nodes {
				from, to := &s.Nodes[i], &s.Nodes[j]
				apart := side[from.Name] > 0 && side[to.Name] > 0 && side[from.Name] != side[to.Name]
				if (apart || (f.Kind == FaultCut || f.Kind == FaultLink) && f.covers(from, to)) && !yield(i, j) {
					return
				}
			}
		}
	}
}

// regions are the names of the regions, in the order of the nodes; one that is
// empty, if there are none.
func (s *Scenario) regions() (names []string) {
	for _, n := range s.Nodes {
		if !slices.Contains(names, n.Region) {
			names = append(names, n.Region)
		}
	}
	return names
}

// names returns the names of the nodes that are wanted.
func (s *Scenario) names(wanted func(Node) bool) (names []string) {
	for _, n := range s.Nodes {
		if wanted(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (s *Scenario) all() []string { return s.names(func(Node) bool { return true }) }

// of returns the names of a region's nodes.
func (s *Scenario) of(region string) []string {
	return s.names(func(n Node) bool { return n.Region == region })
}

// wan is what links between regions are like.
func (s *Scenario) wan() weirtest.Link {
	if s.WAN == (weirtest.Link{}) {
		return weirtest.Link{Latency: defaultWANLatency, Jitter: defaultWANJitter}
	}
	return s.WAN
}

// usual is what the links that a FaultLink covers are like without faults.
func (s *Scenario) usual(f *Fault) weirtest.Link {
	for i, j := range s.between(f) {
		if s.Nodes[i].Region == s.Nodes[j].Region {
			return s.Network
		}
	}
	return s.wan()
}

// global reports whether there is a Global limit.
func (s *Scenario) global() bool {
	return slices.ContainsFunc(s.Limits, func(l weir.Limit) bool { return l.Scope == weir.Global })
}

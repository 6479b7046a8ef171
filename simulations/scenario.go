package main

import (
	"iter"
	"slices"
	"time"

	"github.com/weir-go/weir"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// Scenario describes the faults of a cluster, and the checks that it receives meanwhile.
// format.go has its file format.
type Scenario struct {
	Name  string // name of the file, without its ending
	About string // purpose of the scenario, in a sentence or two
	Seed  uint64
	Lasts time.Duration // virtual time until the scenario ends; the run then adds time to settle

	Gossip  bool          // uses memberlist and real frames; otherwise membership is simulated, and a run replays exactly
	Network weirtest.Link // links within a region
	WAN     weirtest.Link // links between regions; if zero, the default of weirtest
	Nodes   []Node

	Settings

	Limits []weir.Limit
	Loads  []Load
	Faults []Fault // sorted by At
}

// Settings are the settings of every node, as in weir.Config unless a comment differs.
type Settings struct {
	Replicas     int
	Expect       int
	Timeout      time.Duration
	Forget       time.Duration
	MaxKeys      int // if zero, so many that no count is evicted
	RegionShares map[string]int64
	Hot          int            // additional checks per second of those keys of the witness limit that are reset now and then; so many checks make nodes lend units of these keys
	Snapshots    time.Duration  // as SnapshotEvery of weir.Config; 0 if nodes write no snapshots
	Shared       bool           // all hosts of a region keep their snapshots in the same place
	Caps         countsync.Caps // caps of the stream of every node
}

// Node is a host of the scenario, and the node on it.
type Node struct {
	Name   string
	Region string
	Later  bool // the node does not run until a FaultStart
}

// Load describes checks. A load with a Rate sends them evenly, each at a random time
// within its slot, and a load with a Burst sends all at once. An Adversary checks at the
// worst times: it sends a burst of the whole limit to every node of From right before and
// right after every fault, 1 s and 2 s after the fault, and at every multiple of the
// limit's Per.
type Load struct {
	Limit     string   // name of the limit
	Keys      int      // number of keys; 1 if zero
	Zipf      float64  // exponent of the popularity of keys, above 1; if zero, all are equally popular
	From      []string // nodes that receive the checks; if empty, all running nodes
	Units     int64    // units of each check; if zero, 1
	Rate      float64  // number of checks per second, over all nodes of From together
	Burst     int      // number of checks at Begins, over all nodes of From together
	Adversary bool
	Critical  bool          // if true, the checks may also use the units that the limit keeps
	Keeps     time.Duration // for an InFlight limit: units are released within this time
	TTL       time.Duration // for an InFlight limit: clients hold the units, renew each hold in time, and release most of them
	Settles   time.Duration // units are reserved, and most reservations are settled within this time; if 0, units are spent
	Pauses    time.Duration // for a limit with pauses: keys are paused for up to this time, and not checked
	Begins    time.Duration
	Ends      time.Duration // the end of the scenario if zero
}

// FaultKind is the effect of a fault.
type FaultKind uint8

const (
	FaultSplit  FaultKind = iota + 1 // Sides: links between nodes of different sides are cut; links of nodes on no side do not change
	FaultHeal                        // all links are up again, with the values of Network or WAN
	FaultCut                         // From, To: one direction goes down
	FaultLink                        // From, To: one direction gets the values of Link
	FaultKill                        // Nodes: they end like processes that receive SIGKILL
	FaultStart                       // Nodes: a node starts on the host, with a new incarnation
	FaultLeave                       // Nodes: Leave, then Close
	FaultFreeze                      // Nodes: their network is held in both directions, and they receive no checks
	FaultThaw                        // Nodes: a freeze ends
	FaultSkew                        // Nodes: their clocks step By
	FaultSlow                        // Nodes: their hosts are paused for Pauses once in Every, out of step; Pauses of 0 ends this
	FaultLose                        // Nodes: each loses all its snapshots
	FaultRevert                      // Nodes: each loses its newest snapshot
)

// Fault is an event at some time.
type Fault struct {
	At       time.Duration
	Kind     FaultKind
	Nodes    []string
	Sides    [][]string
	From, To string // names of nodes or regions; if empty, all nodes
	Breaks   bool   // for a split or a cut: connections across it break at once, instead of falling silent
	Link     weirtest.Link
	By       time.Duration
	Pauses   time.Duration
	Every    time.Duration // zero if Pauses is zero
}

// covers reports whether a fault with From and To affects messages from one node to
// another. The name of a region covers the links between its nodes and nodes of other
// regions, but not the links within the region.
func (f *Fault) covers(from, to *Node) bool {
	end := func(name string, n, other *Node) bool {
		return name == "" || name == n.Name || name == n.Region && n.Region != other.Region
	}
	return from.Name != to.Name && end(f.From, from, to) && end(f.To, to, from)
}

// between yields the pairs of nodes, as indices in Nodes, for which a fault affects the
// messages from the first node to the second. The fault is a split, a cut or a link fault.
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

// regions returns the names of the regions, in the order of the nodes. If there are no
// regions, it returns an empty name.
func (s *Scenario) regions() (names []string) {
	for _, n := range s.Nodes {
		if !slices.Contains(names, n.Region) {
			names = append(names, n.Region)
		}
	}
	return names
}

func (s *Scenario) nodeNames(wanted func(Node) bool) (names []string) {
	for _, n := range s.Nodes {
		if wanted(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (s *Scenario) allNodes() []string { return s.nodeNames(func(Node) bool { return true }) }

func (s *Scenario) nodesOf(region string) []string {
	return s.nodeNames(func(n Node) bool { return n.Region == region })
}

func (s *Scenario) wanLink() weirtest.Link {
	if s.WAN == (weirtest.Link{}) {
		return weirtest.Link{Latency: defaultWANLatency, Jitter: defaultWANJitter}
	}
	return s.WAN
}

// usualLink returns the link, without faults, of the directions that a FaultLink covers.
func (s *Scenario) usualLink(f *Fault) weirtest.Link {
	for i, j := range s.between(f) {
		if s.Nodes[i].Region == s.Nodes[j].Region {
			return s.Network
		}
	}
	return s.wanLink()
}

func (s *Scenario) hasGlobal() bool {
	return slices.ContainsFunc(s.Limits, func(l weir.Limit) bool { return l.Scope == weir.Global })
}

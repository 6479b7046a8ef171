package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Node is a Source: a cluster as one of its nodes sees it. Members are the roster, and
// checks those that this node was asked for. It has no buttons.
type Node struct {
	Node *weir.Node
	// Limits returns the names of limits whose keys may be watched, and Limiter the
	// Limiter of one of them for a key. Nil: no key can be watched.
	Limits  func() []string
	Limiter func(limit, key string) (*weir.Limiter, error)
}

const topShown = 10 // keys of each kind

// Snapshot implements Source.
func (n *Node) Snapshot() Snapshot {
	stats, ring, members := n.Node.Stats(), n.Node.Ring(), n.Node.Members()
	s := Snapshot{Outage: stats.Outage}
	if n.Limits != nil {
		s.Limits = n.Limits()
	}
	for _, m := range members {
		shown := Member{ID: m.Name, Name: m.Name, Addr: m.Addr, Region: m.Region, Self: m.Self, State: m.State.String(), Health: healthOf(m.State), Share: ring[m.Name]}
		trip, asked := stats.Cluster.RoundTrips[m.Name]
		gone, unheard := stats.Unheard[m.Name]
		switch {
		case m.Self:
			shown.Process, shown.Note = m.Name, "this node"
			s.Name, s.Region = m.Name, m.Region
			s.Counters = []Counters{{m.Name, stats.Decisions, stats.Latency}}
		case unheard:
			shown.Note = fmt.Sprintf("not heard for %v", gone.Round(time.Second))
		case asked:
			shown.Note = fmt.Sprintf("round trip %v", trip.Round(10*time.Microsecond))
		}
		s.Members = append(s.Members, shown)
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	if s.Name == "" { // it has left the roster
		s.Name = "a node that has left"
		s.Counters = []Counters{{"left", stats.Decisions, stats.Latency}}
	}
	return s
}

func healthOf(s weir.MemberState) Health {
	switch s {
	case weir.Serving:
		return Serving
	case weir.Joining:
		return Changing
	}
	return Missing
}

// Top implements Source: the keys of the whole cluster.
func (n *Node) Top(ctx context.Context) (weir.TopKeys, error) { return n.Node.TopKeys(ctx, topShown) }

// Watch implements Source. It looks by Peek, which asks the key's owner.
func (n *Node) Watch(ctx context.Context, limit, key string) (Watched, error) {
	if n.Limiter == nil {
		return Watched{}, fmt.Errorf("this node has no rules, so no key can be watched")
	}
	l, err := n.Limiter(limit, key)
	if err != nil {
		return Watched{}, err
	}
	d, err := l.Peek(ctx, key)
	if err != nil {
		return Watched{}, err
	}
	return Watched{
		Limit: d.Limit, Used: max(0, d.Limit-d.Remaining), Per: l.Limit().Per,
		Owner: l.Owner(key).Name, Source: d.Source.String(), Counted: -1,
	}, nil
}

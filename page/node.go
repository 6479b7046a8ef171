package page

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Node is a Source: a cluster as one of its nodes sees it. Members are the roster, and
// checks those that this node was asked for. It has no buttons.
type Node struct {
	Node *weir.Node
	// Book has the limits whose keys can be watched, as the default tier has them, and
	// Limiters has further ones. With neither no key can be.
	Book     *rules.Book
	Limiters []*weir.Limiter
}

const topShown = 10 // keys of each kind

// Snapshot implements Source.
func (n *Node) Snapshot() Snapshot {
	stats, ring, members := n.Node.Stats(), n.Node.Ring(), n.Node.Members()
	short := shorten(members)
	s := Snapshot{Outage: stats.Outage, Limits: n.limits()}
	s.Outage.Missing = short.all(stats.Outage.Missing)
	for _, m := range members {
		shown := Member{ID: m.Name, Name: short.of(m.Name), Addr: m.Addr, Region: m.Region, Self: m.Self, State: m.State.String(), Health: healthOf(m.State), Share: ring[m.Name]}
		trip, asked := stats.Cluster.RoundTrips[m.Name]
		gone, unheard := stats.Unheard[m.Name]
		switch {
		case m.Self:
			shown.Process, shown.Note = m.Name, "this node"
			s.Name, s.Region = shown.Name, m.Region
			s.Counters = []Counters{{m.Name, stats.Decisions, stats.Latency}}
		case unheard:
			shown.Note = fmt.Sprintf("not heard for %v", gone.Round(time.Second))
		case asked:
			shown.Note = fmt.Sprintf("round trip %v", trip.Round(10*time.Microsecond))
		}
		s.Members = append(s.Members, shown)
	}
	if n.Book != nil {
		s.Outcomes = n.Book.Current().Outcomes(stats)
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if s.Name == "" { // it has left the roster
		s.Name = "a node that has left"
		s.Counters = []Counters{{"left", stats.Decisions, stats.Latency}}
	}
	return s
}

// labels are members' names without their incarnations, by name, as far as that tells
// one from another.
type labels map[string]string

// incarnation is what a node appends to its label.
var incarnation = regexp.MustCompile(`^(.+)-[0-9a-f]{16}$`)

func shorten(members []weir.Member) labels {
	short, having := make(labels), make(map[string]int)
	for _, m := range members {
		if found := incarnation.FindStringSubmatch(m.Name); found != nil {
			short[m.Name] = found[1]
			having[found[1]]++
		} else {
			having[m.Name]++
		}
	}
	for name, label := range short {
		if having[label] > 1 {
			delete(short, name)
		}
	}
	return short
}

func (l labels) of(name string) string { return cmp.Or(l[name], name) }

func (l labels) all(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = l.of(name)
	}
	return short
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
func (n *Node) Top(ctx context.Context) (weir.TopKeys, error) {
	t, err := n.Node.TopKeys(ctx, topShown)
	short := shorten(n.Node.Members())
	t.Missing, t.Silent = short.all(t.Missing), short.all(t.Silent)
	return t, err
}

// Watch implements Source. It looks by Peek, which asks the key's owner.
func (n *Node) Watch(ctx context.Context, limit, key string) (Watched, error) {
	l, err := n.limiter(limit, key)
	if err != nil {
		return Watched{}, err
	}
	d, err := l.Peek(ctx, key)
	if err != nil {
		return Watched{}, err
	}
	return Watched{
		Limit: d.Limit, Used: max(0, d.Limit-d.Remaining), Per: l.Limit().Per,
		Owner: shorten(n.Node.Members()).of(l.Owner(key).Name), Source: d.Source.String(), Counted: -1,
	}, nil
}

// limits are the names of those whose keys can be watched.
func (n *Node) limits() (names []string) {
	if n.Book != nil {
		for _, rule := range n.Book.Current().Rules() {
			for i := range rule.Limits {
				names = append(names, rule.Limits[i].Name)
			}
		}
	}
	for _, l := range n.Limiters {
		names = append(names, l.Limit().Name)
	}
	return names
}

// limiter is that of one of them for a key.
func (n *Node) limiter(limit, key string) (*weir.Limiter, error) {
	if n.Book != nil {
		now := n.Book.Current()
		if l, _, ok := now.Limit(limit); ok {
			return now.Limiter(l, "", key), nil
		}
	}
	for _, l := range n.Limiters {
		if l.Limit().Name == limit {
			return l, nil
		}
	}
	return nil, fmt.Errorf("there is no limit %q on this node", limit)
}

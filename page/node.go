package page

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/rules"
)

// Node is a Gatherer that shows a cluster as its node sees it. The page shows the members
// of the roster, the checks of all members that answer, and the latency of this node. There are no buttons.
type Node struct {
	Node *weir.Node
	// A viewer can watch keys of the limits of Book, with the numbers of the default tier, and
	// of Limiters. If both are empty, there are no keys to watch.
	Book     *rules.Book
	Limiters []*weir.Limiter
}

const topShown = 10 // number of keys in each list

// Snapshot implements Source.
func (n *Node) Snapshot() Snapshot {
	stats, ring, members := n.Node.Stats(), n.Node.Ring(), n.Node.Members()
	short := newLabels(members)
	s := Snapshot{Outage: stats.Outage, Past: n.Node.Outages(), Rules: n.rules(&stats), Modes: make(map[string]string)}
	s.Limits, s.Secret = n.limits()
	s.Outage.Missing = short.shortenAll(stats.Outage.Missing)
	for i := range s.Past {
		s.Past[i].Missing = short.shortenAll(s.Past[i].Missing)
	}
	for _, m := range members {
		shown := Member{ID: m.Name, Name: short.shorten(m.Name), Addr: m.Addr, Region: m.Region, Self: m.Self, State: m.State.String(), Health: healthOf(m.State), Share: ring[m.Name], Process: m.Name}
		trip, asked := stats.Cluster.RoundTrips[m.Name]
		gone, missing := stats.Missing[m.Name]
		switch {
		case m.Self:
			shown.Note = "this node"
			s.Name, s.Region = shown.Name, m.Region
			s.Counters = []Counters{{m.Name, stats.Decisions, stats.Latency, limitTotals(&stats)}}
		case missing:
			shown.Note = fmt.Sprintf("missing for %v", gone.Round(time.Second))
		case asked:
			shown.Note = fmt.Sprintf("round trip %v", trip.Round(10*time.Microsecond))
		}
		s.Members = append(s.Members, shown)
	}
	if n.Book != nil {
		for _, o := range n.Book.Current().Outcomes(stats) {
			if o.Mode != rules.Enforce {
				s.Modes[o.Limit] = o.Mode.String()
			}
		}
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if s.Name == "" { // the node has left the roster
		s.Name = "a node that has left"
		s.Counters = []Counters{{"left", stats.Decisions, stats.Latency, limitTotals(&stats)}}
	}
	return s
}

// limitTotals returns the decisions of this node for each limit.
func limitTotals(stats *weir.Stats) map[string]weir.LimitTotals {
	all := make(map[string]weir.LimitTotals, len(stats.Limits))
	for name, bySource := range stats.Limits {
		var t weir.LimitTotals
		for _, o := range bySource {
			t.Allowed, t.Denied = t.Allowed+o.Allowed, t.Denied+o.Denied
		}
		all[name] = t
	}
	for name, o := range stats.ShadowLimits {
		t := all[name]
		t.Shadow = o
		all[name] = t
	}
	return all
}

// Gather implements Gatherer.
func (n *Node) Gather(ctx context.Context) (all []Counters, missing []string, err error) {
	totals, err := n.Node.Totals(ctx)
	for name, m := range totals.Members {
		all = append(all, Counters{Process: name, Decisions: m.Decisions, Limits: m.Limits})
	}
	return all, newLabels(n.Node.Members()).shortenAll(totals.Missing), err
}

func (n *Node) rules(stats *weir.Stats) *Rules {
	if n.Book == nil {
		return nil
	}
	b := n.Book.Stats()
	r := &Rules{Rules: *admin.NewRules(n.Book, *stats), Switched: []string{}, Adapted: []string{}, Changes: []string{}, Hot: []string{}}
	r.Outcomes, r.Factors = nil, nil
	begun, banned := uint64(0), uint64(0)
	for _, of := range stats.Bans {
		begun, banned = begun+of.Begun, banned+of.Denied
	}
	if begun > 0 || banned > 0 {
		r.Bans = fmt.Sprintf("%d begun and %d checks denied by this node", begun, banned)
	}
	for _, w := range n.Book.Switches() {
		r.Switched = append(r.Switched, describeSwitch(&w))
	}
	for _, a := range n.Book.Current().Adaptations() {
		if !a.At.IsZero() && len(r.Adapted) < factorsShown {
			r.Adapted = append(r.Adapted, describeFactor(&a))
		}
	}
	for _, s := range n.Book.Suggestions() {
		r.Hot = append(r.Hot, fmt.Sprintf("%s %x: %.0f %% denied, suggested rate %d", s.Limit, s.ID, s.Denied*100, s.Rate))
	}
	for _, a := range n.Book.FactorChanges() {
		r.Changes = append(r.Changes, describeFactor(&a))
	}
	switch {
	case b.Missing:
		r.Error = "the rules are not there"
	case b.LastError != nil:
		r.Error = b.LastError.Error()
	}
	return r
}

// describeSwitch returns a switch as text, like "login: shadow by jo until 2006-01-02T15:04:05Z, an incident".
func describeSwitch(w *rules.Switch) string {
	text := w.Rule + ": " + w.Mode.String()
	if w.Rule == rules.AllRules {
		text = "all rules: " + w.Mode.String()
	}
	if w.By != "" {
		text += " by " + w.By
	}
	if !w.Until.IsZero() {
		text += " until " + w.Until.UTC().Format(time.RFC3339)
	}
	if w.Reason != "" {
		text += ", " + w.Reason
	}
	return text
}

const factorsShown = 20

// describeFactor returns a factor as text, like "login: 60 % at 15:04:05Z (slow)".
func describeFactor(a *rules.Adaptation) string {
	return fmt.Sprintf("%s: %.0f %% at %s (%s)", a.Rule, a.Factor*100, a.At.UTC().Format("15:04:05Z"), a.Reason)
}

// labels maps the names of members to labels, which are the names without the incarnations. A member has no
// label here if the label is not unique.
type labels map[string]string

// incarnation matches a name that consists of a label and an incarnation.
var incarnation = regexp.MustCompile(`^(.+)-[0-9a-f]{16}$`)

func newLabels(members []weir.Member) labels {
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

func (l labels) shorten(name string) string { return cmp.Or(l[name], name) }

func (l labels) shortenAll(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = l.shorten(name)
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

// Top implements Source, with the keys of the whole cluster.
func (n *Node) Top(ctx context.Context) (weir.TopKeys, error) {
	t, err := n.Node.TopKeys(ctx, topShown)
	short := newLabels(n.Node.Members())
	t.Missing, t.Silent = short.shortenAll(t.Missing), short.shortenAll(t.Silent)
	return t, err
}

// Watch implements Source by Peek, which asks the owner of the key.
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
		Owner: newLabels(n.Node.Members()).shorten(l.Owner(key).Name), Source: d.Source.String(), Counted: -1,
		Free: d.RetryAfter, Reset: d.ResetAfter, InFlight: l.Limit().Algorithm == weir.InFlight,
	}, nil
}

// limits returns the names of the limits whose keys can be watched, and the names of limits whose keys are
// credentials.
func (n *Node) limits() (names, secret []string) {
	add := func(l weir.Limit) {
		names = append(names, l.Name)
		if l.SecretKeys {
			secret = append(secret, l.Name)
		}
	}
	if n.Book != nil {
		for _, rule := range n.Book.Current().Rules() {
			for i := range rule.Limits {
				add(rule.Limits[i].ForTier(""))
			}
		}
	}
	for _, l := range n.Limiters {
		add(l.Limit())
	}
	return names, secret
}

// limiter returns the Limiter of a limit for a key.
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

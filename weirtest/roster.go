package weirtest

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
)

// status is what is known of a member by all; the higher one holds.
type status uint8

const (
	alive     status = iota
	forgotten        // dead, and off the roster
	left             // said goodbye
)

// entry is one member as gossip carries it.
type entry struct {
	at      *member
	born    time.Time
	version uint64 // only the member itself raises it, to contradict what is said of it
	status  status
	weighs  bool // not, while a member was missing when it joined
}

// newer says whether e says more than what is known.
func (e entry) newer(known entry) bool {
	if e.version != known.version {
		return e.version > known.version
	}
	return e.status > known.status || e.status == known.status && e.weighs && !known.weighs
}

// row is whom one member hears, by its own account.
type row struct {
	number uint64
	hears  []string // sorted
}

// gossip is all that one member knows, at one moment. It is immutable.
type gossip struct {
	entries map[string]entry
	rows    map[string]row
}

// known is what this member has to tell.
func (m *member) known() *gossip {
	if m.snapshot == nil {
		m.snapshot = &gossip{maps.Clone(m.entries), maps.Clone(m.rows)}
	}
	return m.snapshot
}

// merge takes in what another knows.
func (m *member) merge(g *gossip) {
	for name, e := range g.entries {
		if known, ok := m.entries[name]; !ok || e.newer(known) {
			m.learn(name, e)
		}
	}
	for name, r := range g.rows {
		if name != m.name && r.number > m.rows[name].number {
			m.rows[name] = r
			m.snapshot, m.stale = nil, true
		}
	}
}

// learn takes in news of one member. A start supersedes what ran at its
// address before, and who is alive contradicts that it was forgotten.
func (m *member) learn(name string, e entry) {
	if name == m.name && e.status == forgotten {
		e.version++
		e.status, e.weighs = alive, false
	}
	m.entries[name] = e
	m.snapshot, m.stale = nil, true
	if e.status != alive {
		return
	}
	for other, old := range m.entries {
		if old.at.host == e.at.host && old.status == alive {
			if old.born.Before(e.born) {
				m.forget(other)
			} else if e.born.Before(old.born) {
				m.forget(name)
			}
		}
	}
}

func (m *member) forget(name string) {
	e := m.entries[name]
	e.status = forgotten
	m.learn(name, e)
}

// refresh brings the view up to what is known, and has the handler told.
func (m *member) refresh() {
	if !m.stale {
		return
	}
	m.stale = false
	self := m.entries[m.name]
	hears := []string{m.name}
	for name, p := range m.peers {
		if p.heard {
			hears = append(hears, name)
		}
	}
	slices.Sort(hears)
	if own := m.rows[m.name]; !slices.Equal(own.hears, hears) {
		m.rows[m.name] = row{own.number + 1, hears}
		m.snapshot = nil
	}

	var roster []string
	for name, e := range m.entries {
		if e.status == alive {
			roster = append(roster, name)
		}
	}
	slices.Sort(roster)
	heardBy := func(name string) []bool {
		r := make([]bool, len(roster))
		for j, other := range roster {
			_, r[j] = slices.BinarySearch(m.rows[name].hears, other)
			r[j] = r[j] || other == name
		}
		return r
	}
	v := &cluster.View{
		Members: make([]cluster.Member, len(roster)),
		Self:    slices.Index(roster, m.name),
		Hears:   make([][]bool, len(roster)),
		Direct:  heardBy(m.name),
	}
	for i, name := range roster {
		v.Hears[i] = heardBy(name)
	}
	side := v.Side()
	if self.status == alive {
		m.age(roster, side)
	}
	for i, name := range roster {
		e := m.entries[name]
		v.Members[i] = cluster.Member{Name: name, Addr: e.at.addr, Region: e.at.config.Region, Born: e.born}
		if name != m.name {
			v.Members[i].Peer = m.peer(e.at)
		}
		since, missing := m.missing[name]
		switch {
		case missing && time.Since(since) >= deadAfter:
			v.Members[i].State = cluster.Dead
		case !side[i]:
			v.Members[i].State = cluster.Unheard
		case e.weighs:
			v.Members[i].State = cluster.Serving
		}
	}
	if old := m.view.Load(); old == nil || !equal(old, v) {
		m.view.Store(v)
		m.changed = true
		m.arrived.wake()
	}
}

// age takes note of who is missing, has joiners weigh when nobody is, and
// forgets those that have been dead for long. What it changes of the entries
// shows in the next view.
func (m *member) age(roster []string, side []bool) {
	heard, weight, oldest := 0, 0, ""
	whole := true
	for i, name := range roster {
		e := m.entries[name]
		if side[i] {
			delete(m.missing, name)
		} else {
			whole = false
			if _, ok := m.missing[name]; !ok {
				m.missing[name] = time.Now()
			}
		}
		if e.weighs {
			weight++
			if side[i] {
				heard++
			}
			if oldest == "" || e.born.Before(m.entries[oldest].born) {
				oldest = name
			}
		}
	}
	patience := 10 * m.config.Forget
	if _, gone := m.missing[oldest]; 2*heard > weight || 2*heard == weight && !gone {
		patience = m.config.Forget
	}
	for i, name := range roster {
		e := m.entries[name]
		switch {
		case whole && m.joined && !e.weighs:
			e.weighs = true
			m.learn(name, e)
		case !side[i] && time.Since(m.missing[name]) >= deadAfter+patience:
			m.forget(name)
			delete(m.missing, name)
		}
	}
}

func equal(a, b *cluster.View) bool {
	return a.Self == b.Self &&
		slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Direct, b.Direct) &&
		slices.EqualFunc(a.Hears, b.Hears, slices.Equal[[]bool])
}

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
	at        *member
	born      time.Time
	epoch     uint64 // only the member itself raises it, to contradict what is said of it
	status    status
	turn      uint64 // how often it has announced another state
	announced cluster.State
}

// newer reports whether e says more than what is known.
func (e entry) newer(known entry) bool {
	if e.epoch != known.epoch {
		return e.epoch > known.epoch
	}
	return e.status > known.status || e.status == known.status && e.turn > known.turn
}

// row is whom one member hears, and whose hosts refuse what it sends, by its own account.
type row struct {
	number  uint64
	hears   []string // sorted
	refuses []string // sorted
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
// address before, and a member that is alive contradicts that it was forgotten: it
// comes back, and is joining again.
func (m *member) learn(name string, e entry) {
	back := name == m.name && e.status == forgotten
	if back {
		e.epoch++
		e.turn++
		e.status, e.announced = alive, cluster.Joining
	}
	if e.epoch > m.entries[name].epoch {
		delete(m.missing, name) // it lived when it said so
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
	if back {
		m.tell()
	}
}

func (m *member) forget(name string) {
	e := m.entries[name]
	e.status = forgotten
	m.learn(name, e)
}

// refresh brings the view up to what is known, and has the handler told.
func (m *member) refresh() {
	if m.stale {
		m.stale = false
		m.renew()
	}
}

func (m *member) renew() {
	self := m.entries[m.name]
	hears := []string{m.name}
	for name, p := range m.peers {
		if p.heard {
			hears = append(hears, name)
		}
	}
	slices.Sort(hears)
	var refuses []string
	for name, p := range m.peers {
		if p.refused {
			refuses = append(refuses, name)
		}
	}
	slices.Sort(refuses)
	if own := m.rows[m.name]; !slices.Equal(own.hears, hears) || !slices.Equal(own.refuses, refuses) {
		m.rows[m.name] = row{own.number + 1, hears, refuses}
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
		Stalled: make([]bool, len(roster)),
	}
	for i, name := range roster {
		v.Hears[i] = heardBy(name)
	}
	if m.config.ForgetRefused {
		v.Refuses = make([][]bool, len(roster))
		for i, about := range roster {
			v.Refuses[i] = make([]bool, len(roster))
			for j, name := range roster {
				_, v.Refuses[i][j] = slices.BinarySearch(m.rows[about].refuses, name)
			}
		}
	}
	side := v.Side()
	if self.status == alive {
		m.age(roster, side)
	}
	for i, name := range roster {
		e := m.entries[name]
		v.Members[i] = cluster.Member{
			Name: name, Addr: e.at.addr, Region: e.at.config.Region, Born: e.born,
			State: e.announced, Announced: e.announced, Epoch: e.epoch,
		}
		if name != m.name {
			p := m.peer(e.at)
			v.Members[i].Peer, v.Stalled[i] = p, p.heard && p.stalled
		}
		switch {
		case m.isDead(name):
			v.Members[i].State = cluster.Dead
		case !side[i]:
			v.Members[i].State = cluster.Unheard
		}
	}
	if old := m.view.Load(); old == nil || !equal(old, v) {
		m.view.Store(v)
		m.changed = true
		m.wake()
	}
}

// age takes note of who is missing, and forgets those that have been dead for
// long: after Forget on a side that is no smaller than what it misses, ten times
// that on a smaller one. A node that died before it served is not missed. What it
// changes of the entries shows in the next view.
func (m *member) age(roster []string, side []bool) {
	here, missed := 0, 0
	for i, name := range roster {
		if side[i] {
			here++
			delete(m.missing, name)
			continue
		}
		if _, ok := m.missing[name]; !ok {
			m.missing[name] = time.Now()
		}
		if !m.isDead(name) || m.entries[name].announced != cluster.Joining {
			missed++
		}
	}
	for i, name := range roster {
		patience := m.config.Forget
		if here < missed && m.entries[name].announced != cluster.Joining {
			patience *= 10
		}
		// Its clock runs on in a Freeze, but a process that stands still forgets nobody.
		if !side[i] && !m.host.frozen && time.Since(later(m.missing[name], m.host.thawed)) >= deadAfter+patience {
			m.forget(name)
			delete(m.missing, name)
		}
	}
}

// isDead reports whether nobody on this side has heard the member for long.
func (m *member) isDead(name string) bool {
	since, missing := m.missing[name]
	return missing && time.Since(since) >= deadAfter
}

func equal(a, b *cluster.View) bool {
	return a.Self == b.Self &&
		slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Direct, b.Direct) &&
		slices.Equal(a.Stalled, b.Stalled) &&
		slices.EqualFunc(a.Hears, b.Hears, slices.Equal[[]bool]) &&
		slices.EqualFunc(a.Refuses, b.Refuses, slices.Equal[[]bool])
}

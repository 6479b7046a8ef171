package weirtest

import (
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/detect"
)

// gossip has the records of a member's roster at some moment. It is immutable.
type gossip struct {
	records []detect.Record
}

// currentGossip returns the gossip that this member sends.
func (m *member) currentGossip() *gossip {
	if m.snapshot == nil {
		m.snapshot = &gossip{m.roster.Records()}
	}
	return m.snapshot
}

// merge merges the gossip of another member, and reports whether the roster has changed.
func (m *member) merge(g *gossip) (changed bool) {
	c := m.applyEvent(func(r *detect.Roster) detect.Change { return r.Merge(g.records, time.Now()) })
	return c.Members
}

// applyEvent applies an event to the roster, as cluster.NewGossip does.
func (m *member) applyEvent(event func(*detect.Roster) detect.Change) detect.Change {
	c := event(m.roster)
	if c.Members || c.Own || len(c.Spread) > 0 {
		m.snapshot, m.stale = nil, true
	}
	if c.Members {
		for _, e := range m.roster.Members() {
			if e.Name != m.name {
				m.peer(m.net.members[e.Name+" "+e.Addr])
			}
		}
	}
	if c.Own {
		m.sendGossip(nil)
	}
	return c
}

// recordChange marks the view as stale if the connectivity table has changed.
func (m *member) recordChange(changed bool) { m.stale = m.stale || changed }

// inRoster reports whether a member is in the roster, by the last view.
func (m *member) inRoster(name string) bool {
	_, ok := slices.BinarySearchFunc(m.view.Load().Members, name, func(m cluster.Member, name string) int {
		return strings.Compare(m.Name, name)
	})
	return ok
}

// refresh updates the view, notifies the handler if the view has changed, and sends
// changed rows of the connectivity table to the peers.
func (m *member) refresh() {
	for m.stale {
		m.stale = false
		m.updateView()
	}
	if m.spread != m.table.Version() && !m.closed {
		m.spread = m.table.Version()
		for _, p := range inOrder(m.peers) {
			p.sendRows()
		}
	}
}

// sendRows sends the rows of the connectivity table that the peer lacks, if this member
// watches the peer.
func (p *peer) sendRows() {
	m, now := p.owner, time.Now()
	if watched, _ := m.table.IsWatched(p.to.name); !watched || !p.isConnected() || p.feeding {
		return
	}
	for {
		changed, upTo, wait := m.table.News(&p.feed, p.to.name, now)
		if wait > 0 {
			p.feeding = true // the event is 1 ns late, because in the instant of a tick, the order of the two is not determined
			m.net.addEvent(now.Add(wait+1), p.out.link.number, false, feeding{p})
			return
		}
		if len(changed) == 0 {
			return
		}
		p.send(message{kind: rows, rows: changed})
		p.feed.Sent(upTo, now)
	}
}

// feeding is the event that sends more rows to a peer.
type feeding struct{ to *peer }

func (f feeding) isVoid() bool { return f.to.owner.closed }

func (f feeding) occur() {
	f.to.feeding = false
	f.to.sendRows()
}

func (m *member) updateView() {
	now, roster := time.Now(), m.roster.Members()
	names, living := make([]string, len(roster)), 0
	for i, e := range roster {
		if names[i] = e.Name; !e.IsDead(now) {
			living++
		}
	}
	m.table.Arrange(names, living, now)
	members := cluster.RosterMembers(roster, now)
	for i, o := range members {
		if p := m.peers[o.Name]; p != nil {
			members[i].Peer = p
		}
	}
	v := cluster.NewView(m.name, members, m.table.Connections)
	if !m.config.ForgetRefused {
		v.Ended = nil
	}
	if old := m.view.Load(); old == nil || !old.Equal(v) {
		m.view.Store(v)
		m.changed = true
		m.wake()
	}
	if v.Self >= 0 {
		m.observe(v.Side(), roster, now)
	}
}

// observe simulates the reports of gossip: a member of this side is alive, and a member
// that no member of this side has been connected to for deadAfter is dead.
func (m *member) observe(side []bool, roster []detect.Entry, now time.Time) {
	before := m.missing
	m.missing = make(map[string]time.Time)
	for i, e := range roster {
		if side[i] {
			if !e.Alive {
				m.applyEvent(func(r *detect.Roster) detect.Change { return r.RecordAlive(e.Record, e.Addr, now) })
			}
			continue
		}
		since, missing := before[e.Name]
		if !missing {
			since = now
		}
		m.missing[e.Name] = since
		if e.Alive && now.Sub(since) >= deadAfter {
			m.applyEvent(func(r *detect.Roster) detect.Change { return r.RecordDeath(e.Name, false, now) })
		}
	}
}

// forgetDead removes members that have been dead for a long time. A frozen process
// removes no member.
func (m *member) forgetDead(now time.Time) {
	if m.host.frozen {
		return
	}
	if pause := now.Sub(m.aged) - 2*ageEvery; pause > 0 {
		m.roster.SkipPause(pause, now)
	}
	m.applyEvent(func(r *detect.Roster) detect.Change { return r.Tick(m.aged, now, m.view.Load().OnSide) })
	m.aged = now
}

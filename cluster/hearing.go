package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/patience"
)

const (
	// heardFor is how old an answer may be and still count.
	heardFor = time.Second
	// silentFor is how long a member may answer nothing and still be heard. Without
	// resendSoon, TCP sends a lost packet again after 200 ms, and again 400 ms later.
	silentFor = 800 * time.Millisecond
	// stalledFor is how long a member that has left an ask unanswered may answer
	// nothing at all until no more is asked of it, or longer if its round trips are.
	stalledFor = 200 * time.Millisecond
	// maxPings bounds the pings of which a pong is waited for.
	maxPings = 16
)

// hearing is the table of connectivity, as one node knows it: what the node finds itself,
// and what others report of themselves and of each other. It is a step function:
// events and the time go in, and each step reports whether the table changed.
//
// A late member stays heard. Sides, shares and hand-overs of all members go by connectivity,
// so only two events end it: the connection to a member breaks (failed), or silentFor
// passes without an answer on either connection while this process ran (look). Once
// unheard, only the pong of a ping that was sent afterwards makes a member heard again.
// An earlier one may have been held by the cut: with it a member would be heard while
// nothing gets through.
//
// A node raises the number of its own row alone, and only when the row changes. Of two rows
// of one member the higher number is the later one: merge relies on it, and a number that
// another node raised would hide what the member itself finds.
//
// Only this node knows that a member has stalled: it is asked nothing meanwhile, and
// stays heard. Anything that comes from it ends that (resumed, ponged).
type hearing struct {
	self    string
	members map[string]*contact // all but self
	rows    map[string]row      // of the members and of self; none of a member that has reported nothing yet
	version uint64              // rises whenever a row changes; not zero
	late    patience.Lateness   // of this process
}

// contact is what this node knows of its connections with one member.
type contact struct {
	heard   bool
	stalled bool              // it has left asks unanswered, and says nothing: others are asked in its stead
	proven  time.Time         // when it last had answered, or had been answered and said so
	silence patience.Patience // since then
	waits   patience.Patience // since it was sent the first of the asks that it has left unanswered
	lost    time.Time         // when it was found to be unheard
	late    time.Duration     // how late it runs itself, as it said last
	pings   []ping            // that have no pong yet, the oldest first
	refused bool              // its kernel has closed the connections and refuses new connections
}

type ping struct {
	id   uint64
	sent time.Time
}

// row is the list of members that a member hears, and the list of members whose hosts refuse
// its connections. A member numbers its own rows, so that a receiver can keep the latest row.
type row struct {
	number  uint64
	heard   []string // sorted, without itself; never modified
	refused []string // likewise
}

func newHearing(self string) *hearing {
	return &hearing{
		self:    self,
		members: map[string]*contact{},
		rows:    map[string]row{self: {number: 1}},
		version: 1,
	}
}

// set steps in the names of the other members. What is known of those that stay is kept.
// It reports whether any is new.
func (h *hearing) set(names []string) (grown bool) {
	next := make(map[string]*contact, len(names))
	for _, name := range names {
		if name == h.self {
			continue
		}
		c := h.members[name]
		if c == nil {
			c, grown = new(contact), true
		}
		next[name] = c
	}
	h.members = next
	maps.DeleteFunc(h.rows, func(name string, _ row) bool {
		return name != h.self && next[name] == nil
	})
	h.renew()
	return grown
}

// pinged steps in a ping that goes out to name now.
func (h *hearing) pinged(name string, id uint64, now time.Time) {
	c := h.members[name]
	if c == nil {
		return
	}
	if len(c.pings) == maxPings {
		c.pings = slices.Delete(c.pings, 0, 1)
	}
	c.pings = append(c.pings, ping{id, now})
}

// ponged steps in the answer of name to the ping id, now. It reports how long that took
// and whether it came in time.
func (h *hearing) ponged(name string, id uint64, now time.Time) (took time.Duration, inTime, changed bool) {
	c := h.members[name]
	if c == nil {
		return 0, false, false
	}
	i := slices.IndexFunc(c.pings, func(p ping) bool { return p.id == id })
	if i < 0 {
		return 0, false, false
	}
	sent := c.pings[i].sent
	c.pings = slices.Delete(c.pings, 0, i+1)
	// A pong that was long in coming may have been sent long ago, and have
	// waited here while this process stood still.
	if took = now.Sub(sent); took > heardFor {
		return took, false, false
	}
	c.prove(now)
	changed = c.stalled
	c.stalled = false
	if c.heard || sent.Before(c.lost) {
		return took, true, changed
	}
	return took, true, h.mark(c, true)
}

// answered steps in that name has answered this node, or had an answer from it and
// stated so, at a time. It keeps a member heard, and makes none so.
func (h *hearing) answered(name string, at time.Time) {
	if c := h.members[name]; c != nil {
		c.prove(at)
	}
}

func (c *contact) prove(at time.Time) {
	if at.After(c.proven) {
		c.proven = at
		c.silence.Restart(at)
	}
}

// look judges a member that is heard by its silence. due is when this look was to be:
// what it is late by, this process is.
func (h *hearing) look(name string, due, now time.Time) (changed bool) {
	h.late.Looked(due, now)
	c := h.members[name]
	if c == nil || !c.silence.Exhausted(silentFor+h.allowed(c), due, now) || !c.heard {
		return false
	}
	c.lost = now
	return h.mark(c, false)
}

// allowed is how much more time a member has to answer because it, or this process,
// runs late: a late process trusts its own accusations less (Lifeguard, arXiv
// 1707.00788).
func (h *hearing) allowed(c *contact) time.Duration { return patience.Allowed(h.late.By(), c.late) }

// says steps in how late a member runs, by its own word.
func (h *hearing) says(name string, late time.Duration) {
	if c := h.members[name]; c != nil {
		c.late = late
	}
}

// unanswered judges a member that has left asks unanswered since a time, and has
// sent nothing since. due is when this look was to be. It has stalled once that has
// lasted as long as most.
func (h *hearing) unanswered(name string, since time.Time, most time.Duration, due, now time.Time) (changed bool) {
	c := h.members[name]
	if c == nil {
		return false
	}
	if since.After(c.waits.Since()) {
		c.waits.Restart(since)
	}
	if !c.waits.Exhausted(most+h.allowed(c), due, now) || c.stalled {
		return false
	}
	c.stalled = true
	return true
}

// resumed steps in that something has come from a member that has left asks unanswered.
func (h *hearing) resumed(name string) (changed bool) {
	c := h.members[name]
	if c == nil || !c.stalled {
		return false
	}
	c.stalled = false
	return true
}

// failed steps in that the connection to name broke, now.
func (h *hearing) failed(name string, now time.Time) (changed bool) {
	c := h.members[name]
	if c == nil {
		return false
	}
	c.lost, c.stalled = now, false
	return h.mark(c, false)
}

func (h *hearing) mark(c *contact, heard bool) (changed bool) {
	if c.heard == heard {
		return false
	}
	c.heard, c.refused = heard, false
	h.renew()
	return true
}

// setRefused records whether the host of a member refuses connections. No host refuses those of
// a member that is heard.
func (h *hearing) setRefused(name string, refused bool) (changed bool) {
	c := h.members[name]
	if c == nil || c.refused == refused || c.heard {
		return false
	}
	c.refused = refused
	h.renew()
	return true
}

// renew updates the row of this node if its contacts have changed.
func (h *hearing) renew() {
	var heard, refused []string
	for name, c := range h.members {
		if c.heard {
			heard = append(heard, name)
		}
		if c.refused {
			refused = append(refused, name)
		}
	}
	slices.Sort(heard)
	slices.Sort(refused)
	own := h.rows[h.self]
	if slices.Equal(own.heard, heard) && slices.Equal(own.refused, refused) {
		return
	}
	h.rows[h.self] = row{number: own.number + 1, heard: heard, refused: refused}
	h.version++
}

func (h *hearing) hears(name string) bool {
	c := h.members[name]
	return c != nil && c.heard
}

func (h *hearing) stalls(name string) bool {
	c := h.members[name]
	return c != nil && c.heard && c.stalled
}

// isPonged reports whether a member has answered all pings.
func (h *hearing) isPonged(name string) bool {
	c := h.members[name]
	return c != nil && len(c.pings) == 0
}

// merge takes over what another member's table knows better.
func (h *hearing) merge(t table) (changed bool) {
	for i, name := range t.About {
		if name == h.self || h.members[name] == nil || t.Numbers[i] <= h.rows[name].number {
			continue
		}
		r := row{number: t.Numbers[i], heard: t.names(i, t.Bits), refused: t.names(i, t.Refused)}
		changed = changed || !slices.Equal(r.heard, h.rows[name].heard) || !slices.Equal(r.refused, h.rows[name].refused)
		h.rows[name] = r
		h.version++
	}
	return changed
}

// refusingHosts returns which of names finds that the host of which refuses connections.
func (h *hearing) refusingHosts(names []string) [][]bool {
	refuses := make([][]bool, len(names))
	for i, about := range names {
		refuses[i] = make([]bool, len(names))
		for j, name := range names {
			_, refuses[i][j] = slices.BinarySearch(h.rows[about].refused, name)
		}
	}
	return refuses
}

// matrix returns which of names hears which, which of them this node hears, and which
// of these have stalled. Every member hears itself.
func (h *hearing) matrix(names []string) (rows [][]bool, direct, stalled []bool) {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	line := func(about string) []bool {
		l := make([]bool, len(names))
		for _, name := range h.rows[about].heard {
			if i, ok := index[name]; ok {
				l[i] = true
			}
		}
		if i, ok := index[about]; ok {
			l[i] = true
		}
		return l
	}
	rows, stalled = make([][]bool, len(names)), make([]bool, len(names))
	for i, name := range names {
		rows[i] = line(name)
		stalled[i] = h.stalls(name)
	}
	return rows, line(h.self), stalled
}

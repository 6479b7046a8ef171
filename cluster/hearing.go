package cluster

import (
	"maps"
	"slices"
	"time"
)

// heardFor is how long an answer counts.
const heardFor = time.Second

// hearing is who hears whom, as one node knows it: what it finds itself, and
// what others told of themselves and of each other. It is a step function:
// events and the time go in, and each step says whether the picture changed.
//
// A member is heard if it has answered within heardFor and has left nothing
// unanswered since. Once it has left something unanswered, only the pong of a
// ping that was sent afterwards makes it heard again.
type hearing struct {
	self    string
	members map[string]*contact // all but self
	rows    map[string]row      // of the members and of self; who is missing has said nothing yet
	version uint64              // rises whenever a row changes; not zero
}

// contact is how one member stands with this node.
type contact struct {
	heard bool
	ping  uint64    // that has no pong yet, 0 if none
	sent  time.Time // when it was
}

// row is whom one member hears. Rows of one member are numbered by itself, so
// that of two that arrive by different ways the later one is known.
type row struct {
	number uint64
	heard  []string // sorted, without itself; never modified
}

func newHearing(self string) *hearing {
	return &hearing{
		self:    self,
		members: map[string]*contact{},
		rows:    map[string]row{self: {number: 1}},
		version: 1,
	}
}

// set says who the other members are. What is known of those who stay is kept.
// It reports whether anybody is new.
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

// pinged says that a ping goes out to name now, and when name answered last.
// The ping before it should have been answered by now.
func (h *hearing) pinged(name string, id uint64, answered, now time.Time) (changed bool) {
	c := h.members[name]
	if c == nil {
		return false
	}
	overdue := c.ping != 0 || now.Sub(answered) > heardFor
	c.ping, c.sent = id, now
	return overdue && h.mark(c, false)
}

// ponged says that name answered the ping id, now. It tells whether that was in
// time.
func (h *hearing) ponged(name string, id uint64, now time.Time) (inTime, changed bool) {
	c := h.members[name]
	if c == nil || id == 0 || c.ping != id {
		return false, false
	}
	c.ping = 0
	// A pong that was long in coming may have been sent long ago, and have
	// waited here while this process stood still.
	if now.Sub(c.sent) > heardFor {
		return false, false
	}
	return true, h.mark(c, true)
}

// failed says that name left something unanswered: an ask that timed out, or
// a connection that broke. A ping that is under way does not count any more.
func (h *hearing) failed(name string) (changed bool) {
	c := h.members[name]
	if c == nil {
		return false
	}
	c.ping = 0
	return h.mark(c, false)
}

func (h *hearing) mark(c *contact, heard bool) (changed bool) {
	if c.heard == heard {
		return false
	}
	c.heard = heard
	h.renew()
	return true
}

// renew makes this node's own row anew if it differs from whom it hears.
func (h *hearing) renew() {
	var heard []string
	for name, c := range h.members {
		if c.heard {
			heard = append(heard, name)
		}
	}
	slices.Sort(heard)
	own := h.rows[h.self]
	if slices.Equal(own.heard, heard) {
		return
	}
	h.rows[h.self] = row{number: own.number + 1, heard: heard}
	h.version++
}

func (h *hearing) hears(name string) bool {
	c := h.members[name]
	return c != nil && c.heard
}

// merge takes over what another member's table knows better.
func (h *hearing) merge(t table) (changed bool) {
	for i, name := range t.About {
		if name == h.self || h.members[name] == nil || t.Numbers[i] <= h.rows[name].number {
			continue
		}
		r := row{number: t.Numbers[i], heard: t.heard(i)}
		changed = changed || !slices.Equal(r.heard, h.rows[name].heard)
		h.rows[name] = r
		h.version++
	}
	return changed
}

// matrix says which of names hears which, and which of them this node hears.
// Every member hears itself.
func (h *hearing) matrix(names []string) (rows [][]bool, direct []bool) {
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
	rows = make([][]bool, len(names))
	for i, name := range names {
		rows[i] = line(name)
	}
	return rows, line(h.self)
}

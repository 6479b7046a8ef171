package detect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// unconfirmedTTL applies to a member, or a new epoch of a member, that only the roster of another
	// node has reported. The member counts as dead if gossip does not report it as alive for this long.
	unconfirmedTTL = 5 * time.Second
	// reachedTTL is how long an unconfirmed member counts as alive after it was last on the side of this node.
	// It is longer than the time from one Tick to the next.
	reachedTTL = 15 * time.Second
	// unansweredTTL is how long a member that gossip reports as alive stays in the roster without
	// an answer to its tombstone. Tick checks it.
	unansweredTTL = 5 * time.Second
	// A side that is smaller than the set of members that it misses waits this many times
	// Config.Forget before it forgets: the missing members may be well, and this side may be
	// cut off.
	smallPatience = 10
	// Tombstones are kept longer than smallPatience. Otherwise the roster of a small side would add
	// the members that left during the partition again, as dead members.
	tombstonePatience = 2 * smallPatience
	// MaxMembers, maxTombstones and MaxRecords bound a roster, whatever its members send.
	// MaxMembers includes dead members. It leaves room for the replacement of all members of a cluster
	// of 1,000 at once, if the old members have died without leaving.
	MaxMembers    = 4096
	maxTombstones = 4096
	MaxRecords    = 8192
	// NewMembers is how many members that are unknown to this node, or return after a tombstone, the
	// roster adds at once, and NewMembersEach how many it adds in each second after that. All members of a
	// cluster of 1,000 may start in one moment: when the roster added 512 at once, the remaining members
	// arrived over 15 s, and each of them changed all views. A later exchange of rosters adds the members above
	// the limit.
	NewMembers     = 1024
	NewMembersEach = 32
)

// Roster is a map of records that all members replicate. Beside each record it keeps whether the gossip
// of this node reports the member as alive. Methods that handle an event return the Change. A Roster is
// not safe for concurrent use.
//
// The records of a member are totally ordered, and a merge keeps the greater record. So the rosters
// of all members become equal: the order, the path and the number of times that records arrive do
// not matter. Without a total order, two members could keep different records forever. The roster
// keeps a tombstone of a member that is gone, so that no node without the tombstone can add the
// member again. Only the member itself can return, by answering the tombstone with a greater epoch. So
// no other node may increment Epoch or Turn.
type Roster struct {
	self    string
	forget  time.Duration
	left    bool      // this node has left
	small   time.Time // when this side was last smaller than the set of members that it misses
	entries map[string]*Entry
	order   []*Entry   // the values of entries, sorted by name; nil if entries has changed since order was made
	fresh   *Allowance // for new members
}

// Entry is a record and the facts that only this node has about the member.
type Entry struct {
	Record
	At    string    // "ip:port" for gossip; empty if gossip has never reported the member as alive
	Alive bool      // gossip reports the member as alive
	dead  time.Time // if not Alive: the time from which the member counts as dead
	// unconfirmed is set if gossip has not reported the member as alive since one of these events: the roster of
	// another node has reported the member or its present epoch, or gossip has reported the death of the member
	// while it was on the side of this node.
	unconfirmed bool
	// unanswered is the record that a tombstone from another node has replaced, while the member is
	// alive and has not left. Otherwise unanswered is nil. The member stays in the roster until the member
	// answers or unansweredTTL has passed. The members beyond a partition have forgotten the member, and
	// may have forgotten this node too. Suppose that this node dropped the member now, and received its
	// own tombstone later. Until then, this node would be alone in its roster, although the member holds
	// the same counts.
	unanswered *Record
	since      time.Time // if unanswered is not nil: when the tombstone arrived
}

// NewRoster returns the roster of a node that starts and is Joining. Tick
// removes a member once it has been dead for at least the duration forget.
func NewRoster(self Record, forget time.Duration) *Roster {
	return &Roster{self: self.Name, forget: forget, fresh: NewAllowance(NewMembers, NewMembersEach), entries: map[string]*Entry{
		self.Name: {Record: self, Alive: true},
	}}
}

// Change is the outcome of an event.
type Change struct {
	Members  bool     // the list of members has changed, or the state of a member
	Spread   []Record // records to be sent to other members at once
	Learned  []Record // records that have changed this roster; without the own record and tombstones of unknown members
	Own      bool     // the record of this node has changed, and must be sent to all members
	Rejected int      // number of members that were rejected, because the roster is full or new members arrive too fast
}

func (c *Change) add(o Change) {
	c.Members = c.Members || o.Members
	c.Own = c.Own || o.Own
	c.Rejected += o.Rejected
	c.Spread = append(c.Spread, o.Spread...)
	c.Learned = append(c.Learned, o.Learned...)
}

// HasRoom reports whether the roster has a record of the name, or has room for a new member.
// A name proves no identity, so the number and the rate of new members are limited.
func (r *Roster) HasRoom(name string, now time.Time) bool {
	return r.entries[name] != nil || r.fresh.Has(1, now) && len(r.entries) < MaxRecords && r.size() < MaxMembers
}

// admit reports whether there is room for a member that joins or returns. If there is no room, it
// counts the member in c.Rejected.
func (r *Roster) admit(now time.Time, c *Change) bool {
	if len(r.entries) >= MaxRecords || len(r.entries) >= MaxMembers && r.size() >= MaxMembers || !r.fresh.Take(1, now) {
		c.Rejected++
		return false
	}
	return true
}

// size returns the number of members, dead members included.
func (r *Roster) size() (n int) {
	for _, e := range r.entries {
		if !e.IsGone() {
			n++
		}
	}
	return n
}

// RecordAlive records that gossip reports a member as alive, and the address (the argument
// at) at which gossip reaches the member.
func (r *Roster) RecordAlive(rec Record, at string, now time.Time) Change {
	var c Change
	e := r.entries[rec.Name]
	switch {
	case e == nil:
		if !r.admit(now, &c) {
			return c
		}
		e = &Entry{Record: rec}
		r.entries[rec.Name], r.order = e, nil
		c.Members, c.Learned = true, append(c.Learned, rec)
	case rec.compare(e.Record) > 0:
		if e.IsGone() && !r.admit(now, &c) {
			return c
		}
		e.Record, e.unanswered = rec, nil
		c.Members, c.Learned = true, append(c.Learned, rec)
	case e.IsGone():
		// Either the member does not know its tombstone and must answer, or the node
		// that repeats the report does not know the tombstone.
		c.Spread = append(c.Spread, e.Record)
	}
	c.Members = c.Members || !e.IsGone() && !e.Alive
	e.Alive, e.At, e.unconfirmed, e.dead = true, at, false, time.Time{}
	return c
}

// RecordDeath records that gossip reports a member as dead. onSide reports whether the member is on the side of
// this node. Such a member is unconfirmed, and does not count as dead while it stays on the side. Gossip may be
// wrong: when it has a queue of many seconds, the answer of a suspected member may come too late.
func (r *Roster) RecordDeath(name string, onSide bool, now time.Time) Change {
	e := r.entries[name]
	if e == nil || name == r.self || !e.Alive {
		return Change{}
	}
	if onSide && !e.IsGone() {
		e.Alive, e.unconfirmed, e.dead = false, true, now.Add(reachedTTL)
		return Change{Members: true}
	}
	c := Change{Members: !e.IsGone() || e.unanswered != nil}
	e.Alive, e.dead, e.unanswered = false, now, nil
	return c
}

// Merge merges records from the roster of another node.
func (r *Roster) Merge(records []Record, now time.Time) Change {
	var c Change
	for _, rec := range records {
		if rec.IsGone() && now.Sub(rec.Gone) >= tombstonePatience*r.forget {
			continue
		}
		e := r.entries[rec.Name]
		switch {
		case rec.Name == r.self:
			if rec.IsGone() && !r.left && rec.Epoch >= e.Epoch {
				// Authority of this node may have moved to other members.
				e.Epoch = rec.Epoch + 1
				e.Announced, e.Turn = Joining, e.Turn+1
				c.Members, c.Own = true, true
			}
			continue
		case e == nil:
			if len(r.entries) >= MaxRecords || !rec.IsGone() && !r.admit(now, &c) {
				continue
			}
			r.entries[rec.Name], r.order = &Entry{Record: rec, unconfirmed: true, dead: now.Add(unconfirmedTTL)}, nil
			if !rec.IsGone() {
				c.Members, c.Learned = true, append(c.Learned, rec)
			}
		case rec.compare(e.Record) > 0:
			if e.IsGone() && !rec.IsGone() && !r.admit(now, &c) {
				continue
			}
			was := e.Record
			e.Record = rec
			if was.IsGone() && rec.IsGone() {
				continue // another copy of the same tombstone, with a time that differs by some milliseconds
			}
			c.Members, c.Learned, e.unanswered = true, append(c.Learned, rec), nil
			switch {
			case rec.IsGone():
				if e.Alive && rec.Announced != Leaving {
					e.unanswered, e.since = &was, now
				}
				c.Spread = append(c.Spread, rec)
			case rec.Epoch > was.Epoch && !e.Alive: // the member has answered a tombstone, and may be alive
				e.unconfirmed, e.dead = true, now.Add(unconfirmedTTL)
			}
		}
	}
	return c
}

// Replace adds a tombstone for a member, because this node has dialled the address of the member and
// another member answered there. An advertised address or start time does not prove that a member is
// dead: addresses may be wrong, and clocks may differ.
func (r *Roster) Replace(name string, now time.Time) Change {
	e := r.entries[name]
	if e == nil || name == r.self || e.IsGone() && e.unanswered == nil {
		return Change{}
	}
	e.Alive, e.dead, e.unanswered = false, now, nil
	if e.IsGone() { // the tombstone of another node arrived first
		return Change{Members: true}
	}
	return r.addTombstone(e, now)
}

// addTombstone makes the record of e a tombstone.
func (r *Roster) addTombstone(e *Entry, now time.Time) Change {
	e.Gone = now
	return Change{Members: true, Spread: []Record{e.Record}}
}

// ErrLeft reports that the node has left.
var ErrLeft = errors.New("cluster: the node has left")

// Announce sets the state that this node announces. It returns an error that wraps ErrLeft after Leave,
// and a different error for a state that members do not announce.
func (r *Roster) Announce(s State) (Change, error) {
	e := r.entries[r.self]
	switch {
	case !s.IsAnnounced():
		return Change{}, fmt.Errorf("cluster: Announce: a node cannot announce itself as %v: use Joining, Serving or Leaving", s)
	case r.left:
		return Change{}, fmt.Errorf("cluster: Announce: %w", ErrLeft)
	case e.Announced == s:
		return Change{}, nil
	}
	e.Announced, e.Turn = s, e.Turn+1
	return Change{Members: true, Own: true}, nil
}

// Tombstone returns the tombstone of the member that has sent its own record rec. It reports false if
// there is no tombstone, if rec is a tombstone itself, or if rec already answers the tombstone.
func (r *Roster) Tombstone(rec Record) (tombstone Record, ok bool) {
	e := r.entries[rec.Name]
	if e == nil || !e.IsGone() || rec.IsGone() {
		return Record{}, false
	}
	return e.Record, e.Epoch >= rec.Epoch
}

// Leave adds the tombstone of this node. Further calls do nothing.
func (r *Roster) Leave(now time.Time) Change {
	if r.left {
		return Change{}
	}
	r.left = true
	self := r.entries[r.self]
	if self.Announced != Leaving {
		self.Announced, self.Turn = Leaving, self.Turn+1
	}
	c := r.addTombstone(self, now)
	c.Own = true
	return c
}

// Forget adds a tombstone for a member that is dead. It returns an error if name is not in the roster,
// or not dead. An operator calls Forget if the member will not return.
func (r *Roster) Forget(name string, now time.Time) (Change, error) {
	e := r.entries[name]
	switch {
	case e == nil || e.IsGone():
		return Change{}, fmt.Errorf("cluster: Forget: %q is not in the roster: Members lists the names", name)
	case !e.IsDead(now):
		return Change{}, fmt.Errorf("cluster: Forget: %q is not dead: only a member that died without leaving can be forgotten", name)
	}
	return r.addTombstone(e, now), nil
}

// IsDead reports whether the member counts as dead.
func (e *Entry) IsDead(now time.Time) bool { return !e.Alive && !now.Before(e.dead) }

// DiesAt returns the time after now at which the member counts as dead unless gossip reports it as alive. It
// returns the zero time if there is none.
func (e *Entry) DiesAt(now time.Time) time.Time {
	if e.Alive || !e.dead.After(now) {
		return time.Time{}
	}
	return e.dead
}

// Tick forgets dead members, and members that have not answered their tombstones, and drops old
// tombstones. The argument before is the time of the previous Tick. onSide reports whether a member is
// on the side of this node. It must report true for this node.
//
// A side is compared with the set of members that it misses. A new member counts as part of the side,
// also while it is Joining. If the side has not been smaller than this set for the duration
// Config.Forget, it forgets the members that have been dead for that duration. Otherwise it forgets a
// member that has been dead for smallPatience times that duration. When a partition heals, a small side
// connects to the missing members in turn: it may stop being smaller with the first of them, while the
// remaining members are about to connect. A member that died before it served owns no keys and does not
// count as missing. Every side forgets such a member once it has been dead for Config.Forget.
func (r *Roster) Tick(before, now time.Time, onSide func(name string) bool) Change {
	var c Change
	here, missing := 0, 0
	for _, e := range r.entries {
		switch {
		case e.unanswered != nil && now.Sub(e.since) >= unansweredTTL:
			e.unanswered, c.Members = nil, true
			continue
		case e.IsGone():
			continue
		case onSide(e.Name):
			here++
			if e.unconfirmed && e.dead.After(now) { // a member of this side reaches e
				e.dead = now.Add(reachedTTL)
			}
		case !e.IsDead(now) || e.Announced != Joining:
			missing++
		}
		if e.IsDead(now) && !e.IsDead(before) {
			c.Members = true
		}
	}
	if here < missing {
		r.small = now
	}
	isDue := func(e *Entry) bool {
		dead := now.Sub(e.dead)
		if e.Announced == Joining {
			return dead >= r.forget
		}
		return dead >= smallPatience*r.forget || dead >= r.forget && now.Sub(r.small) >= r.forget
	}
	var tombstones []*Entry
	for _, e := range r.sorted() {
		switch {
		case e.IsGone():
			tombstones = append(tombstones, e)
		case e.IsDead(now) && isDue(e):
			c.add(r.addTombstone(e, now))
		}
	}
	r.sweep(tombstones, now)
	return c
}

// SkipPause records that this process was suspended for the duration pause, which ends now. In messages
// that this process has not read yet, dead members may have returned, and members may have answered
// their tombstones. So the pause does not count as time in which a member was dead, a tombstone was
// unanswered, or this side was large enough to forget.
func (r *Roster) SkipPause(pause time.Duration, now time.Time) {
	r.small = r.small.Add(pause)
	for _, e := range r.entries {
		if e.unanswered != nil {
			e.since = e.since.Add(pause)
		}
		if e.IsDead(now) && !e.IsGone() {
			if e.dead = e.dead.Add(pause); e.dead.After(now) {
				e.dead = now
			}
		}
	}
}

// sweep drops the tombstones that are old, and the oldest above the bound. It keeps the
// tombstones of members that gossip reports as alive, and the tombstone of this node.
func (r *Roster) sweep(tombstones []*Entry, now time.Time) {
	slices.SortStableFunc(tombstones, func(a, b *Entry) int { return a.Gone.Compare(b.Gone) })
	excess := len(tombstones) - maxTombstones
	for i, e := range tombstones {
		if !e.Alive && (i < excess || now.Sub(e.Gone) >= tombstonePatience*r.forget) {
			delete(r.entries, e.Name)
			r.order = nil
		}
	}
}

// sorted returns all entries in the order of their names, tombstones included. The caller must not
// modify the slice.
func (r *Roster) sorted() []*Entry {
	if r.order == nil {
		r.order = slices.SortedFunc(maps.Values(r.entries), func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	}
	return r.order
}

// Members returns the members in the roster, by name.
func (r *Roster) Members() []Entry {
	members := make([]Entry, 0, len(r.entries))
	for _, e := range r.sorted() {
		member := *e
		if e.unanswered != nil {
			member.Record = *e.unanswered
		}
		if !member.IsGone() {
			members = append(members, member)
		}
	}
	return members
}

// Records returns all of the records, including the tombstones. Other nodes pass the records to
// Merge.
func (r *Roster) Records() []Record {
	records := make([]Record, 0, len(r.entries))
	for _, e := range r.sorted() {
		records = append(records, e.Record)
	}
	return records
}

// Self returns the record of this node.
func (r *Roster) Self() Record { return r.entries[r.self].Record }

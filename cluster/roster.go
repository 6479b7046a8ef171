package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// The roster is a map of records that all members replicate, and beside each
// record what this node's gossip reports about the member's life. It is a step function:
// events and the time go in, and the change comes out.
//
// Records of one name are totally ordered and a merge keeps the greater one, so the
// rosters of all members become equal, in whichever order, how often and by whichever way
// records come. An order that is not total would leave two members with different records
// for good. A member that is gone keeps a record, its tombstone, so that a peer without it
// cannot bring the member back. Only the member itself can: it answers its own tombstone
// with a greater epoch. So no other node may raise Epoch or Turn.

// record is what all members replicate about one member.
type record struct {
	Name, Addr, Region string
	Born               int64  // Unix nanoseconds, by its own clock
	Epoch              uint64 // how often it has answered its own tombstone
	Turn               uint64 // how often it has announced another state; only itself raises it
	Announced          State  // the state that it announced last
	// Gone is when it left, was superseded or was forgotten; zero if none of
	// these. It travels as an age.
	Gone time.Time
}

func (r record) gone() bool { return !r.Gone.IsZero() }

// compare orders records of one name. Its first lines carry the meaning: of two
// lives the later one, a burial before all that was said in that life, and what
// was said last. The others make the order total.
func (r record) compare(o record) int {
	return cmp.Or(
		cmp.Compare(r.Epoch, o.Epoch),
		compareBool(r.gone(), o.gone()),
		o.Gone.Compare(r.Gone), // an age counts from the first burial
		cmp.Compare(r.Turn, o.Turn),
		cmp.Compare(r.Announced, o.Announced),
		cmp.Compare(r.Born, o.Born),
		cmp.Compare(r.Addr, o.Addr),
		cmp.Compare(r.Region, o.Region),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// entry is a record and what this node alone knows of the member.
type entry struct {
	record
	at    string    // "ip:port" that gossip reaches it by; empty if gossip never had it
	alive bool      // gossip says so
	dead  time.Time // if not alive: since when it counts as dead
	// unanswered is what was known of it before others' tombstone came, if it lives and did not
	// say goodbye: it is in until it answers. They forgot it beyond a cut. A node that dropped
	// it now, and received its own tombstone later, would be alone with what both hold.
	unanswered *record
	since      time.Time // if unanswered: since when
}

const (
	// unconfirmedTTL is how long a member, or a new life of one, that only another's roster
	// has told of is given to show up in gossip before it counts as dead.
	unconfirmedTTL = 5 * time.Second
	// unansweredTTL is how long one that lives is in without an answer to its tombstone.
	unansweredTTL = 5 * time.Second
	// A side that is smaller than what it misses waits this many times
	// Config.Forget before it forgets: the others may be well, and it may be this
	// side that is missing.
	smallPatience = 10
	// Tombstones outlast the patience of a small side, which else would bring
	// back, as dead members, those that left while it was cut off.
	tombstonePatience = 2 * smallPatience
	// maxMembers, maxTombstones and detect.MaxRecords bound a roster, whatever its members do.
	// Members count, the dead among them, until they are forgotten.
	maxMembers    = 1024
	maxTombstones = 1024
	// newMembers is how many members that this node has not known may come at once, and
	// newMembersEach how many in each second after that. A cluster of hundreds may start
	// in one moment; those above the bound come with a later push/pull.
	newMembers     = 512
	newMembersEach = 32
)

type roster struct {
	self    string
	forget  time.Duration
	left    bool
	small   time.Time // when this node's side was last smaller than what it misses
	entries map[string]*entry
	fresh   *allowance // for members that come
}

// newRoster is that of a node that starts: it is Joining.
func newRoster(self record, forget time.Duration) *roster {
	return &roster{self: self.Name, forget: forget, fresh: newAllowance(newMembers, newMembersEach), entries: map[string]*entry{
		self.Name: {record: self, alive: true},
	}}
}

// change is the outcome of a step.
type change struct {
	roster bool     // members came, went, or stand differently
	spread []record // what the others should hear of soon
	tell   bool     // what this node says of itself has changed: tell all
	full   int      // members for which there was no room
}

func (c *change) add(o change) {
	c.roster = c.roster || o.roster
	c.tell = c.tell || o.tell
	c.full += o.full
	c.spread = append(c.spread, o.spread...)
}

// room reports whether a member of that name may come: one that has been known, or one
// more. A name proves nothing, so that they are bounded, at once and in each second.
func (r *roster) room(name string, now time.Time) bool {
	return r.entries[name] != nil || r.fresh.has(1, now) && len(r.entries) < detect.MaxRecords && r.size() < maxMembers
}

// admit takes in a member that comes, or comes back, if there is room for it.
func (r *roster) admit(now time.Time, c *change) bool {
	if len(r.entries) >= detect.MaxRecords || r.size() >= maxMembers || !r.fresh.take(1, now) {
		c.full++
		return false
	}
	return true
}

// size is how many are in.
func (r *roster) size() (n int) {
	for _, e := range r.entries {
		if !e.gone() {
			n++
		}
	}
	return n
}

// up steps in gossip's word that a member is alive, and where it reaches it.
func (r *roster) up(rec record, at string, now time.Time) change {
	var c change
	e := r.entries[rec.Name]
	switch {
	case e == nil:
		if !r.admit(now, &c) {
			return c
		}
		e = &entry{record: rec}
		r.entries[rec.Name] = e
		c.roster = true
	case rec.compare(e.record) > 0:
		if e.gone() && !r.admit(now, &c) {
			return c
		}
		e.record, e.unanswered = rec, nil
		c.roster = true
	case e.gone():
		// It is buried and does not know: it has to answer, or the node that repeats
		// that it is alive has to learn better.
		c.spread = append(c.spread, e.record)
	}
	c.roster = c.roster || !e.gone() && !e.alive
	e.alive, e.at, e.dead = true, at, time.Time{}
	return c
}

// down steps in gossip's word that a member is dead.
func (r *roster) down(name string, now time.Time) change {
	e := r.entries[name]
	if e == nil || name == r.self || !e.alive {
		return change{}
	}
	c := change{roster: !e.gone() || e.unanswered != nil}
	e.alive, e.dead, e.unanswered = false, now, nil
	return c
}

// merge steps in records from another's roster.
func (r *roster) merge(records []record, now time.Time) change {
	var c change
	for _, rec := range records {
		if rec.gone() && now.Sub(rec.Gone) >= tombstonePatience*r.forget {
			continue
		}
		e := r.entries[rec.Name]
		switch {
		case rec.Name == r.self:
			if rec.gone() && !r.left && rec.Epoch >= e.Epoch {
				// Others may hold by now what it held.
				e.Epoch = rec.Epoch + 1
				e.Announced, e.Turn = Joining, e.Turn+1
				c.roster, c.tell = true, true
			}
			continue
		case e == nil:
			if len(r.entries) >= detect.MaxRecords || !rec.gone() && !r.admit(now, &c) {
				continue
			}
			r.entries[rec.Name] = &entry{record: rec, dead: now.Add(unconfirmedTTL)}
			c.roster = c.roster || !rec.gone()
		case rec.compare(e.record) > 0:
			if e.gone() && !rec.gone() && !r.admit(now, &c) {
				continue
			}
			was := e.record
			e.record = rec
			if was.gone() && rec.gone() {
				continue // no news: it came by another way, some milliseconds older
			}
			c.roster, e.unanswered = true, nil
			switch {
			case rec.gone():
				if e.alive && rec.Announced != Leaving {
					e.unanswered, e.since = &was, now
				}
				c.spread = append(c.spread, rec)
			case rec.Epoch > was.Epoch && !e.alive: // what has ended is its last life
				e.dead = now.Add(unconfirmedTTL)
			}
		}
	}
	return c
}

// replace buries a member, because this node has dialled its address and another member answered
// there. The addresses and start times that members advertise do not prove that a member is
// dead: addresses may be wrong, and clocks may differ.
func (r *roster) replace(name string, now time.Time) change {
	e := r.entries[name]
	if e == nil || name == r.self || e.gone() && e.unanswered == nil {
		return change{}
	}
	e.alive, e.dead, e.unanswered = false, now, nil
	if e.gone() { // another member has buried it first
		return change{roster: true}
	}
	return r.bury(e, now)
}

func (r *roster) bury(e *entry, now time.Time) change {
	e.Gone = now
	return change{roster: true, spread: []record{e.record}}
}

func notAnnounced(s State) error {
	return fmt.Errorf("cluster: Announce: a node cannot announce itself as %v: use Joining, Serving or Leaving", s)
}

// announce steps in what this node says of itself from now on.
func (r *roster) announce(s State) (change, error) {
	e := r.entries[r.self]
	switch {
	case !s.announced():
		return change{}, notAnnounced(s)
	case r.left:
		return change{}, fmt.Errorf("cluster: Announce: %w", errLeft)
	case e.Announced == s:
		return change{}, nil
	}
	e.Announced, e.Turn = s, e.Turn+1
	return change{roster: true, tell: true}, nil
}

// buried returns the tombstone that a member which states rec of itself does not know of,
// if there is one.
func (r *roster) buried(rec record) (tombstone record, ok bool) {
	e := r.entries[rec.Name]
	if e == nil || !e.gone() || rec.gone() {
		return record{}, false
	}
	return e.record, e.Epoch >= rec.Epoch
}

// leave steps in this node's goodbye.
func (r *roster) leave(now time.Time) change {
	if r.left {
		return change{}
	}
	r.left = true
	self := r.entries[r.self]
	if self.Announced != Leaving {
		self.Announced, self.Turn = Leaving, self.Turn+1
	}
	c := r.bury(self, now)
	c.tell = true
	return c
}

var errNotInRoster = errors.New("is not in the roster: Members lists the names")

// forgetMember steps in an operator's word that a dead member will not come back.
func (r *roster) forgetMember(name string, now time.Time) (change, error) {
	e := r.entries[name]
	switch {
	case e == nil || e.gone():
		return change{}, fmt.Errorf("cluster: Forget: %q %w", name, errNotInRoster)
	case !e.isDead(now):
		return change{}, fmt.Errorf("cluster: Forget: %q is not dead: only a member that died without leaving can be forgotten", name)
	}
	return r.bury(e, now), nil
}

func (e *entry) isDead(now time.Time) bool { return !e.alive && !now.Before(e.dead) }

// tick steps in the passing of time: the dead are forgotten and tombstones
// sweep. before is the time of the last tick; onSide reports whether a
// member is of this node's side, itself included.
//
// A side that, with the members that have joined it, stays no smaller than what it misses
// for Forget then forgets those that have been dead for so long. A smaller side forgets them
// later. As a split heals, a small side hears of the others one by one: with the first of
// them it may be no smaller, and the rest are about to be heard. Dead members that own
// nothing, because they died before they served, are not missed: they go after Forget on
// every side.
func (r *roster) tick(before, now time.Time, onSide func(name string) bool) change {
	var c change
	here, missing := 0, 0
	for _, e := range r.entries {
		switch {
		case e.unanswered != nil && now.Sub(e.since) >= unansweredTTL:
			e.unanswered, c.roster = nil, true
			continue
		case e.gone():
			continue
		case onSide(e.Name):
			here++
		case !e.isDead(now) || e.Announced != Joining:
			missing++
		}
		if e.isDead(now) && !e.isDead(before) {
			c.roster = true
		}
	}
	if here < missing {
		r.small = now
	}
	forgets := func(e *entry) bool {
		dead := now.Sub(e.dead)
		if e.Announced == Joining {
			return dead >= r.forget
		}
		return dead >= smallPatience*r.forget || dead >= r.forget && now.Sub(r.small) >= r.forget
	}
	var tombstones []*entry
	for _, e := range r.sorted() {
		switch {
		case e.gone():
			tombstones = append(tombstones, e)
		case e.isDead(now) && forgets(e):
			c.add(r.bury(e, now))
		}
	}
	r.sweep(tombstones, now)
	return c
}

// stood steps in that this process stood still for so long, up to now. The dead may have
// come back meanwhile, or a tombstone been answered, and what says so has yet to be read:
// that time brings nobody nearer to being forgotten.
func (r *roster) stood(still time.Duration, now time.Time) {
	r.small = r.small.Add(still)
	for _, e := range r.entries {
		if e.unanswered != nil {
			e.since = e.since.Add(still)
		}
		if e.isDead(now) && !e.gone() {
			if e.dead = e.dead.Add(still); e.dead.After(now) {
				e.dead = now
			}
		}
	}
}

// sweep drops the tombstones that have served their time, and the oldest
// above the bound. Those of members that gossip takes for alive stay, and so does this
// node's own, which always is.
func (r *roster) sweep(tombstones []*entry, now time.Time) {
	slices.SortStableFunc(tombstones, func(a, b *entry) int { return a.Gone.Compare(b.Gone) })
	excess := len(tombstones) - maxTombstones
	for i, e := range tombstones {
		if !e.alive && (i < excess || now.Sub(e.Gone) >= tombstonePatience*r.forget) {
			delete(r.entries, e.Name)
		}
	}
}

// sorted returns the entries by name, tombstones included.
func (r *roster) sorted() []*entry {
	return slices.SortedFunc(maps.Values(r.entries), func(a, b *entry) int { return cmp.Compare(a.Name, b.Name) })
}

// members returns the members that are in, by name.
func (r *roster) members() []entry {
	var in []entry
	for _, e := range r.sorted() {
		member := *e
		if e.unanswered != nil {
			member.record = *e.unanswered
		}
		if !member.gone() {
			in = append(in, member)
		}
	}
	return in
}

// records returns what the others are told.
func (r *roster) records() []record {
	records := make([]record, 0, len(r.entries))
	for _, e := range r.sorted() {
		records = append(records, e.record)
	}
	return records
}

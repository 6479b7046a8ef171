package countsync

import (
	"slices"

	"github.com/weir-go/weir/bucket"
)

// doubts are the ids whose count came last from a member that was not, or did
// not call itself, the authority: a stand-in, or one that was just giving its
// authority away. What the authority had sent before can be lost in it, and the
// authority does not know. So it is asked for its state again, when it is known.
// What the authority sends while this node stands in is in doubt, too: whoever is
// stood in for can follow it with less.
type doubts struct {
	from  map[bucket.ID]doubt
	order []bucket.ID // each once
	all   bool        // there were too many to remember
	again bool        // somebody was asked in vain

	reviewing  bool // a review is under way
	changed    bool // who answers may have, since the last one
	next, kept int  // how far it is through order, and how many of these are kept: what is between is gone
}

type doubt struct {
	from  Member // whose state it is
	held  bool   // it called itself the authority
	asked Member // 0 if nobody, or in vain
	at    int64
	over  bool // there is no doubt any more
}

const (
	maxDoubts = 64 << 10
	askAgain  = int64(200e6) // after an answer in vain
	trusted   = int64(10e9)  // after this long nothing older is on its way
)

func newDoubts() doubts { return doubts{from: make(map[bucket.ID]doubt)} }

// arrived is told of a state that was applied. It says whether to ask answers.
func (d *doubts) arrived(id bucket.ID, self, from, answers Member, held bool, now int64) bool {
	before, known := d.from[id]
	clean := held && (from == answers || answers == 0)
	switch {
	case clean && (!known || before.over):
		return false
	case clean && before.asked == from:
		before.over = true
		d.from[id] = before
		return false
	case !known && len(d.order) >= maxDoubts:
		d.all = d.all || !held || answers != self // else it is who is stood in for that is back, mostly
		return false
	case !known:
		d.order = append(d.order, id)
	case before.over:
		before.asked = 0
	}
	d.from[id] = doubt{from: from, held: held, asked: before.asked, at: now}
	return answers != 0 && answers != self && answers != from && before.asked != answers
}

// cameFrom is whether this node's count of id is what a member has sent, who is not
// or was not the authority: what that sends next is later, also if it says that some
// of it is a tally by now.
func (d *doubts) cameFrom(id bucket.ID, from Member) bool {
	x, known := d.from[id]
	return known && !x.over && x.from == from
}

func (d *doubts) asked(id bucket.ID, who Member) {
	if x, ok := d.from[id]; ok {
		x.asked = who
		d.from[id] = x
	}
}

// refused is told that who does not answer for id, though it was asked.
func (d *doubts) refused(id bucket.ID, who Member) {
	x, known := d.from[id]
	if !known {
		d.order = append(d.order, id)
	}
	if !known || x.over {
		x = doubt{} // the count is not what that one has sent
	}
	if x.asked == who {
		x.asked = 0
	}
	d.from[id] = x
	d.again = true
}

// begin begins a review. changed says that who answers for an id may not be who was
// asked, or what it was.
func (d *doubts) begin(changed bool) {
	d.order = slices.Delete(d.order, d.kept, d.next)
	d.again, d.reviewing, d.changed = false, true, changed
	d.kept, d.next = 0, 0
}

// reviewOn takes a review so many ids further. It calls ask for each id that the
// answering member has not sent itself as the authority, if it has not been asked or
// may not be who was.
func (d *doubts) reviewOn(most int, now int64, self Member, roles Roles, ask func(id bucket.ID, who Member)) {
	for ; d.reviewing && most > 0; most-- {
		if d.next >= len(d.order) {
			d.order = d.order[:d.kept]
			d.reviewing, d.kept, d.next = false, 0, 0
			return
		}
		id := d.order[d.next]
		d.next++
		x := d.from[id]
		answers := roles.Answers(id)
		switch {
		case x.over,
			answers == self && roles.Holds(id),
			answers == x.from && x.held && now-x.at > trusted:
			delete(d.from, id)
			continue
		case answers == 0, answers == self, answers == x.from && x.held, !d.changed && x.asked != 0:
		default:
			ask(id, answers)
		}
		d.order[d.kept] = id
		d.kept++
	}
}

package countsync

import (
	"slices"

	"github.com/weir-go/weir/bucket"
)

// doubts are the ids whose count came last from a member that was not, or did
// not call itself, the authority: a stand-in, or one that was just giving its
// authority away. What the authority had sent before can be lost in it, and the
// authority does not know. So it is asked for its state again, when it is known.
type doubts struct {
	from  map[bucket.ID]doubt
	order []bucket.ID // each once
	all   bool        // there were too many to remember
}

type doubt struct {
	from  Member // whose state it is
	held  bool   // it called itself the authority
	asked Member // 0 if nobody, or in vain
	at    int64
}

const (
	maxDoubts = 64 << 10
	askAgain  = int64(200e6) // after an answer in vain
	trusted   = int64(10e9)  // after this long nothing older is on its way
)

func newDoubts() doubts { return doubts{from: make(map[bucket.ID]doubt)} }

// arrived is told of a state that was applied. It says whether to ask answers.
func (d *doubts) arrived(id bucket.ID, self, from, answers Member, held bool, now int64) bool {
	before, doubted := d.from[id]
	clean := held && (from == answers || answers == self || answers == 0)
	switch {
	case !doubted && clean:
		return false
	case doubted && clean && before.asked == from:
		d.drop(id)
		return false
	case !doubted && len(d.order) >= maxDoubts:
		d.all = true
		return false
	case !doubted:
		d.order = append(d.order, id)
	}
	ask := answers != 0 && answers != self && answers != from && before.asked != answers
	d.from[id] = doubt{from: from, held: held, asked: before.asked, at: now}
	return ask
}

func (d *doubts) drop(id bucket.ID) {
	if _, ok := d.from[id]; ok {
		delete(d.from, id)
		d.order = slices.DeleteFunc(d.order, func(o bucket.ID) bool { return o == id })
	}
}

func (d *doubts) asked(id bucket.ID, who Member) {
	if x, ok := d.from[id]; ok {
		x.asked = who
		d.from[id] = x
	}
}

// refused is told that who does not answer for id, though it was asked.
func (d *doubts) refused(id bucket.ID, who Member) {
	if x, ok := d.from[id]; ok {
		if x.asked == who {
			x.asked = 0
			d.from[id] = x
		}
		return
	}
	d.order = append(d.order, id)
	d.from[id] = doubt{from: who}
}

// review calls ask for each id whose authority is to be asked: for each that the
// answering member has not sent itself, or with again, that it was asked in vain.
func (d *doubts) review(now int64, self Member, roles Roles, changed bool, ask func(id bucket.ID, who Member)) {
	kept := d.order[:0]
	for _, id := range d.order {
		x := d.from[id]
		answers := roles.Answers(id)
		switch {
		case answers == self && roles.Holds(id):
			delete(d.from, id)
			continue
		case answers == x.from && x.held && now-x.at > trusted:
			delete(d.from, id)
			continue
		case answers == 0, answers == self, answers == x.from, !changed && x.asked != 0:
		default:
			x.asked = answers
			d.from[id] = x
			ask(id, answers)
		}
		kept = append(kept, id)
	}
	d.order = kept
}

package countsync

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// ledger has the vectors of copies, by id. Its entries hold no pointers, and an entry that
// is in use stays where it is, since reviews and sweeps go by indexes.
//
// It is bounded. Once it is full, each new tally takes the place of another (makeRoom).
// Its units stay in the copies that have them, but nothing tells them apart any more:
// where another copy has that tally still, and this one does not cover it, they count
// once more when the two are merged, until they have recovered.
type ledger struct {
	self  Member
	store *bucket.Store // which keeps self's totals of all other ids

	first   map[bucket.ID]int32 // index of an id's first entry
	all     deque[entry]        // in no order but that of insertion, where places are used again
	unused  int32               // the first place that is not in use, which has the next; none if there is none
	n       int                 // in use
	swept   int
	hand    int    // where makeRoom looks next
	most    int    // entries, above which there is no room
	dropped uint64 // entries that may not have recovered, for want of room
}

// entry is one tally of an id's vector.
type entry struct {
	tally
	id     bucket.ID
	next   int32  // of the same id; none ends the list
	passed stamps // the members that it was queued for as it is; none, once it grows
	heard  bool   // it came from others, though its origin is this node, which has forgotten it
	kept   bool   // the holder may lack the tally, so no sweep folds it: reviews visit the ledger only
	lasts  int64  // how long it counts at most from when it grew, as far as is known: its count may be reclaimed before
}

// total is t as a store keeps it, if that has room for it.
func (t *tally) total() (kept bucket.Total, ok bool) {
	if t.refunded != 0 || t.spent > math.MaxUint32 {
		return kept, false
	}
	return bucket.Total{Origin: t.origin, Series: t.series, Spent: uint32(t.spent)}, true
}

const none = -1

// maxEntries is how many tallies are kept: about 134 MB.
const maxEntries = 1 << 20

// entryBytes is what a tally takes, about, with its place in the index.
const entryBytes = 128

func newLedger(self Member, store *bucket.Store) ledger {
	return ledger{self: self, store: store, first: make(map[bucket.ID]int32), unused: none, most: maxEntries}
}

func (l *ledger) len() int { return l.n }

func (l *ledger) at(i int32) *entry { return l.all.at(int(i)) }

func (l *ledger) has(id bucket.ID) bool {
	if len(l.first) == 0 {
		return false
	}
	_, ok := l.first[id]
	return ok
}

// of is the index of id's first entry, none if there is no tally.
func (l *ledger) of(id bucket.ID) int32 {
	if len(l.first) == 0 {
		return none
	}
	if i, ok := l.first[id]; ok {
		return i
	}
	return none
}

func (l *ledger) find(id bucket.ID, origin Member) *entry {
	for i := l.of(id); i != none; i = l.at(i).next {
		if l.at(i).origin == origin {
			return l.at(i)
		}
	}
	return nil
}

// vector appends id's to v, which is empty.
func (l *ledger) vector(v vector, id bucket.ID) vector {
	for i := l.of(id); i != none; i = l.at(i).next {
		v = append(v, l.at(i).tally)
	}
	slices.SortFunc(v, func(a, b tally) int { return cmp.Compare(a.origin, b.origin) })
	return v
}

// join makes id's vector the join of itself and another, and reports whether it grew. The
// new units count for lasts at most, and passOn reports whether the holder may lack them.
func (l *ledger) join(id bucket.ID, v vector, lasts int64, passOn bool) (grew bool) {
	for i := range v {
		t := &v[i]
		known := l.find(id, t.origin)
		switch {
		case known == nil:
			known = l.add(id, *t)
		case t.series > known.series:
			known.tally = *t
		case t.series < known.series || !known.join(t):
			continue
		}
		grew = true
		known.passed, known.heard, known.kept, known.lasts = stamps{}, t.origin == l.self, passOn, max(known.lasts, lasts)
	}
	return grew
}

// add makes room for a tally that is not there yet. It ends the list, so that
// an id's tallies stand in the order they were heard of.
func (l *ledger) add(id bucket.ID, t tally) *entry {
	if l.n >= l.most {
		l.makeRoom()
	}
	i := l.unused
	if i != none {
		l.unused = l.at(i).next
	} else {
		i = int32(l.all.len())
		l.all.push(entry{})
	}
	l.n++
	e := l.at(i)
	*e = entry{tally: t, id: id, next: none}
	last := l.of(id)
	if last == none {
		l.first[id] = i
		return e
	}
	for l.at(last).next != none {
		last = l.at(last).next
	}
	l.at(last).next = i
	return e
}

// makeRoom forgets the tally that is missed least of the next few: the one that grew
// longest ago of those that were queued for a member, or else of all.
func (l *ledger) makeRoom() {
	const sample = 16
	rank := func(e *entry) (missed int) {
		if e.passed == (stamps{}) {
			missed++
		}
		return missed
	}
	least := int32(none)
	for range min(sample, l.all.len()) {
		if l.hand++; l.hand >= l.all.len() {
			l.hand = 0
		}
		e := l.at(int32(l.hand))
		if e.origin == 0 {
			continue
		}
		if least == none || cmp.Or(cmp.Compare(rank(e), rank(l.at(least))), cmp.Compare(e.changed, l.at(least).changed)) < 0 {
			least = int32(l.hand)
		}
	}
	if least == none {
		return
	}
	l.dropped++
	l.remove(least)
}

// free makes a place one that is not in use.
func (l *ledger) free(i int32) {
	l.forget(l.at(i))
	*l.at(i) = entry{next: l.unused}
	l.unused = i
	if l.n--; l.n == 0 {
		l.all, l.unused, l.swept, l.hand = deque[entry]{}, none, 0, 0
	}
}

// forget has self's next tally of the id, here or in the store, begin above this one: in
// another series, if units were refunded, as only that outgrows them.
func (l *ledger) forget(e *entry) {
	if e.origin != l.self {
		return
	}
	outgrown := bucket.Total{Origin: e.origin, Series: e.series, Spent: math.MaxUint32}
	if e.refunded == 0 {
		outgrown.Spent = uint32(min(e.spent, math.MaxUint32))
	}
	l.store.Forget(e.id, outgrown)
}

// drop forgets all tallies of id.
func (l *ledger) drop(id bucket.ID) {
	for i := l.of(id); i != none; {
		next := l.at(i).next
		l.free(i)
		i = next
	}
	delete(l.first, id)
}

// remove forgets one entry.
func (l *ledger) remove(at int32) {
	id, next := l.at(at).id, l.at(at).next
	if i := l.first[id]; i != at {
		for l.at(i).next != at {
			i = l.at(i).next
		}
		l.at(i).next = next
	} else if next == none {
		delete(l.first, id)
	} else {
		l.first[id] = next
	}
	l.free(at)
}

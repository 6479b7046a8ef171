package countsync

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// ledger contains the vectors of copies, by id. Its entries have no pointers. An entry in use
// keeps its index, because reviews and sweeps go by indexes.
//
// The ledger is bounded. Once it is full, each new tally takes the place of another tally
// (makeRoom). The units of the removed tally stay in the copies that have them, but cannot be
// told apart any more. If another copy still has that tally and this copy does not cover it, the
// units count once more when the two copies are merged, until they have recovered.
type ledger struct {
	self  Member
	store *bucket.Store // has the totals of self for all ids that are not in the ledger

	first   map[bucket.ID]int32 // index of the first entry of an id
	all     deque[entry]        // in order of insertion, except that free entries are used again
	unused  int32               // index of the first free entry, or noEntry; its next is the index of another free entry
	n       int                 // number of entries in use
	swept   int                 // index that Sweep examined last
	hand    int                 // index that makeRoom examined last
	most    int                 // maximum number of entries
	dropped uint64              // entries that were removed for want of room, and may not have recovered
}

// entry is a tally in the vector of an id.
type entry struct {
	tally
	id     bucket.ID
	next   int32  // next entry of the same id, or noEntry
	passed stamps // stamps of the members for which the tally was queued, or which have sent it; cleared when it grows
	heard  bool   // the tally came from other members, although this node is its origin and has forgotten it
	kept   bool   // the holder may lack the tally, so it is not folded: reviews visit only the ledger
	lasts  int64  // upper bound of the time for which its units count, as far as is known; kept here because the count may be reclaimed before that time ends
}

// total returns t as the Total of a count. ok is false if t has refunds, or more units than a
// Total can have.
func (t *tally) total() (kept bucket.Total, ok bool) {
	if t.refunded != 0 || t.spent > math.MaxUint32 {
		return kept, false
	}
	return bucket.Total{Origin: t.origin, Series: t.series, Spent: uint32(t.spent)}, true
}

const noEntry = -1

// maxEntries is the maximum number of tallies: about 134 MB.
const maxEntries = 1 << 20

// entryBytes is the approximate size of a tally with its place in the index.
const entryBytes = 128

func newLedger(self Member, store *bucket.Store) ledger {
	return ledger{self: self, store: store, first: make(map[bucket.ID]int32), unused: noEntry, most: maxEntries}
}

func (l *ledger) len() int { return l.n }

func (l *ledger) entry(i int32) *entry { return l.all.element(int(i)) }

func (l *ledger) contains(id bucket.ID) bool {
	if len(l.first) == 0 {
		return false
	}
	_, ok := l.first[id]
	return ok
}

// firstEntry returns the index of the first entry of id, or noEntry.
func (l *ledger) firstEntry(id bucket.ID) int32 {
	if len(l.first) == 0 {
		return noEntry
	}
	if i, ok := l.first[id]; ok {
		return i
	}
	return noEntry
}

func (l *ledger) find(id bucket.ID, origin Member) *entry {
	for i := l.firstEntry(id); i != noEntry; i = l.entry(i).next {
		if l.entry(i).origin == origin {
			return l.entry(i)
		}
	}
	return nil
}

// vector appends the tallies of id to v, which must be empty, in order of their origins.
func (l *ledger) vector(v vector, id bucket.ID) vector {
	for i := l.firstEntry(id); i != noEntry; i = l.entry(i).next {
		v = append(v, l.entry(i).tally)
	}
	slices.SortFunc(v, func(a, b tally) int { return cmp.Compare(a.origin, b.origin) })
	return v
}

// join replaces the vector of id with the join of that vector and v, and reports whether the vector
// grew. The new units count for at most the time lasts, in nanoseconds. The argument passOn states
// whether the holder may lack the new units.
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

// add adds a tally that id does not have yet. The tally becomes the last element of the list, so
// that the tallies of an id are in the order in which this node has heard of them.
func (l *ledger) add(id bucket.ID, t tally) *entry {
	if l.n >= l.most {
		l.makeRoom()
	}
	i := l.unused
	if i != noEntry {
		l.unused = l.entry(i).next
	} else {
		i = int32(l.all.len())
		l.all.push(entry{})
	}
	l.n++
	e := l.entry(i)
	*e = entry{tally: t, id: id, next: noEntry}
	last := l.firstEntry(id)
	if last == noEntry {
		l.first[id] = i
		return e
	}
	for l.entry(last).next != noEntry {
		last = l.entry(last).next
	}
	l.entry(last).next = i
	return e
}

// makeRoom examines the next few entries and removes one tally. Of the examined tallies that were
// queued for a member or came from a member, it removes the tally whose last growth is the oldest.
// If there is no such tally, it chooses in the same way from all examined tallies.
func (l *ledger) makeRoom() {
	const sample = 16
	rank := func(e *entry) (missed int) {
		if e.passed == (stamps{}) {
			missed++
		}
		return missed
	}
	least := int32(noEntry)
	for range min(sample, l.all.len()) {
		if l.hand++; l.hand >= l.all.len() {
			l.hand = 0
		}
		e := l.entry(int32(l.hand))
		if e.origin == 0 {
			continue
		}
		if least == noEntry || cmp.Or(cmp.Compare(rank(e), rank(l.entry(least))), cmp.Compare(e.changed, l.entry(least).changed)) < 0 {
			least = int32(l.hand)
		}
	}
	if least == noEntry {
		return
	}
	l.dropped++
	l.remove(least)
}

// free adds the entry at index i to the list of free entries.
func (l *ledger) free(i int32) {
	l.forget(l.entry(i))
	*l.entry(i) = entry{next: l.unused}
	l.unused = i
	if l.n--; l.n == 0 {
		l.all, l.unused, l.swept, l.hand = deque[entry]{}, noEntry, 0, 0
	}
}

// forget ensures that the next tally of self for the id begins above e, here or in the store.
// After a refund, the next tally has a new series, because only a higher series outgrows refunds.
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

// drop removes all tallies of id.
func (l *ledger) drop(id bucket.ID) {
	for i := l.firstEntry(id); i != noEntry; {
		next := l.entry(i).next
		l.free(i)
		i = next
	}
	delete(l.first, id)
}

// remove removes the entry at an index.
func (l *ledger) remove(at int32) {
	id, next := l.entry(at).id, l.entry(at).next
	if i := l.first[id]; i != at {
		for l.entry(i).next != at {
			i = l.entry(i).next
		}
		l.entry(i).next = next
	} else if next == noEntry {
		delete(l.first, id)
	} else {
		l.first[id] = next
	}
	l.free(at)
}

package countsync

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// tally is what one origin has spent of one id without authority: cumulative
// totals, which are merged by maximum within a series. A higher series replaces
// a lower one: its origin has begun again from zero.
type tally struct {
	origin          Member
	series          int64
	spent, refunded int64
	unrecovered     int64 // of what is spent and not refunded; never above what its origin's count had in use
	changed         int64 // when the totals last grew, by this node's clock
}

func (t *tally) net() int64 { return t.spent - t.refunded }

// ledger has the tallies that are known here, by id. Every one of them is part
// of the count in this node's store. It holds no pointers.
//
// It is bounded. Once it is full, each new tally takes the place of another
// (makeRoom), and what that one had not recovered is lost to members that have not been
// sent it: if it was this node's own, the authority may admit that much once more. If it
// was sent, its units stay in the counts that include them, but nothing tells them apart
// from these counts any more: where it arrives once again, by another path, it counts
// twice until it has recovered.
type ledger struct {
	first   map[bucket.ID]int32 // index of an id's first entry
	all     deque[entry]        // in no order but that of insertion, where places are used again
	unused  int32               // the first place that is not in use, which has the next; none if there is none
	n       int                 // in use
	swept   int
	hand    int    // where makeRoom looks next
	most    int    // entries, above which there is no room
	dropped uint64 // entries that had not recovered, for want of room
}

type entry struct {
	tally
	id      bucket.ID
	next    int32  // of the same id; none ends the list
	passed  stamps // the members that it was queued for as it is; none, once it changes
	owed    int64  // at most 0: given back elsewhere, and not here, where there was nothing to give back from
	foreign bool   // heard of from others, though its origin is this node, which has forgotten it
}

const none = -1

// maxEntries is how many tallies are kept: about 126 MB.
const maxEntries = 1 << 20

// entryBytes is what a tally takes, about, with its place in the index.
const entryBytes = 120

func newLedger() ledger {
	return ledger{first: make(map[bucket.ID]int32), unused: none, most: maxEntries}
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

// makeRoom forgets the tally that is missed least of the next few: one that has
// recovered, or else the one that grew longest ago of those that were queued for a
// member, or else of all.
func (l *ledger) makeRoom() {
	const sample = 16
	rank := func(e *entry) (missed int) {
		if e.unrecovered != 0 {
			missed++
			if e.passed == (stamps{}) {
				missed++
			}
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
	if l.at(least).unrecovered != 0 {
		l.dropped++
	}
	l.remove(least)
}

// free makes a place one that is not in use.
func (l *ledger) free(i int32) {
	*l.at(i) = entry{next: l.unused}
	l.unused = i
	if l.n--; l.n == 0 {
		l.all, l.unused, l.swept, l.hand = deque[entry]{}, none, 0, 0
	}
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

// cap lowers what has not recovered of id's tallies to the units in use: what
// was there before a tally recovers first, so the whole may still count, and no
// more than that. It returns how much of what is in use is theirs; below zero,
// if they have given more back.
func (l *ledger) cap(id bucket.ID, used int64) (theirs int64) {
	for i := l.of(id); i != none; i = l.at(i).next {
		t := l.at(i)
		t.unrecovered = min(t.unrecovered, used)
		theirs += t.unrecovered + min(0, t.net()-t.owed)
	}
	return theirs
}

// spares is how much of id's units in use, most, is in no other's tally than
// origin's. What has not recovered of each tally is known as a bound alone, and of
// all together that can be more than is in use: its own it always has.
func (l *ledger) spares(id bucket.ID, origin Member, most int64) int64 {
	var own, others int64
	for i := l.of(id); i != none; i = l.at(i).next {
		if l.at(i).origin == origin {
			own = l.at(i).unrecovered
		} else {
			others += l.at(i).unrecovered
		}
	}
	return min(most, max(own, most-others))
}

// beyond is what of a tally's net units counts on top of those that were seen of
// it: of what was spent, no more than has not recovered (unrecovered of the net,
// before of what was seen). What was given back beyond what the tally itself had
// spent is part of other units, of which nobody knows how they recover: it counts
// as long as it is not late.
func beyond(net, seen, unrecovered, before int64, late bool) int64 {
	own, others := max(0, net)-max(0, seen), min(0, net)-min(0, seen)
	own = min(own, unrecovered)
	if late {
		own, others = max(own, -before), 0
	}
	return own + others
}

// learn merges what a tally says into what is known, and returns the units that
// have to be spent for it (below zero: given back, so many at most). late says of a
// time whether what was given back then comes too late.
func (l *ledger) learn(id bucket.ID, t tally, most int64, late func(changed int64) bool) (units int64) {
	known := l.find(id, t.origin)
	if known == nil {
		known = l.add(id, tally{origin: t.origin, series: t.series, changed: t.changed})
		known.foreign = true
	}
	switch {
	case t.series < known.series:
		return 0
	case t.series > known.series:
		known.tally, known.owed, known.foreign, known.passed = tally{origin: t.origin, series: t.series}, 0, true, stamps{}
	}
	if known.owed != 0 && late(known.changed) {
		known.owed = 0 // time has given it back
	}
	before := known.net()
	known.merge(t)
	units = beyond(known.net(), before, t.unrecovered, known.unrecovered, late(known.changed))
	if units += known.owed; units < -most {
		units, known.owed = -most, units+most
	} else {
		known.owed = 0
	}
	known.unrecovered = min(max(0, known.unrecovered+units), max(0, known.net()))
	return units
}

// merge takes over the higher of each total. Members that were sent the lower one have
// yet to be sent the other.
func (e *entry) merge(o tally) {
	if o.spent > e.spent || o.refunded > e.refunded {
		e.passed = stamps{}
	}
	e.spent, e.refunded = max(e.spent, o.spent), max(e.refunded, o.refunded)
	e.changed = max(e.changed, o.changed)
}

// says reports whether a member that sent t has all there is of the tally.
func (e *entry) says(t *tally) bool {
	return e.series == t.series && e.spent == t.spent && e.refunded == t.refunded
}

// adopt takes over what a state says it includes, and returns the units that
// are known here and not included: what has to be spent on top of it (below
// zero: given back).
func (l *ledger) adopt(id bucket.ID, seen []tally, late func(changed int64) bool) (onTop int64) {
	for i := l.of(id); i != none; i = l.at(i).next {
		known := l.at(i)
		known.owed = 0
		t := tally{series: known.series}
		if at := slices.IndexFunc(seen, func(t tally) bool { return t.origin == known.origin }); at >= 0 && seen[at].series >= known.series {
			t = seen[at]
		}
		if t.series > known.series {
			known.tally, known.foreign, known.passed = t, true, stamps{} // if it is this node's own, it begins again above it
			continue
		}
		known.merge(t)
		more := beyond(known.net(), t.net(), known.unrecovered, t.unrecovered, late(known.changed))
		known.unrecovered = min(max(0, t.unrecovered+more), max(0, known.net()))
		onTop += more
	}
	for _, t := range seen {
		if l.find(id, t.origin) == nil {
			l.add(id, t).foreign = true
		}
	}
	return onTop
}

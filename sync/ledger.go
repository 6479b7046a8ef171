package countsync

import (
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
type ledger struct {
	first  map[bucket.ID]int32 // index of an id's first entry
	all    []entry             // in no order but that of insertion, where places are used again
	unused []int32
	swept  int
}

type entry struct {
	tally
	id      bucket.ID
	next    int32 // of the same id; -1 ends the list
	owed    int64 // at most 0: given back elsewhere, and not here, where there was nothing to give back from
	foreign bool  // heard of from others, though its origin is this node, which has forgotten it
}

const none = -1

func newLedger() ledger { return ledger{first: make(map[bucket.ID]int32)} }

func (l *ledger) len() int { return len(l.all) - len(l.unused) }

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
	for i := l.of(id); i != none; i = l.all[i].next {
		if l.all[i].origin == origin {
			return &l.all[i]
		}
	}
	return nil
}

// add makes room for a tally that is not there yet. It ends the list, so that
// an id's tallies stand in the order they were heard of.
func (l *ledger) add(id bucket.ID, t tally) *entry {
	i := int32(len(l.all))
	if n := len(l.unused); n > 0 {
		i = l.unused[n-1]
		l.unused = l.unused[:n-1]
	} else {
		l.all = append(l.all, entry{})
	}
	l.all[i] = entry{tally: t, id: id, next: none}
	last := l.of(id)
	if last == none {
		l.first[id] = i
		return &l.all[i]
	}
	for l.all[last].next != none {
		last = l.all[last].next
	}
	l.all[last].next = i
	return &l.all[i]
}

// drop forgets all tallies of id.
func (l *ledger) drop(id bucket.ID) {
	for i := l.of(id); i != none; {
		next := l.all[i].next
		l.all[i] = entry{next: none}
		l.unused = append(l.unused, i)
		i = next
	}
	delete(l.first, id)
}

// remove forgets one entry.
func (l *ledger) remove(at int32) {
	id, next := l.all[at].id, l.all[at].next
	if i := l.first[id]; i != at {
		for l.all[i].next != at {
			i = l.all[i].next
		}
		l.all[i].next = next
	} else if next == none {
		delete(l.first, id)
	} else {
		l.first[id] = next
	}
	l.all[at] = entry{next: none}
	l.unused = append(l.unused, at)
}

// cap lowers what has not recovered of id's tallies to the units in use: what
// was there before a tally recovers first, so the whole may still count, and no
// more than that. It returns how much of what is in use is theirs; below zero,
// if they have given more back.
func (l *ledger) cap(id bucket.ID, used int64) (theirs int64) {
	for i := l.of(id); i != none; i = l.all[i].next {
		t := &l.all[i]
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
	for i := l.of(id); i != none; i = l.all[i].next {
		if l.all[i].origin == origin {
			own = l.all[i].unrecovered
		} else {
			others += l.all[i].unrecovered
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
		known.tally, known.owed, known.foreign = tally{origin: t.origin, series: t.series}, 0, true
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

func (t *tally) merge(o tally) {
	t.spent, t.refunded = max(t.spent, o.spent), max(t.refunded, o.refunded)
	t.changed = max(t.changed, o.changed)
}

// adopt takes over what a state says it includes, and returns the units that
// are known here and not included: what has to be spent on top of it (below
// zero: given back).
func (l *ledger) adopt(id bucket.ID, seen []tally, late func(changed int64) bool) (onTop int64) {
	for i := l.of(id); i != none; i = l.all[i].next {
		known := &l.all[i]
		known.owed = 0
		t := tally{series: known.series}
		if at := slices.IndexFunc(seen, func(t tally) bool { return t.origin == known.origin }); at >= 0 && seen[at].series >= known.series {
			t = seen[at]
		}
		if t.series > known.series {
			known.tally, known.foreign = t, true // if it is this node's own, it begins again above it
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

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
		theirs += t.unrecovered + min(0, t.net())
	}
	return theirs
}

// learn merges what a tally says into what is known, and returns how many units
// of it are new; below zero, how many have been given back.
func (l *ledger) learn(id bucket.ID, t tally) (*entry, int64) {
	known := l.find(id, t.origin)
	if known == nil {
		known = l.add(id, tally{origin: t.origin, series: t.series, changed: t.changed})
		known.foreign = true
	}
	switch {
	case t.series < known.series:
		return known, 0
	case t.series > known.series:
		known.tally = tally{origin: t.origin, series: t.series}
	}
	before := known.net()
	known.spent, known.refunded = max(known.spent, t.spent), max(known.refunded, t.refunded)
	known.changed = max(known.changed, t.changed)
	return known, known.net() - before
}

// adopt takes over what a state says it includes, and returns the units that
// are known here and not included: what has to be spent on top of it (below
// zero: given back). late says of a refund's time that it has come too late.
func (l *ledger) adopt(id bucket.ID, seen []tally, late func(changed int64) bool) (onTop int64) {
	for i := l.of(id); i != none; i = l.all[i].next {
		known := &l.all[i]
		at := slices.IndexFunc(seen, func(t tally) bool { return t.origin == known.origin })
		switch {
		case at >= 0 && seen[at].series > known.series:
			foreign := true // if it is this node's own, it begins again above it
			known.tally, known.foreign = seen[at], foreign
		case at >= 0 && seen[at].series == known.series:
			t := seen[at]
			known.spent, known.refunded = max(known.spent, t.spent), max(known.refunded, t.refunded)
			known.changed = max(known.changed, t.changed)
			more := known.net() - t.net()
			if more > 0 {
				more = min(more, known.unrecovered)
			} else if more < 0 && late(known.changed) {
				more = max(more, -t.unrecovered)
			}
			known.unrecovered = max(0, t.unrecovered+more)
			onTop += more
		default:
			if net := known.net(); net > 0 {
				onTop += min(net, known.unrecovered)
			} else if net < 0 && !late(known.changed) {
				onTop += net
			}
		}
	}
	for _, t := range seen {
		if l.find(id, t.origin) == nil {
			l.add(id, t).foreign = true
		}
	}
	return onTop
}

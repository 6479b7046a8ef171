package countsync

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// kind is what an item has to tell of its id.
type kind uint8

const (
	grants kind = iota // the holding
	state              // the count, absolute
	spend              // the tallies, and the reset number
	ask                // that the receiver's state is wanted
	merged             // nothing: its units are part of an item of the same id that waits before it
)

// item is one id that waits for a member.
type item struct {
	id    bucket.ID
	units int64 // of a state: what this node spent with authority that the member may not have; all of it, if everything
	at    int64 // the stream's time when it was queued
	till  int64 // when the last of its units were added to it; at, if none were
	kind  kind
	to    uint8 // of a state: how many members are sent these units, by themselves or by a scan
	bulk  bool  // of a spend: it is of outbound.bulk
	held  bool  // of a state: it is the authority's, though that may have moved since
	// tallied says that the units are in this node's tally, until it is known
	// whether they have arrived.
	tallied bool
}

// last is the stream's time of the last of its units.
func (it *item) last() int64 { return max(it.at, it.till) }

// batch names the units that one Collect found, whoever they are sent to.
type batch struct {
	id bucket.ID
	at int64
}

func (it *item) batch() batch { return batch{it.id, it.at} }

// untallied is its units that are in no tally yet.
func (it *item) untallied() int64 {
	if it.tallied {
		return 0
	}
	return it.units
}

// everything stands for as many units as are used.
const everything = math.MaxInt64

// The bounds of a queue.
const (
	foldAbove = 64 << 10
	foldStep  = 4 // items
	maxQueued = 1 << 20
)

// queue is the items for one member in order of their time. It is a plain list as
// long as it is short, since no map is as fast; a long one has an index, by which
// what is queued again is added to the item that waits already. What waited before
// there was an index is folded into it a few items at a time, with each item that
// is queued: no call does more for a long queue than for a short one.
//
// Of two items with the same id and kind the later one is merged into the one that
// waits before it, never the other way: who waits for all that was queued up to a
// time (due) goes by the time of the first item.
type queue struct {
	items deque[item]
	first int64 // position of the first of items: what has one keeps it
	index map[queued]int64
	fold  int64 // position of the next item to be folded
	folds int64 // and where those end that are to be

	late []item // riders, by time: they are few, and would stand within items
	dead int    // items that are merged

	foldAt int // items, above which it has an index, and so each id once
	most   int // items, above which there is no room
}

type queued struct {
	id   bucket.ID
	kind kind
}

func (q *queue) len() int { return q.items.len() - q.dead + len(q.late) }

// oldest is the time of the item that comes next.
func (q *queue) oldest() (at int64, ok bool) {
	switch {
	case q.lateFirst():
		return q.late[0].at, true
	case q.items.len() > 0:
		return q.items.at(0).at, true
	}
	return 0, false
}

// lateFirst reports whether the next item is a late one.
func (q *queue) lateFirst() bool {
	return len(q.late) > 0 && (q.items.len() == 0 || q.late[0].at < q.items.at(0).at)
}

// behind is whether something waits that was queued after that time. If not, no
// id waits that was sent by then: one time queues each once.
func (q *queue) behind(at int64) bool {
	n := q.items.len()
	return n > 0 && q.items.at(n-1).last() > at || len(q.late) > 0 && q.late[len(q.late)-1].at > at || q.index != nil
}

func (q *queue) clear() { *q = queue{foldAt: q.foldAt, most: q.most} }

// push queues an item, and says whether there was room. voided says of an item whether
// its units count no more.
func (q *queue) push(it item, voided func(*item) bool) bool {
	if q.index == nil && q.items.len() >= q.foldAt {
		q.index = make(map[queued]int64)
		q.fold, q.folds = q.first, q.first+int64(q.items.len())
	}
	for range foldStep {
		q.foldOne(voided)
	}
	if waits := q.indexed(&it); waits != nil {
		waits.add(&it, voided)
		return true
	}
	if q.items.len()+len(q.late) >= q.most {
		return false
	}
	if q.index != nil {
		q.index[queued{it.id, it.kind}] = q.first + int64(q.items.len())
	}
	q.items.push(it)
	return true
}

// indexed is the item that waits and takes what is queued of the same id.
func (q *queue) indexed(it *item) *item {
	at, ok := q.index[queued{it.id, it.kind}]
	if !ok {
		return nil
	}
	return q.items.at(int(at - q.first))
}

// foldOne folds one item of those that waited before there was an index.
func (q *queue) foldOne(voided func(*item) bool) {
	if q.fold = max(q.fold, q.first); q.index == nil || q.fold >= q.folds {
		return
	}
	it := q.items.at(int(q.fold - q.first))
	key := queued{it.id, it.kind}
	switch at, ok := q.index[key]; {
	case it.kind == merged, ok && at == q.fold:
	case !ok:
		q.index[key] = q.fold
	case at < q.fold:
		q.merge(q.items.at(int(at-q.first)), it, voided)
	default:
		q.index[key] = q.fold
		q.merge(it, q.items.at(int(at-q.first)), voided)
	}
	q.fold++
	q.bury()
}

func (q *queue) merge(into, it *item, voided func(*item) bool) {
	into.add(it, voided)
	*it = item{at: it.at, kind: merged}
	q.dead++
}

// bury lets go of merged items that stand first.
func (q *queue) bury() {
	for q.items.len() > 0 && q.items.at(0).kind == merged {
		q.items.pop()
		q.first++
		q.dead--
	}
}

// add adds a later item's units.
func (it *item) add(later *item, voided func(*item) bool) {
	if voided(it) {
		it.units = 0
	}
	if voided(later) {
		later.units = 0
	}
	it.units = plus(it.units, later.units)
	it.till = max(it.last(), later.last())
	it.held = it.held || later.held
}

func (q *queue) pop() item {
	if q.lateFirst() {
		it := q.late[0]
		if q.late = q.late[1:]; len(q.late) == 0 {
			q.late = nil
		}
		return it
	}
	it := q.items.pop()
	if q.index != nil {
		if key := (queued{it.id, it.kind}); q.index[key] == q.first {
			delete(q.index, key)
		}
	}
	q.first++
	q.bury()
	if q.items.len() == 0 {
		q.index, q.folds = nil, q.first
	}
	return it
}

// putBack has items wait again before all others.
func (q *queue) putBack(items []item, voided func(*item) bool) {
	for _, it := range slices.Backward(items) {
		q.items.pushFront(it)
		q.first--
		if q.index == nil {
			continue
		}
		if later := q.indexed(&it); later != nil {
			q.merge(q.items.at(0), later, voided)
		}
		q.index[queued{it.id, it.kind}] = q.first
	}
}

// insert has an item wait where its time belongs.
func (q *queue) insert(it item) {
	if waits := q.indexed(&it); waits != nil && waits.at <= it.at {
		waits.add(&it, func(*item) bool { return false })
		return
	}
	at, _ := slices.BinarySearchFunc(q.late, it.at, func(o item, at int64) int { return cmp.Compare(o.at, at) })
	q.late = slices.Insert(q.late, at, it)
}

// all is the items that wait.
func (q *queue) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, it := range q.items.all() {
			if it.kind != merged && !yield(it) {
				return
			}
		}
		for i := range q.late {
			if !yield(&q.late[i]) {
				return
			}
		}
	}
}

// cover is told that a state of an item's id was acknowledged that was built at a
// time: what waits of that id since before is part of it. It reports whether that is
// seen to: only if each id waits once.
func (q *queue) cover(it *item, at int64) bool {
	if q.index == nil || q.fold < q.folds || len(q.late) > 0 {
		return false
	}
	if waits := q.indexed(it); waits != nil && waits.last() <= at {
		waits.units = 0
	}
	return true
}

// of is the states that wait of these ids, and of others unless each id waits once.
func (q *queue) of(ids []bucket.ID) iter.Seq[*item] {
	if q.index == nil || q.fold < q.folds || len(q.late) > 0 || len(ids) > q.len() {
		return q.all()
	}
	return func(yield func(*item) bool) {
		for _, id := range ids {
			if waits := q.indexed(&item{id: id, kind: state}); waits != nil && !yield(waits) {
				return
			}
		}
	}
}

// emptied keeps the memory of a list for the next items, unless it is much.
func emptied(items []item) []item {
	if cap(items) > foldAbove {
		return nil
	}
	return items[:0]
}

// plus is a + b; everything and anything are everything.
func plus(a, b int64) int64 {
	if a == everything || b == everything || a > 0 && b > everything-a {
		return everything
	}
	return a + b
}

package countsync

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// kind is what an item has to tell of its id.
type kind uint8

const (
	grants  kind = iota // the holding
	state               // the copy: the count and its vector
	spend               // the vector alone, with how much is used; and the reset number
	replica             // in a frame only: the state of a member without authority
	merged              // in a queue only: nothing, as an item of the same id waits before it
)

// item is one id that waits for a member. What it says is read when it is sent.
type item struct {
	id   bucket.ID
	at   int64 // the stream's time when it was queued
	kind kind
	bulk bool // of a spend: it is of outbound.bulk
}

const (
	// foldStep is how many items are folded with each that is queued.
	foldStep = 4
	// foldAfter is how long an item may wait until there is an index: a count that
	// changes all the time is queued twenty times a second.
	foldAfter = 100 * time.Millisecond
)

// queue is the items for one member in order of their time. It is a plain list as long as
// it is short and its items go at once, since no map is as fast; a long one, or one for a
// slow member, has an index, by which what is queued again is found to wait already. What
// waited before there was an index is folded into it a few items at a time, with each item
// that is queued: no call does more for a long queue than for a short one.
//
// Of two items with the same id and kind the later one goes, never the other: a caller that waits
// for all that was queued up to a time (due) goes by the time of the first item.
type queue struct {
	items deque[item]
	first int64 // position of the first of items: what has one keeps it
	index map[queued]int64
	fold  int64 // position of the next item to be folded
	folds int64 // and where those end that are to be
	dead  int   // items that are merged

	foldAt  int // items, above which it has an index, and so each id once
	most    int // items that are pushed, above which there is no room
	brought int // items, at most, that a scan has brought or that waited before these
}

type queued struct {
	id   bucket.ID
	kind kind
}

func (q *queue) len() int { return q.items.len() - q.dead }

// oldest is the time of the item that comes next.
func (q *queue) oldest() (at int64, ok bool) {
	if q.items.len() == 0 {
		return 0, false
	}
	return q.items.at(0).at, true
}

// push queues an item, and reports whether there was room.
func (q *queue) push(it item) bool { return q.add(it, q.brought+q.most) }

// bring queues an item that a scan has found. A scan continues only while few items wait, so there is
// always room for the item, and a pushed item never loses its room to a scan.
func (q *queue) bring(it item) {
	q.add(it, math.MaxInt)
	q.brought = q.items.len()
}

// add is push where this is the most that may wait.
func (q *queue) add(it item, most int) bool {
	if oldest, ok := q.oldest(); q.index == nil && (q.items.len() >= q.foldAt || ok && it.at-oldest >= int64(foldAfter)) {
		q.index = make(map[queued]int64)
		q.fold, q.folds = q.first, q.first+int64(q.items.len())
	}
	for range foldStep {
		q.foldOne()
	}
	if _, waits := q.index[queued{it.id, it.kind}]; waits {
		return true
	}
	if q.items.len() >= most {
		return false
	}
	if q.index != nil {
		q.index[queued{it.id, it.kind}] = q.first + int64(q.items.len())
	}
	q.items.push(it)
	return true
}

// foldOne folds one item of those that waited before there was an index.
func (q *queue) foldOne() {
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
		q.merge(it)
	default:
		q.index[key] = q.fold
		q.merge(q.items.at(int(at - q.first)))
	}
	q.fold++
	q.bury()
}

func (q *queue) merge(it *item) {
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

func (q *queue) pop() item {
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
	q.brought = min(q.brought, q.items.len())
	return it
}

// putBack has items wait again before all others.
func (q *queue) putBack(items []item) {
	for _, it := range slices.Backward(items) {
		q.items.pushFront(it)
		q.first--
		if q.index == nil {
			continue
		}
		key := queued{it.id, it.kind}
		if at, waits := q.index[key]; waits {
			q.merge(q.items.at(int(at - q.first)))
		}
		q.index[key] = q.first
	}
}

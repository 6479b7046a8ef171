package countsync

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// kind is the kind of data that an item sends about its id.
type kind uint8

const (
	grants  kind = iota // holding of the id
	state               // copy: the count and its vector
	spend               // vector without the count, with the number of used units and the reset number
	replica             // state of a member without authority; only in frames
	merged              // no data, because an earlier item of the same id waits; only in queues
)

// item is an id whose data is to be sent to a member. The data is read when the item is sent.
type item struct {
	id   bucket.ID
	at   int64 // stream time at which the item was queued
	kind kind
	bulk bool // the item is a spend from outbound.bulk
}

const (
	// foldStep is the number of items that are folded with each item that is queued.
	foldStep = 4
	// foldAfter is the time that an item may wait before the queue gets an index. Without an
	// index, a count that changes all the time would be queued twenty times a second.
	foldAfter = 100 * time.Millisecond
)

// queue contains the items for a member, in the order of their times. A short queue whose items
// are sent at once is a plain list, because no map is as fast. A long queue, or the queue of a
// slow member, has an index to find an item that already waits. Items that waited before there
// was an index are folded into the index, a few with each item that is queued. A call does little
// more work for a long queue than for a short one, unless many merged items have reached the
// front: bury removes all of them at once.
//
// Of two items with the same id and kind, the later item is removed: a caller that waits for all
// items that were queued up to a time (outbound.hasSentUntil) relies on the time of the first
// item.
type queue struct {
	items deque[item]
	first int64 // position of the first item; the position of an item never changes
	index map[queued]int64
	fold  int64 // position of the next item to be folded
	folds int64 // position after the last item to be folded
	dead  int   // number of merged items

	foldAt int // length from which on the queue has an index, so that each id and kind waits only once
	most   int // maximum number of items, in addition to exempt
	exempt int // number of items by which the queue may exceed most, because scans have added items
}

type queued struct {
	id   bucket.ID
	kind kind
}

func (q *queue) len() int { return q.items.len() - q.dead }

// oldest returns the time of the first item.
func (q *queue) oldest() (at int64, ok bool) {
	if q.items.len() == 0 {
		return 0, false
	}
	return q.items.element(0).at, true
}

// push queues an item, and reports whether there was room.
func (q *queue) push(it item) bool { return q.add(it, q.exempt+q.most) }

// bring queues an item that was found by a scan. There is always room for the item, because a scan
// continues only while few items wait. The item takes no room from pushed items, because bring raises
// q.exempt.
func (q *queue) bring(it item) {
	q.add(it, math.MaxInt)
	q.exempt = q.items.len()
}

// add is like push, but with an argument for the maximum number of waiting items.
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

// foldOne folds an item that waited before there was an index.
func (q *queue) foldOne() {
	if q.fold = max(q.fold, q.first); q.index == nil || q.fold >= q.folds {
		return
	}
	it := q.items.element(int(q.fold - q.first))
	key := queued{it.id, it.kind}
	switch at, ok := q.index[key]; {
	case it.kind == merged, ok && at == q.fold:
	case !ok:
		q.index[key] = q.fold
	case at < q.fold:
		q.merge(it)
	default:
		q.index[key] = q.fold
		q.merge(q.items.element(int(at - q.first)))
	}
	q.fold++
	q.bury()
}

func (q *queue) merge(it *item) {
	*it = item{at: it.at, kind: merged}
	q.dead++
}

// bury removes the merged items at the front.
func (q *queue) bury() {
	for q.items.len() > 0 && q.items.element(0).kind == merged {
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
	q.exempt = min(q.exempt, q.items.len())
	return it
}

// putBack adds items at the front of the queue, in the same order.
func (q *queue) putBack(items []item) {
	for _, it := range slices.Backward(items) {
		q.items.pushFront(it)
		q.first--
		if q.index == nil {
			continue
		}
		key := queued{it.id, it.kind}
		if at, waits := q.index[key]; waits {
			q.merge(q.items.element(int(at - q.first)))
		}
		q.index[key] = q.first
	}
}

package countsync

import (
	"cmp"
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
)

// item is one id that waits for a member.
type item struct {
	id    bucket.ID
	units int64 // of a state: what this node spent with authority that the member may not have; all of it, if everything
	at    int64 // the stream's time when it was queued
	kind  kind
	to    uint8 // of a state: how many members are sent these units, by themselves or by a scan
	held  bool  // of a state: it is the authority's, though that may have moved since
	// tallied says that the units are in this node's tally, until it is known
	// whether they have arrived.
	tallied bool
}

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
	maxQueued = 1 << 20
)

// queue is the items for one member in order. It is a plain list as long as it
// is short, since no map is as fast; a long one has an index, by which what is
// queued again is added to the item that waits already.
type queue struct {
	items []item
	head  int // the first one that waits
	index map[queued]int64
	base  int64 // where items[0] stands in the index

	foldAt int // items, above which it has an index, and so each id once
	most   int // items, above which there is no room
}

type queued struct {
	id   bucket.ID
	kind kind
}

func (q *queue) len() int { return len(q.items) - q.head }

// oldest is the time of the item that comes next.
func (q *queue) oldest() (at int64, ok bool) {
	if q.len() == 0 {
		return 0, false
	}
	return q.items[q.head].at, true
}

// behind is whether something waits that was queued after that time. If not, no
// id waits that was sent by then: one time queues each once.
func (q *queue) behind(at int64) bool {
	return q.len() > 0 && q.items[len(q.items)-1].at > at
}

func (q *queue) clear() { *q = queue{foldAt: q.foldAt, most: q.most} }

// long is whether it is time to fold.
func (q *queue) long() bool { return q.index == nil && q.len() >= q.foldAt }

// push queues an item, and says whether there was room.
func (q *queue) push(it item, voided func(item) bool) bool {
	if q.merge(it, voided) {
		return true
	}
	if q.len() >= q.most {
		return false
	}
	if q.head > len(q.items)/2 && q.head > 64 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.base += int64(q.head)
		q.head = 0
	}
	q.add(it)
	return true
}

func (q *queue) add(it item) {
	if q.index != nil {
		q.index[queued{it.id, it.kind}] = q.base + int64(len(q.items))
	}
	q.items = append(q.items, it)
}

// merge adds it to the item of the same id that waits, if there is an index;
// voided says whether the units that wait count no more.
func (q *queue) merge(it item, voided func(item) bool) bool {
	at, ok := q.index[queued{it.id, it.kind}]
	if !ok {
		return false
	}
	waits := &q.items[at-q.base]
	if voided(*waits) {
		waits.units = 0
	}
	waits.units = plus(waits.units, it.units)
	return true
}

// fold makes one item of those that wait with the same id.
func (q *queue) fold(voided func(item) bool) {
	waiting := q.items[q.head:]
	q.items, q.head, q.base = make([]item, 0, len(waiting)+len(waiting)/4), 0, 0
	q.index = make(map[queued]int64, len(waiting))
	for _, it := range waiting {
		if voided(it) {
			it.units = 0
		}
		if !q.merge(it, voided) {
			q.add(it)
		}
	}
}

func (q *queue) pop() item {
	it := q.items[q.head]
	q.head++
	if q.index != nil {
		delete(q.index, queued{it.id, it.kind})
	}
	if q.len() == 0 {
		q.items, q.head, q.base, q.index = emptied(q.items), 0, 0, nil
	}
	return it
}

// putBack has items wait again before all others.
func (q *queue) putBack(items []item) {
	n := len(items)
	if n == 0 {
		return
	}
	if n > q.head {
		waiting := q.items[q.head:]
		list := make([]item, n, n+len(waiting)+64)
		q.base += int64(q.head - n)
		q.items, q.head = append(list, waiting...), n
	}
	q.head -= n
	for i, it := range items {
		q.items[q.head+i] = it
		if q.index == nil {
			continue
		}
		// Of two items of one id the later one takes what is added.
		if _, later := q.index[queued{it.id, it.kind}]; !later {
			q.index[queued{it.id, it.kind}] = q.base + int64(q.head+i)
		}
	}
}

// insert has an item wait where its time belongs.
func (q *queue) insert(it item) {
	if at, ok := q.index[queued{it.id, it.kind}]; ok {
		waits := &q.items[at-q.base]
		waits.units = plus(waits.units, it.units)
		return
	}
	at, _ := slices.BinarySearchFunc(q.items[q.head:], it.at, func(o item, at int64) int { return cmp.Compare(o.at, at) })
	q.items = slices.Insert(q.items, q.head+at, it)
	if q.index != nil {
		q.base = 0
		clear(q.index)
		for i, it := range q.items[q.head:] {
			q.index[queued{it.id, it.kind}] = int64(q.head + i)
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

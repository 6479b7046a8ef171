package audit

import (
	"sync/atomic"

	"github.com/weir-go/weir"
)

// Bounds of what an entry keeps, whatever a caller gives.
const (
	maxKeyBytes   = 1 << 10 // a longer key is an error of the check, and has no id either
	maxTraceBytes = 128
	maxErrorBytes = 256
)

// entry is a decision as the check leaves it. What takes time, the writer does.
type entry struct {
	at       int64 // Unix nanoseconds
	limiter  *weir.Limiter
	decision weir.Decision
	err      error
	units    int64
	id       ID
	key      []byte // copies, since the caller's text may be a part of something large
	trace    []byte
}

// queue is a ring of entries. Many checks put entries at a time, one writer takes them, and
// none of them holds a lock: a check that is interrupted here holds no other one up. It is
// the bounded queue of Dmitry Vyukov, with one consumer.
//
// Positions count up and never wrap; position p is in slot p modulo the size. The slot's
// turn says whose it is:
//
//	2p           free: the check that moves tail from p to p+1 fills it
//	2p+1         published: the writer reads it
//	2(p+size)    free for the position that is one lap later
//
// So a check that finds a turn below 2p has found an entry of the lap before, which is not
// read yet: the queue is full. What fills a slot must neither block nor panic, as the
// writer goes no further until it is published.
type queue struct {
	slots []slot
	_     [64]byte
	tail  atomic.Uint64 // the next position to claim, and closedBit
	_     [64]byte
	head  atomic.Uint64 // the next position to read; the writer's alone to move
}

type slot struct {
	turn atomic.Uint64
	entry
}

// closedBit of tail says that no position is claimed any more.
const closedBit = 1 << 63

func newQueue(size int) *queue {
	q := &queue{slots: make([]slot, size)}
	for i := range q.slots {
		q.slots[i].turn.Store(2 * uint64(i))
	}
	return q
}

func (q *queue) slot(at uint64) *slot { return &q.slots[at%uint64(len(q.slots))] }

// claim returns a slot to fill and its position, and no slot if the queue is full or
// closed. The slot has to be published.
func (q *queue) claim() (*slot, uint64) {
	for {
		at := q.tail.Load()
		if at&closedBit != 0 {
			return nil, 0
		}
		s := q.slot(at)
		switch turn := s.turn.Load(); {
		case turn == 2*at:
			if q.tail.CompareAndSwap(at, at+1) {
				return s, at
			}
		case turn < 2*at:
			return nil, 0 // it has not been read since the lap before
		}
	}
}

// publish hands a slot that was claimed to the writer.
func (s *slot) publish(at uint64) { s.turn.Store(2*at + 1) }

// next returns the slot to read, nil if none is published yet.
func (q *queue) next() *slot {
	at := q.head.Load()
	if s := q.slot(at); s.turn.Load() == 2*at+1 {
		return s
	}
	return nil
}

// release frees the slot that next returned for the next lap.
func (q *queue) release(s *slot) {
	at := q.head.Load()
	s.limiter, s.err = nil, nil // which may hold what has ended
	s.turn.Store(2 * (at + uint64(len(q.slots))))
	q.head.Store(at + 1)
}

// close ends claims. Those that were claimed before are still published.
func (q *queue) close() { q.tail.Or(closedBit) }

// len returns how many entries are queued, those included that are being filled.
func (q *queue) len() int {
	head := q.head.Load() // first: the tail is never behind it
	return int(q.tail.Load()&^closedBit - head)
}

package audit

import (
	"net/netip"
	"sync/atomic"

	"github.com/weir-go/weir"
)

// Bounds of the texts in an entry.
const (
	maxKeyBytes   = 1 << 10 // a check with a longer key returns an error; such a key has no ID
	maxTraceBytes = 128
	maxErrorBytes = 256
	maxRouteBytes = 128
	maxAgentBytes = 256
	maxTierBytes  = 64
)

// entry is the part of a record that the goroutine of a check fills. The writer makes the
// Record of it, because that takes more time.
type entry struct {
	at     int64              // Unix nanoseconds
	event  weir.DecisionEvent // without the key
	id     ID
	key    []byte // a copy, because the text may be a part of a large string
	trace  []byte
	client netip.Addr
	route  []byte
	agent  []byte
	tier   []byte
}

// setText replaces *text by a copy of from, cut to the given number of bytes.
func setText(text *[]byte, from string, most int) {
	*text = append((*text)[:0], from[:min(len(from), most)]...)
}

// setCaller copies the texts and the address of a Caller. c may be nil.
func (e *entry) setCaller(c *weir.Caller) {
	if c == nil {
		c = new(weir.Caller)
	}
	e.client = c.Client.Unmap().WithZone("") // an adapter may have read the zone from a request
	setText(&e.route, c.Route, maxRouteBytes)
	setText(&e.agent, c.UserAgent, maxAgentBytes)
	setText(&e.tier, c.Tier, maxTierBytes)
}

// queue is a ring of entries. Several checks add entries concurrently, and a single
// writer reads the entries. No check holds a lock, so that an interrupted check does not
// delay other checks. The algorithm is the bounded queue of Dmitry Vyukov, with a single
// consumer.
//
// Positions increase and never wrap. Position p is in slot p modulo the size. The turn of
// a slot determines the state of the slot:
//
//	2p           free: the check that increments tail from p to p+1 fills it
//	2p+1         published: the writer reads it
//	2(p+size)    free for the position of the next lap
//
// Therefore, if a check that wants position p finds a turn below 2p, the slot has an entry
// of the previous lap that is not yet read: the queue is full. Code that fills a slot must
// neither block nor panic, because the writer waits until the slot is published.
type queue struct {
	slots []slot
	_     [64]byte
	tail  atomic.Uint64 // the next position to claim, and closedBit
	_     [64]byte
	head  atomic.Uint64 // the next position to read; only the writer changes it
}

type slot struct {
	turn atomic.Uint64
	entry
}

// closedBit is set in the field tail once the queue is closed.
const closedBit = 1 << 63

func newQueue(size int) *queue {
	q := &queue{slots: make([]slot, size)}
	for i := range q.slots {
		q.slots[i].turn.Store(2 * uint64(i))
	}
	return q
}

func (q *queue) slot(at uint64) *slot { return &q.slots[at%uint64(len(q.slots))] }

// claim returns a slot to fill and its position, or nil if the queue is full or closed. The
// caller must publish the slot.
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
			return nil, 0 // the entry of the previous lap is not yet read
		}
	}
}

// publish makes a claimed slot available to the writer.
func (s *slot) publish(at uint64) { s.turn.Store(2*at + 1) }

// nextPublished returns the next slot to read, or nil if that slot is not published.
func (q *queue) nextPublished() *slot {
	at := q.head.Load()
	if s := q.slot(at); s.turn.Load() == 2*at+1 {
		return s
	}
	return nil
}

// release frees a slot that nextPublished returned, for the next lap.
func (q *queue) release(s *slot) {
	at := q.head.Load()
	s.event = weir.DecisionEvent{} // the event may refer to a closed node
	s.turn.Store(2 * (at + uint64(len(q.slots))))
	q.head.Store(at + 1)
}

// close prevents further claims. Slots that are already claimed are still published.
func (q *queue) close() { q.tail.Or(closedBit) }

// len returns the number of queued entries, including those that are being filled.
func (q *queue) len() int {
	head := q.head.Load() // read before tail, so that tail is never behind head
	return int(q.tail.Load()&^closedBit - head)
}

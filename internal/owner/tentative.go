package owner

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// tentativeSlots is the number of slots, a power of two. IDs with the same slot share a counter, so
// a tentative take of one ID also prevents firm denials of the other for a short time.
const tentativeSlots = 1 << 10

// tentative counts the takes on this node that are part of an AllowAll on several members.
// Until the other members have responded, such a take may be refunded, and a denial that
// depends on it must not be cached (wire.Result.Firm). A take is concluded when it is denied
// or refunded, or when the node that runs AllowAll confirms the take, which it does if few
// units are left. A take that is never concluded is counted for at least one span and at most
// two. All times are by the monotonic clock.
type tentative struct {
	slots atomic.Pointer[[tentativeSlots]tentativeSlot] // nil until the first tentative take
}

type tentativeSlot struct {
	mu          sync.Mutex
	span        int64 // number of the current span
	now, before int   // numbers of takes of the current and the previous span that are not concluded
}

// begin adds one to the count of takes. It must be called before the take.
func (t *tentative) begin(id bucket.ID, now int64, span time.Duration) {
	if t.slots.Load() == nil {
		t.slots.CompareAndSwap(nil, new([tentativeSlots]tentativeSlot))
	}
	s := t.slot(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now, span)
	s.now++
}

// conclude removes a take from the counter. The takes are not distinguished: conclude removes a
// take of the previous span if there is one, so that no open take is forgotten too early.
func (t *tentative) conclude(id bucket.ID) {
	s := t.slot(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before > 0 {
		s.before--
	} else if s.now > 0 {
		s.now--
	}
}

// isEmpty reports whether an ID has no open tentative takes.
func (t *tentative) isEmpty(id bucket.ID, now int64, span time.Duration) bool {
	s := t.slot(id)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now, span)
	return s.now+s.before == 0
}

// advance advances s to the current span.
func (s *tentativeSlot) advance(now int64, span time.Duration) {
	switch at := now / int64(span); {
	case at == s.span+1:
		s.span, s.now, s.before = at, 0, s.now
	case at > s.span:
		s.span, s.now, s.before = at, 0, 0
	}
}

func (t *tentative) slot(id bucket.ID) *tentativeSlot {
	slots := t.slots.Load()
	if slots == nil {
		return nil
	}
	return &slots[id.Lo%tentativeSlots]
}

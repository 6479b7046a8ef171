package owner

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// tentativeSlots is a power of two. Ids that share a slot share its count: a take of
// one then keeps denials of the other from being firm for a moment.
const tentativeSlots = 1 << 10

// tentative counts the takes here of AllowAlls that ask several members. Until the
// others have answered, such a take may be given back, and a denial that rests on it must
// not be remembered (wire.Result.Firm). It is concluded when it is denied or given back, or when
// the one that took says that it is kept, which it does where little is left. A take that
// nobody concludes counts for one span at least and two at most. All times are by
// the monotonic clock.
type tentative struct {
	slots atomic.Pointer[[tentativeSlots]tentativeSlot] // nil until the first such take
}

type tentativeSlot struct {
	mu          sync.Mutex
	span        int64 // the number of this span
	now, before int   // takes of this span and of the one before that are not concluded
}

// begin counts a take that is about to be made.
func (t *tentative) begin(id bucket.ID, now int64, span time.Duration) {
	if t.slots.Load() == nil {
		t.slots.CompareAndSwap(nil, new([tentativeSlots]tentativeSlot))
	}
	s := t.slot(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now, span)
	s.now++
}

// conclude counts a take no more: the oldest, as it is not known which one it was, so that
// none which is open is forgotten before its time.
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

// none reports whether no take of an id may be given back.
func (t *tentative) none(id bucket.ID, now int64, span time.Duration) bool {
	s := t.slot(id)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now, span)
	return s.now+s.before == 0
}

// turn goes on to the span of now.
func (s *tentativeSlot) turn(now int64, span time.Duration) {
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

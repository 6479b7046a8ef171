package weir

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
// others have answered, such a take may be given back, and a denial that it causes must
// not be remembered (result.firm). It is settled when the take is denied or given back,
// or when whoever took says that it is kept, which it does where little is left. What is
// never settled is so by until, when whoever took has been answered or has given up. All
// times are by Node.steady.
type tentative struct {
	slots atomic.Pointer[[tentativeSlots]tentativeSlot] // nil until the first such take
}

type tentativeSlot struct {
	mu    sync.Mutex
	open  int
	until int64
}

// begin counts a take that is about to be made, for a time at most.
func (t *tentative) begin(id bucket.ID, now int64, most time.Duration) {
	if t.slots.Load() == nil {
		t.slots.CompareAndSwap(nil, new([tentativeSlots]tentativeSlot))
	}
	s := t.slot(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now >= s.until {
		s.open = 0
	}
	s.open++
	s.until = max(s.until, now+int64(most))
}

// settle counts a take no more.
func (t *tentative) settle(id bucket.ID) {
	s := t.slot(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = max(0, s.open-1)
}

// none reports whether no take of an id may be given back.
func (t *tentative) none(id bucket.ID, now int64) bool {
	s := t.slot(id)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open == 0 || now >= s.until
}

func (t *tentative) slot(id bucket.ID) *tentativeSlot {
	slots := t.slots.Load()
	if slots == nil {
		return nil
	}
	return &slots[id.Lo%tentativeSlots]
}

// begin counts asks that are about to be taken, if their request has flagTentative.
func (n *Node) begin(flags uint8, asks []ask, now int64, wait time.Duration) {
	if flags&flagTentative == 0 {
		return
	}
	for i := range asks {
		n.tentative.begin(asks[i].id, now, n.tentativeFor(wait))
	}
}

// settle counts those no more of which nothing was taken.
func (n *Node) settle(flags uint8, asks []ask, results []result) {
	if flags&flagTentative == 0 {
		return
	}
	taken := allowed(asks, results)
	for i := range asks {
		if !taken || !results[i].Allowed {
			n.tentative.settle(asks[i].id)
		}
	}
}

// tentativeFor is how long a take may be given back that an asker waits so long for: it
// waits as long again for a stand-in of another member.
func (n *Node) tentativeFor(wait time.Duration) time.Duration { return max(n.cfg.Timeout, 2*wait) }

// firm reports whether a take's answer stands until its RetryAfter, unless a caller gives
// something back: it is the word of the authority, within the whole limit, and no
// AllowAll may give back what denied it. What a region lacks of a Global limit is on its
// way from others, and they send it because of the asks that come here.
func (n *Node) firm(a *ask, r *result, now int64) bool {
	return !r.Allowed && r.source == Owner && !(a.global && n.regions.Holdings != nil) && n.tentative.none(a.id, now)
}

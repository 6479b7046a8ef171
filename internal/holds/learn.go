package holds

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// known is the part of this node's authority of which it knows all holds, as it has asked
// every member that it reaches. A range stays known while this node has authority over it:
// nobody else grants holds of it then. It is asked for anew once a member is reached that was
// not, since that may have holds which others granted meanwhile, or this node may have been
// the one that was not reached.
type known struct {
	ranges atomic.Pointer[countsync.Ranges]

	mu      sync.Mutex
	reached map[uint64]bool // members, in the view of before
	losses  uint64          // how often ranges were lost of it
	round   chan struct{}   // closed once the round under way is over; nil if there is none
}

// late is how long Run may be late before this node takes itself for frozen, and asks anew.
const late = view.HoldDown + renewEvery/2

// Swapped has what is known follow a view that takes the place of another.
func (h *Holds) Swapped(v *view.View) {
	k := &h.known
	k.mu.Lock()
	defer k.mu.Unlock()
	reached, more := make(map[uint64]bool, len(v.Members)), false
	for i, member := range v.Hashes {
		if v.Next[i] >= 0 {
			reached[member] = true
			more = more || !k.reached[member]
		}
	}
	k.reached = reached
	var left countsync.Ranges
	had := k.load()
	if !more {
		left = had.Intersect(v.Ranges(view.Held))
	}
	if more || !left.Equal(had) {
		k.losses++
		k.ranges.Store(&left)
	}
	switch {
	case !v.Complete:
		h.table.apart.Store(math.MaxInt64)
	case h.table.apart.Load() == math.MaxInt64:
		h.table.apart.Store(h.cfg.Env.Monotonic())
	}
	env.Signal(h.wake)
	env.Signal(h.table.changed)
}

// forget makes this node ask anew for all.
func (k *known) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.losses++
	k.ranges.Store(new(countsync.Ranges))
}

func (k *known) load() countsync.Ranges {
	if r := k.ranges.Load(); r != nil {
		return *r
	}
	return nil
}

// Knows reports whether this node has the information about holds that it needs to execute op.
func (h *Holds) Knows(v *view.View, as view.Standing, op wire.Op, a *wire.Ask) bool {
	now := h.cfg.Env.Monotonic()
	switch as {
	case view.AsOwner:
		if !h.knowsAll(a.ID, now) {
			return false
		}
		_, lacks := h.lacks(v, op, a)
		known, _ := h.table.knows(refOf(a), now)
		return known || !lacks
	case view.AsStandIn:
		known, _ := h.table.knows(ref{id: a.ID}, now)
		return known
	}
	return true // on its own, it reaches nobody
}

// lacks reports whether this node has no record of the client's hold that op renews, while the
// member that first asked for the hold may have one: a stand-in may have granted it while this
// node was late, and the record may still be on its way here. A member that is not reached cannot
// be asked: its hold counts as ended, although a stand-in may still send the record.
func (h *Holds) lacks(v *view.View, op wire.Op, a *wire.Ask) (origin uint64, lacks bool) {
	i, member := v.Named[a.Hold.Holder]
	if op != wire.OpExtend || !member || !isOther(v, i) {
		return 0, false
	}
	_, known := h.table.recordOf(refOf(a))
	return a.Hold.Holder, !known
}

// knowsAll reports whether this node knows all holds of an id, as the owner.
func (h *Holds) knowsAll(id bucket.ID, now int64) bool {
	return !h.frozen(now) && h.known.load().Contains(id.Hi)
}

// Learn asks all members that this node reaches for their holds, or for one that op renews the member
// that first asked for it, unless this node knows them already. It returns when this node knows what
// op is about, when ctx is done, or after half of Timeout.
func (h *Holds) Learn(ctx context.Context, as view.Standing, op wire.Op, a *wire.Ask) {
	if h.Knows(h.cfg.Env.View(), as, op, a) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout/2)
	defer cancel()
	for v := h.cfg.Env.View(); !h.Knows(v, as, op, a) && ctx.Err() == nil; v = h.cfg.Env.View() {
		switch {
		case as == view.AsStandIn:
			answered := h.ask(ctx, v, pageOf(a.ID))
			h.table.know(ref{id: a.ID}, answered, h.cfg.Env.Monotonic())
		case !v.Holds(a.ID):
			return
		case h.knowsAll(a.ID, h.cfg.Env.Monotonic()):
			origin, _ := h.lacks(v, op, a)
			answered := h.askMember(ctx, v, origin, pageOf(a.ID)) == nil
			h.table.know(refOf(a), answered, h.cfg.Env.Monotonic())
		default:
			round := h.begin(v)
			if round == nil {
				return // too much goes on: the ask is denied, and may be made again
			}
			select {
			case <-round:
			case <-ctx.Done():
			}
		}
	}
}

// begin begins a round of asking for all that this node has authority over and does not know,
// or joins the one under way. It returns what is closed at its end, nil if none can begin.
func (h *Holds) begin(v *view.View) <-chan struct{} {
	k := &h.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != nil {
		return k.round
	}
	round, losses := make(chan struct{}), k.losses
	ranges := v.Ranges(view.Held).Minus(k.load())
	if h.frozen(h.cfg.Env.Monotonic()) {
		ranges = v.Ranges(view.Held)
	}
	if !h.cfg.Env.Try(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
		defer cancel()
		h.ask(ctx, v, page{end: parts, ranges: ranges})
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.losses == losses {
			all := k.load().Union(ranges)
			k.ranges.Store(&all)
			h.looked.Store(h.cfg.Env.Monotonic())
		}
		k.round = nil
		close(round)
	}) {
		return nil
	}
	k.round = round
	return round
}

// ask merges the holds and records of all other reachable members from the page first on, and reports
// whether all of these members have answered. A call takes Timeout/2 at most.
func (h *Holds) ask(ctx context.Context, v *view.View, first page) (answered bool) {
	var silent atomic.Bool
	env.Gather(len(v.Members), callsAtOnce, func(i int) {
		if err := h.askMember(ctx, v, v.Hashes[i], first); err != nil && !errors.Is(err, env.ErrUnreached) {
			silent.Store(true)
		}
	})
	return !silent.Load()
}

// askMember reads and merges the pages of one member from the page first on.
func (h *Holds) askMember(ctx context.Context, v *view.View, member uint64, first page) error {
	for next := first; ctx.Err() == nil; {
		next.end, next.ranges = first.end, first.ranges
		answer, err := h.call(ctx, v, member, wire.OpHeld, next.append(nil), h.cfg.Timeout/2)
		if err != nil {
			return err
		}
		var (
			list    []entry
			records []record
			now     = h.cfg.Env.Monotonic()
		)
		if next, list, records, err = parseHeld(answer, now); err != nil {
			return err
		}
		for i := range list {
			h.table.put(list[i])
		}
		h.mergeFrom(member, records, now)
		if next.part >= first.end {
			return nil
		}
	}
	return ctx.Err()
}

// ServeHeld answers ask, after the header of the answer: a page of the holds that this node has
// and knows of.
func (h *Holds) ServeHeld(message, dst []byte) ([]byte, error) {
	p, err := parsePage(message)
	if err != nil || p.part >= p.end {
		return nil, wire.ErrMalformed
	}
	now := h.cfg.Env.Monotonic()
	var list []byte
	for len(list) < pageBytes && p.part < p.end {
		if p.before == 0 {
			p.before = math.MaxInt32
		}
		if shard := p.part / 2; p.part%2 == 0 {
			p.before = h.table.each(shard, p.before, p.ranges, now, func(e *entry) { list = appendEntry(list, e, now) })
		} else {
			p.before = h.table.eachRecord(shard, p.before, p.ranges, func(r *record) {
				list = appendRecord(append(list, itemRecord), r, now)
			})
		}
		if p.before == 0 {
			p.part++
		}
	}
	return append(p.appendAt(dst), list...), nil
}

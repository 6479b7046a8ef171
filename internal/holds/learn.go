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

// known has the ranges over which this node has authority and of which it knows all holds, because
// it has asked every reachable member. A range stays known while this node has authority over the
// range, because no other member grants holds in the meantime. The node asks again once it reaches
// a member that it did not reach before: that member may have holds that other members granted
// meanwhile, for example because this node was cut off.
type known struct {
	ranges atomic.Pointer[countsync.Ranges]

	mu      sync.Mutex
	reached map[uint64]bool // the set of members that were reached in the last view
	losses  uint64          // incremented when ranges are removed
	round   chan struct{}   // closed at the end of the current round; nil if there is none
}

// late is the time since the last round of Run after which this node assumes that it was frozen,
// and asks the other members again.
const late = view.HoldDown + renewEvery/2

// Swapped must be called after the view is replaced. It updates the known ranges, and the time at which this node
// last missed a member.
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

// forget removes all known ranges, so that this node asks again.
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

// KnowsHolds reports whether this node has the information about holds that is necessary to execute
// op at the time now of the monotonic clock.
func (h *Holds) KnowsHolds(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64) bool {
	switch as {
	case view.AsOwner:
		if !h.knowsAll(a.ID, now) {
			return false
		}
		if _, lacks := h.lacksRecord(v, op, a); !lacks {
			return true
		}
		known, _ := h.table.findRequest(refOf(a), now)
		return known
	case view.AsStandIn:
		known, _ := h.table.findRequest(ref{id: a.ID}, now)
		return known
	}
	return true // AsSelf: no other member has answered, so this node decides without asking
}

// lacksRecord reports whether this node has no record of the client's hold that op renews, while the
// origin, the member that first asked for the hold, may have a record. A stand-in may have granted the hold while
// this node was late, and the record may still be in transit. An origin that is not reached cannot be
// asked: the hold counts as ended, although a stand-in may still send the record.
func (h *Holds) lacksRecord(v *view.View, op wire.Op, a *wire.Ask) (origin uint64, lacks bool) {
	i, member := v.Named[a.Hold.Holder]
	if op != wire.OpExtend || !member || !isOther(v, i) {
		return 0, false
	}
	_, known := h.table.recordOf(refOf(a))
	return a.Hold.Holder, !known
}

// knowsAll reports whether this node, as the owner, knows all holds of an id.
func (h *Holds) knowsAll(id bucket.ID, now int64) bool {
	return !h.isFrozen(now) && h.known.load().Contains(id.Hi)
}

// Learn asks each member that it can reach for its holds, if this node does not yet know all of
// them. If only the record of a hold that op renews may be missing, Learn asks the node that first
// asked for the hold. It returns when this node knows the holds that op needs or has no authority
// any more, when too many errands run, when ctx is done, or after half of Timeout.
func (h *Holds) Learn(ctx context.Context, as view.Standing, op wire.Op, a *wire.Ask) {
	if h.KnowsHolds(h.cfg.Env.View(), as, op, a, h.cfg.Env.Monotonic()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout/2)
	defer cancel()
	for v := h.cfg.Env.View(); !h.KnowsHolds(v, as, op, a, h.cfg.Env.Monotonic()) && ctx.Err() == nil; v = h.cfg.Env.View() {
		switch {
		case as == view.AsStandIn:
			answered := h.ask(ctx, v, pageOf(a.ID))
			h.table.recordRequest(ref{id: a.ID}, answered, h.cfg.Env.Monotonic())
		case !v.Holds(a.ID):
			return
		case h.knowsAll(a.ID, h.cfg.Env.Monotonic()):
			origin, _ := h.lacksRecord(v, op, a)
			answered := h.askMember(ctx, v, origin, pageOf(a.ID)) == nil
			h.table.recordRequest(refOf(a), answered, h.cfg.Env.Monotonic())
		default:
			round := h.beginRound(v)
			if round == nil {
				return // too many errands run: the ask is denied, and may be repeated
			}
			select {
			case <-round:
			case <-ctx.Done():
			}
		}
	}
}

// beginRound starts a round of requests for the ranges that this node has authority over and does not
// know, or joins the current round. It returns a channel that is closed at the end of the round,
// or nil if no round can start.
func (h *Holds) beginRound(v *view.View) <-chan struct{} {
	k := &h.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != nil {
		return k.round
	}
	round, losses := make(chan struct{}), k.losses
	ranges := v.Ranges(view.Held).Minus(k.load())
	if h.isFrozen(h.cfg.Env.Monotonic()) {
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

// ask reads the holds and records of all other reachable members, beginning with the given page, merges
// them, and reports whether all of these members have answered. Each request takes at most
// Timeout/2.
func (h *Holds) ask(ctx context.Context, v *view.View, first page) (answered bool) {
	var silent atomic.Bool
	env.Gather(len(v.Members), callsAtOnce, func(i int) {
		if err := h.askMember(ctx, v, v.Hashes[i], first); err != nil && !errors.Is(err, env.ErrUnreached) {
			silent.Store(true)
		}
	})
	return !silent.Load()
}

// askMember reads and merges the pages of a member, beginning with the given page.
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

// ServeHeld handles the request of askMember. It appends a page of the holds that this node has or knows
// of to dst, which contains the header of the answer.
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
			p.before = h.table.visitEntries(shard, p.before, p.ranges, now, func(e *entry) { list = appendEntry(list, e, now) })
		} else {
			p.before = h.table.visitRecords(shard, p.before, p.ranges, func(r *record) {
				list = appendRecord(append(list, itemRecord), r, now)
			})
		}
		if p.before == 0 {
			p.part++
		}
	}
	return append(p.appendAt(dst), list...), nil
}

package weir

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Ask is one of the limits that AllowAll decides together.
type Ask struct {
	Limiter *Limiter // of the same node
	Key     string
	Units   int64 // 1 if zero; asks of the same limit and key are summed
	Shadow  bool  // counted, and never enforced
}

func (a *Ask) units() int64 {
	if a.Units == 0 {
		return 1
	}
	return a.Units
}

// AllowAll spends on all of the limits, or on none: a request that one of them
// denies costs the others nothing. It takes at most 255 asks. Each Decision says
// what its own limit answered; units were spent only if Decisions.Allowed.
//
// An ask with Shadow is to try a limit out: it has no say in whether the others are
// admitted. Where they are, it spends if its own limit has room, and does not if
// that has none; where they are not, it spends nothing either. Its Decision says
// what it would have been, and that it is a Shadow. It may ask for more units than
// its limit can ever grant, which is a denial. Asks of the same limit and key are
// enforced if one of them is.
//
// Asks that one node has authority for are decided in one step. Otherwise takes
// go to all at once, and if any denies, the others are refunded, shadows included:
// it never admits too much, and under contention can deny falsely for a round trip
// (the denial's RetryAfter knows nothing of the refund to come, nor the ResetAfter
// of what was refunded). Where this node remembers that the owner of one denies it
// (Source Pushback), and none is a Shadow, the others are not asked: their Decisions
// are Allowed, with no Source and nothing Remaining. Errors are those of Limiter.AllowN.
func (n *Node) AllowAll(ctx context.Context, asks ...Ask) (Decisions, error) {
	return n.AllowAllInto(ctx, asks, nil)
}

// AllowAllInto is AllowAll, and appends the Decisions to ds[:0], which it
// returns: with a ds that has the room, and where this node has authority for all
// of the asks, it allocates nothing. It keeps neither asks nor ds.
func (n *Node) AllowAllInto(ctx context.Context, asks []Ask, ds Decisions) (Decisions, error) {
	begun := n.observedSince()
	ds = slices.Grow(ds[:0], len(asks))[:len(asks)]
	clear(ds)
	err := n.allowAll(ctx, asks, ds)
	if err != nil {
		n.meters.Failed(err)
	}
	for i := range asks {
		l := asks[i].Limiter
		if l == nil {
			continue
		}
		ds[i].Name = l.limit.Name
		l.observe(ctx, asks[i].Key, asks[i].units(), ds[i], err, begun, false)
	}
	return ds, err
}

// scratch is what AllowAll works with, kept from one call to the next.
type scratch struct {
	all     []wire.Ask // each (limit, key) once
	at      []int      // which of all answers each of the caller's
	results []wire.Result
	room    owner.Room
}

// scratch has room for so many asks.
func (n *Node) scratch(asks int) *scratch {
	s := n.pools.scratches.Get().(*scratch)
	if cap(s.all) < asks {
		asks = max(asks, 8)
		*s = scratch{all: make([]wire.Ask, 0, asks), at: make([]int, 0, asks), results: make([]wire.Result, 0, asks)}
	}
	return s
}

// done keeps s for the next caller, but not what this one's limits were.
func (n *Node) done(s *scratch) {
	clear(s.all[:cap(s.all)])
	s.all, s.at, s.results = s.all[:0], s.at[:0], s.results[:0]
	n.pools.scratches.Put(s)
}

func (n *Node) allowAll(ctx context.Context, asks []Ask, ds Decisions) error {
	if len(asks) > wire.MaxAsks {
		return fmt.Errorf("%w AllowAll: %d asks: use at most %d", ErrInvalid, len(asks), wire.MaxAsks)
	}
	s := n.scratch(len(asks))
	defer n.done(s)
	for i := range asks {
		if err := s.add(ctx, n, &asks[i]); err != nil {
			return fmt.Errorf("asks[%d]: %w", i, err)
		}
	}
	s.results = s.results[:len(s.all)]
	if err := n.takeAll(ctx, s); err != nil {
		return err
	}
	for i := range ds {
		a, r := &s.all[s.at[i]], &s.results[s.at[i]]
		asks[i].Limiter.tell(&ds[i], r)
		ds[i].Shadow = a.Shadow
		if weight := asks[i].Limiter.meter.Decided(a.ID, r, a.Shadow); weight > 0 {
			asks[i].Limiter.measure(asks[i].Key, a, r, weight)
		}
	}
	return nil
}

// add looks one more ask over, and adds it or what it asks for.
func (s *scratch) add(ctx context.Context, n *Node, a *Ask) error {
	if a.Limiter == nil || a.Limiter.node != n {
		return fmt.Errorf("%w Limiter: it is nil or of another node: use one that this node's Limiter returned", ErrInvalid)
	}
	last := len(s.all)
	s.all = s.all[:last+1]
	one := &s.all[last]
	one.Shadow = a.Shadow || a.Limiter.shadow
	if err := a.Limiter.ask(ctx, a.Key, a.units(), one); err != nil {
		return err
	}
	if !one.Shadow {
		if err := a.Limiter.grants(a.units()); err != nil {
			return err
		}
	}
	at := indexOf(s.all[:last], one.ID)
	if at < 0 {
		s.at = append(s.at, last)
		return nil
	}
	s.at, s.all = append(s.at, at), s.all[:last]
	sum := &s.all[at]
	sum.Shadow = sum.Shadow && one.Shadow
	sum.Units += min(one.Units, math.MaxInt64-sum.Units)
	if most := one.Limit.Capacity(); sum.Units > most && !sum.Shadow {
		return fmt.Errorf("%w units: the asks of limit %q add up to more than the %d that it can ever grant", ErrInvalid, a.Limiter.limit.Name, most)
	}
	return nil
}

func indexOf(all []wire.Ask, id bucket.ID) int {
	for i := range all {
		if all[i].ID == id {
			return i
		}
	}
	return -1
}

// takeAll takes from every owner at once, and gives back if any denied.
func (n *Node) takeAll(ctx context.Context, s *scratch) error {
	if len(s.all) == 1 {
		return n.decide(ctx, wire.OpTake, &s.all[0], &s.results[0])
	}
	v, now := n.handover.View(), n.env.Now()
	began := n.env.SteadyAt(now)
	for i := range s.all {
		s.all[i].Began = began
	}
	if v.AllHere(s.all, began) && !n.handover.Fenced(v, now) {
		n.owner.TakeAll(v, view.AsOwner, s.all, now, &s.room, s.results)
		return nil
	}
	if n.denyAll(v, s.all, n.env.At(now), s.results) {
		return nil
	}
	all := check.GroupByRoute(v, s.all, began)
	var flags uint8
	if len(all) > 1 {
		flags = wire.FlagTentative
	}
	var wait sync.WaitGroup
	for _, p := range all[1:] {
		wait.Go(func() { n.take(ctx, v, flags, p) })
	}
	n.take(ctx, v, flags, all[0])
	wait.Wait()
	return check.MergeResults(all, s.results)
}

// denyAll reports whether a pushback denies one of the asks, and so all: no member is
// asked then. A shadow is to be answered, and has no say.
func (n *Node) denyAll(v *view.View, all []wire.Ask, t countsync.Time, results []wire.Result) (denied bool) {
	if slices.ContainsFunc(all, func(a wire.Ask) bool { return a.Shadow }) {
		return false
	}
	clear(results)
	for i := range all {
		r := v.Route(all[i].ID, t.Steady)
		leaves := r.Way != view.Here && r.Way != view.NoWay && r.To != v.Self
		if leaves && n.asker.Denies(&all[i], t, &results[i]) {
			denied = true
		} else {
			results[i].Allowed, results[i].Limit = true, all[i].Limit.Capacity()
		}
	}
	return denied
}

// take takes from the member that answers for the party, or from this node's budget if that
// member is not reached, in one step.
func (n *Node) take(ctx context.Context, v *view.View, flags uint8, p *check.Group) {
	as, now := view.AsSelf, n.env.Now()
	switch {
	case p.Route.Way == view.Here && !n.handover.Fenced(v, now):
		as = view.AsOwner
	case p.Route.Way == view.StandIn && p.Route.To == v.Self:
		as = view.AsStandIn
	case p.Route.Way != view.Here && p.Route.Way != view.NoWay:
		trip := n.depart(ctx)
		if trip != nil {
			defer func() { trip.decided(wire.OpTake, p.Asks, p.Results, p.Err) }()
		}
		by, err := n.reach(ctx, trip, v, n.env.At(now), p.Route, wire.OpTake, flags, p.Asks, p.Results)
		if err == nil {
			by.trip = nil // nobody traces what is told
			p.Settle = func(takes []wire.Ask) {
				if len(takes) > 0 {
					v.Members[by.hop].Peer.Tell(requestOf(nil, v, by, wire.OpRefund, 0, takes))
				}
			}
			return
		}
		clear(p.Results)
		if p.Err = cancelled(ctx); p.Err != nil {
			return
		}
		after := n.viewAfter(v, p.Route.To, err)
		if by.member == v.Self && after.Stays() {
			as = view.AsStandIn
		}
		v, now = after, n.env.Now()
	}
	if as != view.AsOwner {
		runtime.Gosched() // as in decide
	}
	s := n.scratch(len(p.Asks))
	defer n.done(s)
	n.owner.TakeTogether(v, as, flags, p.Asks, now, &s.room, p.Results)
	p.Settle = func(takes []wire.Ask) {
		for _, a := range takes {
			n.owner.Do(v, as, wire.OpRefund, &a, n.env.Now(), new(wire.Result))
			n.owner.Conclude(a.ID)
		}
	}
}

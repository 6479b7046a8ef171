package weir

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
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
}

// scratch has room for so many asks.
func (n *Node) scratch(asks int) *scratch {
	s := n.scratches.Get().(*scratch)
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
	n.scratches.Put(s)
}

func (n *Node) allowAll(ctx context.Context, asks []Ask, ds Decisions) error {
	if len(asks) == 0 {
		return nil
	}
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
	if err := n.checks.TakeAll(ctx, s.all, s.results); err != nil {
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

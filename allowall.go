package weir

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/wire"
)

// Ask is a request for units of a limit, as an argument of AllowAll.
type Ask struct {
	Limiter  *Limiter // a Limiter of the node whose AllowAll is called
	Key      string
	Units    int64 // 1 if zero; the Units of asks of the same limit and key are summed
	Shadow   bool  // the decision is counted in Stats.Shadows, and not enforced
	Critical bool  // the ask may spend the kept units (Limit.Keep), as with Limiter.Critical. If asks are summed, the sum may spend them if each of its asks may
}

// limiter returns the Limiter that judges the ask.
func (a *Ask) limiter() *Limiter {
	if a.Critical {
		return a.Limiter.Critical()
	}
	return a.Limiter
}

func (a *Ask) units() int64 {
	if a.Units == 0 {
		return 1
	}
	return a.Units
}

// AllowAll spends units of all limits or of none. If a limit denies, no other limit is
// charged. There may be at most 255 asks. Each Decision is the result of its own limit. Units
// were spent only if Decisions.Allowed returns true.
//
// An ask with Shadow is for trying a limit out. Its result has no effect on the other asks. If the
// other asks are admitted, a shadow spends units if its own limit has room; otherwise it spends
// nothing. Its Decision has Shadow set, and states the decision of an enforced ask. A shadow may
// ask for more units than its limit can ever grant; it is then denied. If several asks have the
// same limit and key and any of them is enforced, all of them are enforced.
//
// If a single node has authority over all counts, that node decides in a single step. Otherwise this node
// sends takes to all owners at the same time. If any take is denied, the other takes are refunded,
// including the takes of shadows. Therefore AllowAll never admits too much, but under contention it can
// deny asks for which there is room, for the time of a round trip. The RetryAfter of such a denial does
// not account for the pending refund, nor does the ResetAfter of a refunded take. If this node has cached
// a denial of an owner (Source Pushback) and no ask is a Shadow, no owner is asked. The Decisions of the
// asks without a cached denial are then Allowed, with a zero Source and a Remaining of 0. The errors are
// those of Limiter.AllowN; more than 255 asks, and a Limiter of another node, are ErrInvalid.
func (n *Node) AllowAll(ctx context.Context, asks ...Ask) (Decisions, error) {
	return n.AllowAllInto(ctx, asks, nil)
}

// AllowAllInto is like AllowAll, but appends the Decisions to ds[:0] and returns the result. It
// does not allocate if the capacity of ds suffices and this node has authority over all counts.
// It does not retain asks or ds.
func (n *Node) AllowAllInto(ctx context.Context, asks []Ask, ds Decisions) (Decisions, error) {
	begun := n.observeStart()
	ds = slices.Grow(ds[:0], len(asks))[:len(asks)]
	clear(ds)
	list := n.checks.NewAskList(min(len(asks), wire.MaxAsks))
	defer n.checks.FreeAskList(list)
	err := n.allowAll(ctx, asks, ds, list)
	if err != nil {
		n.meters.CountFailure(err)
	}
	for i := range asks {
		if l := asks[i].Limiter; l != nil {
			ds[i].Name = l.limit.Name
		}
	}
	if n.cfg.Observer != nil {
		n.observeAll(ctx, asks, ds, err, begun, list)
	}
	return ds, err
}

// observeAll passes the decision of each ask to the Observer.
func (n *Node) observeAll(ctx context.Context, asks []Ask, ds Decisions, err error, begun int64, list *check.AskList) {
	e := DecisionEvent{Asks: len(asks), Err: err, Operation: wire.OpTake.Traced()}
	if len(asks) > 1 {
		e.Request, e.Refused = n.requests.Add(1), err != nil || !ds.Allowed()
	}
	for i := range asks {
		a, at := &asks[i], int64(0)
		if a.Limiter == nil {
			continue
		}
		if err == nil {
			_, r := list.Entry(i)
			at = r.At
		}
		e.Limiter, e.Key, e.Units, e.Decision, e.Critical, e.At = a.Limiter, a.Key, a.units(), ds[i], a.Critical, time.Time{}
		n.observe(ctx, &e, begun, at)
	}
}

func (n *Node) allowAll(ctx context.Context, asks []Ask, ds Decisions, list *check.AskList) error {
	if len(asks) == 0 {
		return nil
	}
	if len(asks) > wire.MaxAsks {
		return fmt.Errorf("%w AllowAll: %d asks: use at most %d", ErrInvalid, len(asks), wire.MaxAsks)
	}
	for i := range asks {
		if err := n.addAsk(ctx, list, &asks[i]); err != nil {
			return fmt.Errorf("asks[%d]: %w", i, err)
		}
	}
	if err := n.checks.TakeAll(ctx, list); err != nil {
		return err
	}
	for i := range ds {
		a, r := list.Entry(i)
		asks[i].limiter().fillDecision(&ds[i], r)
		ds[i].Shadow = a.Shadow
		subject := asks[i].Limiter.subject(asks[i].Key)
		if a.BansKeys {
			n.checks.Strike(subject, a, r)
		}
		subject.Shadow = a.Shadow
		n.checks.Count(subject, a, r)
	}
	return nil
}

// addAsk validates an ask, and adds it to the list.
func (n *Node) addAsk(ctx context.Context, list *check.AskList, a *Ask) error {
	if a.Limiter == nil || a.Limiter.node != n {
		return fmt.Errorf("%w Limiter: it is nil or of another node: use a Limiter that this node has returned", ErrInvalid)
	}
	l, one := a.limiter(), list.NextAsk()
	one.Shadow = a.Shadow || a.Limiter.shadow
	if err := l.prepareCounted(ctx, a.Key, a.units(), one); err != nil {
		return err
	}
	if !one.Shadow {
		if err := l.checkCapacity(a.units()); err != nil {
			return err
		}
	}
	sum := list.Add()
	if most := sum.Limit.Usable(); sum.Units > most && !sum.Shadow {
		return fmt.Errorf("%w units: the asks of limit %q add up to more than the %d units that the limit can ever grant", ErrInvalid, a.Limiter.limit.Name, most)
	}
	return nil
}

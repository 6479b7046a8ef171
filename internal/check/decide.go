package check

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Do executes op on a count at the member that answers for the count, and waits for the result. It sets
// a.Began. A deadline or an outage is not an error: in that case this node decides as a stand-in or within
// its share. If a refund or a strike was sent and not answered, this node does not decide, and leaves r
// unchanged. The error is that of a cancelled ctx. For a caller that waits for a hold, the error may also be
// context.DeadlineExceeded, after the deadline of ctx or after Timeout.
func (c *Checks) Do(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error {
	err := c.decide(ctx, op, a, r)
	if err == nil && r.Unknown {
		return c.learnAndDecide(ctx, op, a, r)
	}
	return err
}

// decide is like Do, but the result of an operation on holds may be Unknown.
func (c *Checks) decide(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error {
	v, now := c.Env.View(), c.Env.Now()
	t := c.Env.TimeAt(now)
	a.Began = t.Monotonic
	route := v.Route(a.ID, t.Monotonic)
	as, asks := c.place(v, route, now)
	switch {
	case as == view.AsOwner:
		c.execute(v, as, op, a, now, r)
		return nil
	case !asks:
		return c.decideHere(ctx, v, as, c.Timeout, op, a, now, r)
	case op == wire.OpTake && c.Asker.Answer(a, t, r):
		return nil
	case op == wire.OpHold:
		c.Holds.RecordAsk(a)
	}
	sent, results := [1]wire.Ask{*a}, [1]wire.Result{}
	if op == wire.OpTake && route.Way == view.Direct {
		c.Asker.Want(v, &sent[0], t)
	}
	target, err := c.ask(ctx, v, t, route, op, 0, sent[:], results[:])
	switch {
	case err == nil:
		*r = results[0]
	case op.IsOnce() && !isUnsent(err):
		err = cancelled(ctx)
	default:
		v, as = c.standing(v, route, target, err)
		err = c.decideHere(ctx, v, as, target.remaining, op, a, c.Env.Now(), r)
	}
	if target.trip != nil {
		results[0] = *r
		target.trip.decided(op, sent[:], results[:], err)
	}
	return err
}

// place returns the standing in which this node decides a check with the given route, and whether
// this node asks another member first.
func (c *Checks) place(v *view.View, route view.Route, now int64) (as view.Standing, asks bool) {
	switch route.Way {
	case view.Here:
		if !c.Env.IsFenced(v, now) {
			return view.AsOwner, false
		}
		return view.AsSelf, false
	case view.NoWay:
		return view.AsSelf, false
	case view.StandIn:
		if route.To == v.Self {
			return view.AsStandIn, false
		}
	}
	return view.AsSelf, true
}

// standing returns how this node decides if no member has answered: the view that it uses, and
// whether it decides as a stand-in or for itself.
func (c *Checks) standing(v *view.View, route view.Route, target answerer, err error) (*view.View, view.Standing) {
	after := c.viewAfter(v, route.To, err)
	if target.member == v.Self && after.Stays() {
		return after, view.AsStandIn
	}
	return after, view.AsSelf
}

// viewAfter returns the view to decide by after the given member has not answered. A member that is only late
// remains in the view. If err shows that a connection broke or is missing, the result is a view without the
// member, even if the present view does not show the loss yet. If this node has begun to leave, the
// result is the present view, in which a leaving node stands in for no member.
func (c *Checks) viewAfter(v *view.View, member int, err error) *view.View {
	now := c.Env.View()
	if now.Stays() && (errors.Is(err, cluster.ErrBroken) || errors.Is(err, cluster.ErrDisconnected)) {
		return v.WithoutMember(member)
	}
	return now
}

// decideHere executes op without authority. If this node does not know all holds of the count, it
// asks other members for their holds, within the time remaining, and then executes op again.
func (c *Checks) decideHere(ctx context.Context, v *view.View, as view.Standing, remaining time.Duration, op wire.Op, a *wire.Ask, now int64, r *wire.Result) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	if op == wire.OpHold && a.Hold.Waits && ctx.Err() != nil {
		return ctx.Err() // the time of the waiter ended before its turn, so the waiter gets no units of the share
	}
	// The goroutines that read responses run first, because decisions without a wait could keep
	// them from the processor.
	runtime.Gosched()
	c.execute(v, as, op, a, now, r)
	if r.Unknown {
		c.learnAndExecute(ctx, v, as, remaining, op, a, r)
	}
	return nil
}

// execute applies op to a count or a hold that this node keeps, for a caller of this node or for
// another member.
func (c *Checks) execute(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	if a.Limit.Algorithm == bucket.InFlight {
		c.Holds.Do(v, as, op, a, c.Env.MonotonicAt(now), r)
		return
	}
	c.Owner.Do(v, as, op, a, now, r)
}

// Send executes op at the member that answers for the count, and requests no response. The message
// can be lost: units that it should return then stay spent.
func (c *Checks) Send(op wire.Op, a *wire.Ask) {
	v, now := c.Env.View(), c.Env.Now()
	route := v.Route(a.ID, c.Env.MonotonicAt(now))
	target := answerer{member: route.To, hop: route.Hop}
	if route.Way == view.StandIn {
		target.flags |= wire.FlagStandIn
	}
	switch {
	case route.Way == view.NoWay:
		c.execute(v, view.AsSelf, op, a, now, new(wire.Result))
	case route.To == v.Self:
		c.execute(v, v.Standing(a.ID), op, a, now, new(wire.Result))
	default:
		v.Members[route.Hop].Peer.Send(appendRequest(nil, v, target, op, 0, []wire.Ask{*a}))
	}
	c.Asker.End(a.ID)
}

// DoInBackground is like Do, but does not wait: unless this node has authority over the count, a
// goroutine calls Do. If too many goroutines run, DoInBackground calls Send instead.
func (c *Checks) DoInBackground(op wire.Op, a *wire.Ask) {
	v, now := c.Env.View(), c.Env.Now()
	if as, _ := c.place(v, v.Route(a.ID, c.Env.MonotonicAt(now)), now); as == view.AsOwner {
		c.execute(v, as, op, a, now, new(wire.Result))
		c.Asker.End(a.ID)
		return
	}
	started := c.Env.Try(func(ctx context.Context) {
		_ = c.Do(ctx, op, a, new(wire.Result)) // if the operation fails, the units stay spent
		c.Asker.End(a.ID)
	})
	if !started {
		c.Send(op, a)
	}
}

// Pause pauses the key of a for a.Units milliseconds. Without authority over the count, this node first
// caches a denial.
func (c *Checks) Pause(ctx context.Context, a *wire.Ask) error {
	v, now := c.Env.View(), c.Env.Now()
	t := c.Env.TimeAt(now)
	if as, _ := c.place(v, v.Route(a.ID, t.Monotonic), now); as != view.AsOwner {
		left := time.Duration(a.Units) * time.Millisecond
		r := wire.Result{Banned: true, Paused: true, Firm: true, ResetNumber: c.Owner.ResetNumber(a.ID, now)}
		r.RetryAfter, r.ResetAfter = left, left
		c.Asker.Learn(a, &r, 0, t)
	}
	return c.Do(ctx, wire.OpPause, a, new(wire.Result))
}

// cancelled returns the error of a cancelled ctx. It returns nil if the deadline has passed,
// because this node then decides.
func cancelled(ctx context.Context) error {
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

package weir

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// decide carries out one op on one count, wherever it has to be done: the way of
// a check. Its only error is that of a cancelled context; a deadline or an
// outage is answered from this node's budget.
func (n *Node) decide(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error {
	v, now := n.handover.View(), n.env.Now()
	t := n.env.At(now)
	a.Began = t.Steady
	way := v.Route(a.ID, t.Steady)
	as := view.AsSelf
	switch {
	case way.Way == view.Here && !n.handover.Fenced(v, now):
		n.do(v, view.AsOwner, op, a, now, r)
		return nil
	case way.Way == view.StandIn && way.To == v.Self:
		as = view.AsStandIn
	case way.Way != view.Here && way.Way != view.NoWay:
		if op == wire.OpTake && (n.asker.Answer(a, t, r)) {
			return nil
		}
		if op == wire.OpHold {
			n.clients.holds.Asks(a)
		}
		asks, results := [1]wire.Ask{*a}, [1]wire.Result{}
		if op == wire.OpTake && way.Way == view.Direct {
			n.asker.Want(v, &asks[0], t)
		}
		trip := n.depart(ctx)
		by, err := n.reach(ctx, trip, v, t, way, op, 0, asks[:], results[:])
		switch {
		case err == nil:
			*r = results[0]
		case op == wire.OpRefund && !check.IsUnsent(err):
			err = cancelled(ctx)
		default:
			after := n.viewAfter(v, way.To, err)
			if by.member == v.Self && after.Stays() {
				as = view.AsStandIn
			}
			err = n.decideHere(ctx, after, as, by.left, op, a, n.env.Now(), r)
		}
		if trip != nil {
			results[0] = *r
			trip.decided(op, asks[:], results[:], err)
		}
		return err
	}
	return n.decideHere(ctx, v, as, n.cfg.Timeout, op, a, now, r)
}

// decideHere carries out op if this node does not have authority over the count. If the stand-in
// decides on a hold, it first asks other members for their holds, and waits for at most left.
func (n *Node) decideHere(ctx context.Context, v *view.View, as view.Standing, left time.Duration, op wire.Op, a *wire.Ask, now int64, r *wire.Result) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	if op == wire.OpHold && a.Hold.Waits && ctx.Err() != nil {
		return ctx.Err() // a waiter that runs out of time has not been served, and gets no share
	}
	if (op == wire.OpHold || op == wire.OpExtend) && as == view.AsStandIn {
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		n.clients.holds.Learn(ctx, as, op, a)
		now = n.env.Now()
	}
	// What is decided without waiting must not crowd out what reads answers.
	runtime.Gosched()
	n.do(v, as, op, a, now, r)
	return nil
}

// do carries out op on what is counted here, or held.
func (n *Node) do(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	if a.Limit.Algorithm == bucket.InFlight {
		n.clients.holds.Do(v, as, op, a, n.env.SteadyAt(now), r)
		return
	}
	n.owner.Do(v, as, op, a, now, r)
}

// answerer is who answered, or was the last to be asked, and on what terms.
type answerer struct {
	member int // index in Members; this node if it is to stand in
	hop    int // whom the request was sent to
	flags  uint8
	trip   *trip         // nil if no tracer is set
	left   time.Duration // the rest of the check's time, set with an error; an attempt uses at most its Wait
}

// reach has another member carry out op on asks that all go its way, within Timeout:
// the one with authority; if it does not answer in time, the one that stands in for it, which
// asks it first. A refund is sent once only: the owner may yet carry out what it has
// not answered, and of a take or debit that is done twice one is given back when its
// answer comes late.
//
// begun is the time now: a check reads the clock but once while nothing is wrong.
func (n *Node) reach(ctx context.Context, trip *trip, v *view.View, begun countsync.Time, way view.Route, op wire.Op, flags uint8, asks []wire.Ask, results []wire.Result) (by answerer, err error) {
	a, sent := check.FirstAttempt(v, way, flags, n.cfg.Timeout, begun.Steady), begun
	if op == wire.OpHold || op == wire.OpExtend {
		a.KeepReserve()
	}
	for {
		by = answerer{member: a.Member, hop: a.Hop, flags: a.Flags, trip: trip}
		if err = n.forward(ctx, a.View, by, op, asks, results, sent, a.Wait); err == nil {
			return by, nil
		}
		if op == wire.OpRefund || !check.IsUnanswered(err) {
			by.left = a.Left(n.env.Steady())
			return by, err
		}
		for i := range asks {
			asks[i].Take.Want = wire.Want{} // only an owner lends, to the node that asks it itself
		}
		sent = n.env.Time()
		again := a.Next(err, asks[0].ID, sent.Steady)
		by.member = a.Member
		if !again {
			by.left = a.Left(sent.Steady)
			return by, err
		}
	}
}

// viewAfter is the view to decide by once a member has not answered. One that is only late
// is not missing; one whose connection broke is, though no view may say so yet. A node that
// has begun to leave meanwhile goes by its present view, in which it stands in for nobody.
func (n *Node) viewAfter(v *view.View, to int, err error) *view.View {
	now := n.handover.View()
	if now.Stays() && (errors.Is(err, cluster.ErrBroken) || errors.Is(err, cluster.ErrUnheard)) {
		return v.Without(to)
	}
	return now
}

// exchange holds the bytes of one question and its answer, so that asking
// allocates nothing.
type exchange struct{ request, answer []byte }

// forward sends asks to a member, for itself or for one that it hears, and takes in
// the results.
func (n *Node) forward(ctx context.Context, v *view.View, by answerer, op wire.Op, asks []wire.Ask, results []wire.Result, sent countsync.Time, wait time.Duration) error {
	x := n.pools.exchanges.Get().(*exchange)
	defer n.pools.exchanges.Put(x)
	if op == wire.OpTake {
		for i := range asks {
			asks[i].Take.Sent = sent.Steady // for Late
		}
	}
	x.request = requestOf(x.request[:0], v, by, op, wait, asks)
	relayed := by.hop != by.member || by.flags&wire.FlagStandIn != 0
	if err := n.exchange(ctx, v, by, x, wait); err != nil {
		if errors.Is(err, cluster.ErrTimeout) && !relayed {
			n.outage.Lost(n.env.Steady(), v.Members[by.hop].Name)
		}
		return err
	}
	for i := range results {
		r := wire.ParseResult(x.answer, op, i)
		switch {
		case r.Source == wire.Owner && relayed:
			r.Source = wire.Relayed
		case r.Source == wire.Owner:
			r.Source = wire.Forwarded
		}
		if op == wire.OpTake {
			n.asker.Learn(&asks[i], &r, v.Hashes[by.member], sent)
		}
		results[i] = r
	}
	return nil
}

// requestOf appends a request to b.
func requestOf(b []byte, v *view.View, by answerer, op wire.Op, wait time.Duration, asks []wire.Ask) []byte {
	if by.trip.travels() {
		by.flags |= wire.FlagTraced
	}
	b = wire.Header{Op: op, Flags: by.flags, Hops: wire.MaxHops, Asks: uint8(len(asks)), Wait: wait, To: v.Hashes[by.member]}.Append(b)
	for i := range asks {
		b = asks[i].Append(b)
	}
	if by.flags&wire.FlagTraced != 0 {
		b = wire.Trace(by.trip.context).Append(b)
	}
	return b
}

// exchange sends x.request to a member and fills x.answer with one that fits.
func (n *Node) exchange(ctx context.Context, v *view.View, by answerer, x *exchange, wait time.Duration) error {
	to := &v.Members[by.hop]
	var begun int64
	observed := n.cfg.Observer != nil || by.trip != nil
	if observed {
		begun = n.env.Now()
	}
	answer, err := to.Peer.Ask(ctx, x.request, x.answer, wait)
	if observed {
		e := HopEvent{To: to.Name, Err: err, Took: time.Duration(n.env.Now() - begun)}
		if n.cfg.Observer != nil {
			n.cfg.Observer.Hopped(ctx, e)
		}
		by.trip.hopped(e)
	}
	if err != nil {
		return err
	}
	x.answer = answer
	switch s, err := wire.ParseAnswer(answer, wire.Op(x.request[0]), int(x.request[3])); {
	case err != nil:
		return err
	case s == wire.Unreached:
		return env.ErrUnreached
	}
	return nil
}

// tell carries out op where it has to be done and waits for no answer: for what
// gives back. What cannot be delivered is lost, and the units stay spent.
func (n *Node) tell(op wire.Op, a *wire.Ask) {
	v, now := n.handover.View(), n.env.Now()
	way := v.Route(a.ID, n.env.SteadyAt(now))
	by := answerer{member: way.To, hop: way.Hop} // nobody traces what is told
	if way.Way == view.StandIn {
		by.flags |= wire.FlagStandIn
	}
	switch {
	case way.Way == view.NoWay:
		n.do(v, view.AsSelf, op, a, now, new(wire.Result))
	case way.To == v.Self:
		n.do(v, v.Standing(a.ID), op, a, now, new(wire.Result))
	default:
		v.Members[way.Hop].Peer.Tell(requestOf(nil, v, by, op, 0, []wire.Ask{*a}))
	}
	n.asker.End(a.ID)
}

// apart carries out op where it has to be done, and waits for nobody. Where another member
// answers, an errand asks it, and the member that stands in for it if it does not.
func (n *Node) apart(op wire.Op, a *wire.Ask) {
	v, now := n.handover.View(), n.env.Now()
	way := v.Route(a.ID, n.env.SteadyAt(now))
	if way.Way == view.Here && !n.handover.Fenced(v, now) {
		n.owner.Do(v, view.AsOwner, op, a, now, new(wire.Result))
		n.asker.End(a.ID)
		return
	}
	started := n.env.Try(func(ctx context.Context) {
		_ = n.decide(ctx, op, a, new(wire.Result)) // what cannot be carried out stays spent
		n.asker.End(a.ID)
	})
	if !started {
		n.tell(op, a)
	}
}

// cancelled is the context's error, but for a deadline: when that passes, the
// budget answers.
func cancelled(ctx context.Context) error {
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

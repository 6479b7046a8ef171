package check

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// answerer is the member that has answered a check, or the last member that was asked.
type answerer struct {
	member    int // index in Members; the index of this node if this node stands in
	hop       int // the member to which the request was sent
	flags     uint8
	trip      *trip         // nil if the check is not traced
	remaining time.Duration // the remaining time of the check, if no member has answered; the last attempt used at most its Wait
}

// ask makes another member execute op on asks of the same route, within Timeout and its extension
// for a delay that a member has reported. The asks are first sent to the member of the route. If
// that member is the owner and does not answer in time, ask sends the asks to the stand-in, which
// first asks the owner again if it reaches the owner. A refund or a strike is sent only once, because
// a member that has not answered may still execute it. If a take or a debit is executed twice,
// HandleLate refunds the units of the late response if it still arrives, except those of a debit that left a
// debt.
//
// The argument begun is the present time. The caller passes it, so that a check whose first member answers reads
// the clock only once.
func (c *Checks) ask(ctx context.Context, v *view.View, begun countsync.Time, route view.Route, op wire.Op, flags uint8, asks []wire.Ask, results []wire.Result) (target answerer, err error) {
	trip := c.depart(ctx)
	a, sent := firstAttempt(v, route, flags, c.Timeout, begun.Monotonic), begun
	if op == wire.OpHold || op == wire.OpExtend {
		a.keepReserve()
	}
	for {
		target = answerer{member: a.Member, hop: a.Hop, flags: a.Flags, trip: trip}
		if err = c.forward(ctx, a.View, target, op, asks, results, sent, a.Wait); err == nil {
			return target, nil
		}
		if op.IsOnce() || !isUnanswered(err) {
			target.remaining = a.timeLeft(c.Env.Monotonic())
			return target, err
		}
		for i := range asks {
			asks[i].Take.Want = wire.Want{} // an owner lends only to a node that asks the owner directly
		}
		sent = c.Env.Time()
		again := a.advance(err, asks[0].ID, sent.Monotonic)
		target.member = a.Member
		if !again {
			target.remaining = a.timeLeft(sent.Monotonic)
			return target, err
		}
	}
}

// forward sends a request with asks, waits for the response, and reads the results.
func (c *Checks) forward(ctx context.Context, v *view.View, target answerer, op wire.Op, asks []wire.Ask, results []wire.Result, sent countsync.Time, wait time.Duration) error {
	x := c.exchanges.Get().(*exchange)
	defer c.exchanges.Put(x)
	if op == wire.OpTake {
		for i := range asks {
			asks[i].Take.Sent = sent.Monotonic // HandleLate reads the time from the request
		}
	}
	x.request = appendRequest(x.request[:0], v, target, op, wait, asks)
	relayed := target.hop != target.member || target.flags&wire.FlagStandIn != 0
	if err := c.exchange(ctx, v, target, x, wait); err != nil {
		if errors.Is(err, cluster.ErrTimeout) && !relayed {
			c.Outage.RecordLosses(c.Env.Monotonic(), v.Members[target.hop].Name)
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
		if op == wire.OpTake || op == wire.OpStrike || op == wire.OpPause {
			c.Asker.Learn(&asks[i], &r, v.Hashes[target.member], sent)
		}
		results[i] = r
	}
	return nil
}

// appendRequest appends a request to b.
func appendRequest(b []byte, v *view.View, target answerer, op wire.Op, wait time.Duration, asks []wire.Ask) []byte {
	if target.trip.travels() {
		target.flags |= wire.FlagTraced
	}
	b = wire.Header{Op: op, Flags: target.flags, Hops: wire.MaxHops, Asks: uint8(len(asks)), Wait: wait, To: v.Hashes[target.member]}.Append(b)
	for i := range asks {
		b = asks[i].Append(b)
	}
	if target.flags&wire.FlagTraced != 0 {
		b = target.trip.context.Append(b)
	}
	return b
}

// exchange sends x.request to a member, checks the response, and sets x.answer to it.
func (c *Checks) exchange(ctx context.Context, v *view.View, target answerer, x *exchange, wait time.Duration) error {
	to := &v.Members[target.hop]
	var begun int64
	observed := c.Hopped != nil || target.trip != nil
	if observed {
		begun = c.Env.Now()
	}
	answer, err := to.Peer.Ask(ctx, x.request, x.answer, wait)
	if observed {
		h := Hop{To: to.Name, Err: err, Took: time.Duration(c.Env.Now() - begun)}
		if c.Hopped != nil {
			c.Hopped(ctx, h)
		}
		target.trip.hopped(h)
	}
	if err != nil {
		return err
	}
	x.answer = answer
	switch s, err := wire.ParseResponse(answer, wire.Op(x.request[0]), int(x.request[3])); {
	case err != nil:
		return err
	case s == wire.Unreached:
		return env.ErrUnreached
	}
	return nil
}

package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

// decide carries out one op on one count, wherever it has to be done: the way of
// a check. Its only error is that of a cancelled context; a deadline or an
// outage is answered from this node's budget.
func (n *Node) decide(ctx context.Context, op op, flags uint8, a *ask, r *result) error {
	v, now := n.view.Load(), n.now()
	owner := v.owner(a.id)
	w, hop := v.route(owner, now)
	if w == here {
		n.spend(v, asOwner, op, flags, a, now, r)
		return nil
	}
	if w != alone {
		asks, results := [1]ask{*a}, [1]result{}
		_, err := n.reach(ctx, v, w, hop, owner, op, flags, asks[:], results[:])
		if err == nil {
			*r = results[0]
			return nil
		}
		if op == opRefund && !unsent(err) {
			return cancelled(ctx)
		}
		now = n.now()
	}
	if err := cancelled(ctx); err != nil {
		return err
	}
	n.spend(v, asSelf, op, flags, a, now, r)
	return nil
}

// reach has the owner carry out op on asks that are all its own: asked directly
// and then, if it does not answer in time, through others. It returns the member
// that answered. A refund is sent once only: the owner may yet carry out what it
// has not answered, and of a take or debit that is done twice one is given back
// when its answer comes late.
func (n *Node) reach(ctx context.Context, v *view, w way, hop, owner int, op op, flags uint8, asks []ask, results []result) (int, error) {
	if w == direct {
		err := n.forward(ctx, v, hop, owner, op, flags, asks, results, n.cfg.Timeout/2)
		if op == opRefund || !errors.Is(err, cluster.ErrTimeout) {
			return hop, err
		}
		if hop = v.detour(owner); hop < 0 {
			return hop, err
		}
	}
	return hop, n.relayed(ctx, v, hop, owner, op, flags, asks, results)
}

// unsent says of an error of reach that the owner has not been asked.
func unsent(err error) bool {
	return errors.Is(err, cluster.ErrUnheard) || errors.Is(err, cluster.ErrBusy)
}

// spend carries out op on the count that is held here, within the share that
// this node has. FailClosed denies what asks; what was spent or given back
// elsewhere is counted all the same, also where the share is nothing.
func (n *Node) spend(v *view, as standing, op op, flags uint8, a *ask, now int64, r *result) {
	if as == asOwner && v.complete {
		n.apply(op, flags, a, a.limit, now, &r.Result)
		r.source = Owner
		return
	}
	s, source := v.share(as, a.id, a.partition)
	r.source = source
	switch {
	case s.whole():
		n.apply(op, flags, a, a.limit, now, &r.Result)
	case source == FailedClosed && (op == opTake || op == opPeek):
		r.Result = bucket.Result{RetryAfter: outageRetry}
	default:
		part := s.limit(a.limit)
		if (op == opDebit || op == opRefund) && part.Capacity() == 0 {
			part = *a.limit
		}
		n.apply(op, flags, a, &part, now, &r.Result)
		if op == opDebit && source == FailedClosed {
			r.Allowed, r.RetryAfter = false, outageRetry
		}
	}
}

// apply carries out op on the count that is held here.
func (n *Node) apply(op op, flags uint8, a *ask, l *bucket.Limit, now int64, r *bucket.Result) {
	switch op {
	case opTake:
		n.counts.TakeInto(a.id, l, now, a.units, r)
	case opDebit:
		*r = n.counts.Debit(a.id, l, now, a.units)
	case opPeek:
		*r = n.counts.Peek(a.id, l, now, a.units)
	case opRefund:
		n.counts.Refund(a.id, l, now, a.units, a.receipt, flags&flagOnlyLast != 0)
	case opReset:
		n.counts.Reset(a.id)
	}
}

// exchange holds the bytes of one question and its answer, so that asking
// allocates nothing.
type exchange struct{ request, answer []byte }

// errUnreached: whom we asked to hand a check on could not.
var errUnreached = errors.New("weir: the owner was not reached")

// forward asks the owner, or a member towards it, for half of Timeout: the rest
// is for other ways. The member is blamed if it has not answered after wait.
func (n *Node) forward(ctx context.Context, v *view, hop, owner int, op op, flags uint8, asks []ask, results []result, wait time.Duration) error {
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	x.request = v.request(x.request[:0], owner, op, flags, n.cfg.Timeout/2, asks)
	if err := n.exchange(ctx, v, hop, x, wait); err != nil {
		return err
	}
	for i := range results {
		r := parseResult(x.answer, i)
		if r.source == Owner {
			r.source = Forwarded
		}
		results[i] = r
	}
	return nil
}

// relayed asks the owner through a neighbour. The neighbour is not to blame for
// what lies behind it, so the context ends this wait first.
func (n *Node) relayed(ctx context.Context, v *view, hop, owner int, op op, flags uint8, asks []ask, results []result) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout/2)
	defer cancel()
	err := n.forward(ctx, v, hop, owner, op, flags, asks, results, n.cfg.Timeout)
	for i := range results {
		if results[i].source == Forwarded {
			results[i].source = Relayed
		}
	}
	return err
}

// request appends a request to b.
func (v *view) request(b []byte, owner int, op op, flags uint8, wait time.Duration, asks []ask) []byte {
	b = header{op, flags, maxHops, uint8(len(asks)), wait, nameHash(v.Members[owner].Name)}.append(b)
	for i := range asks {
		b = asks[i].append(b)
	}
	return b
}

// exchange sends x.request to a member and fills x.answer with one that fits.
func (n *Node) exchange(ctx context.Context, v *view, hop int, x *exchange, wait time.Duration) error {
	to := &v.Members[hop]
	var begun int64
	if n.cfg.Observer != nil {
		begun = n.now()
	}
	answer, err := to.Peer.Ask(ctx, x.request, x.answer, wait)
	if n.cfg.Observer != nil {
		n.cfg.Observer.Hopped(ctx, HopEvent{To: to.Name, Err: err, Took: time.Duration(n.now() - begun)})
	}
	if err != nil {
		return err
	}
	x.answer = answer
	switch s, err := parseAnswer(answer, int(x.request[3])); {
	case err != nil:
		return err
	case s == statusUnreached:
		return errUnreached
	}
	return nil
}

// tell carries out op where it has to be done and waits for no answer: for what
// gives back. What cannot be delivered is lost, and the units stay spent.
func (n *Node) tell(op op, flags uint8, a *ask) {
	v, now := n.view.Load(), n.now()
	owner := v.owner(a.id)
	switch w, hop := v.route(owner, now); w {
	case here:
		n.spend(v, asOwner, op, flags, a, now, new(result))
	case direct, relay:
		v.Members[hop].Peer.Tell(v.request(nil, owner, op, flags, 0, []ask{*a}))
	case alone:
		n.spend(v, asSelf, op, flags, a, now, new(result))
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

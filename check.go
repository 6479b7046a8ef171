package weir

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// decide carries out one op on one count, wherever it has to be done: the way of
// a check. Its only error is that of a cancelled context; a deadline or an
// outage is answered from this node's budget.
func (n *Node) decide(ctx context.Context, op op, flags uint8, a *ask, r *result) error {
	v, now := n.view.Load(), n.now()
	owner, t := v.owner(a.id), n.time(now)
	a.began = t.Steady
	w, to, hop := v.route(a.id, owner, t.Steady)
	as := asSelf
	switch {
	case w == here && !n.fenced(v, now):
		n.spend(v, asOwner, op, flags, a, now, r)
		return nil
	case w == standIn && to == v.Self:
		as = asStandIn
	case w != here && w != alone:
		if op == opTake && (n.pushbacks.deny(a, t, r) || n.leases.spend(a, t, r)) {
			return nil
		}
		asks, results := [1]ask{*a}, [1]result{}
		if op == opTake && w == direct {
			n.askForLease(v, &asks[0], t)
		}
		trip := n.depart(ctx)
		by, err := n.reach(ctx, trip, v, t, w, to, hop, op, flags, asks[:], results[:])
		switch {
		case err == nil:
			*r = results[0]
		case op == opRefund && !unsent(err):
			err = cancelled(ctx)
		default:
			if by.member == v.Self {
				as = asStandIn
			}
			err = n.decideHere(ctx, n.viewAfter(v, to, err), as, op, flags, a, n.now(), r)
		}
		if trip != nil {
			results[0] = *r
			trip.decided(op, asks[:], results[:], err)
		}
		return err
	}
	return n.decideHere(ctx, v, as, op, flags, a, now, r)
}

// decideHere carries out op by what this node may spend without authority.
func (n *Node) decideHere(ctx context.Context, v *view, as standing, op op, flags uint8, a *ask, now int64, r *result) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	// What is decided without waiting must not crowd out those who read answers.
	runtime.Gosched()
	n.spend(v, as, op, flags, a, now, r)
	return nil
}

// fenced says that this node has heard nobody for a second, by the clock read of
// the check itself: it may have been frozen, and another answered in its stead.
// Until it hears someone again it has no authority.
func (n *Node) fenced(v *view, now int64) bool {
	return len(v.points) > 1 && n.steadily(now)-n.heard.Load() > int64(holdDown)
}

// steadily is the time by the clock that views go by, where the one that checks
// read says now: a clock of the caller's may step, which is no freeze and no silence.
func (n *Node) steadily(now int64) int64 {
	if n.cfg.Now != nil {
		return n.steady()
	}
	return now
}

// answerer is who answered, or was the last to be asked, and on what terms.
type answerer struct {
	member int // index in Members; this node if it is to stand in
	hop    int // whom the request was sent to
	flags  uint8
	trip   *trip // which is traced, if it is
}

// reach has another member carry out op on asks that all go its way, within Timeout:
// the one with authority; if it does not answer in time, whoever stands in for it, who
// asks it first. A refund is sent once only: the owner may yet carry out what it has
// not answered, and of a take or debit that is done twice one is given back when its
// answer comes late.
//
// begun is the time now: a check reads the clock but once while nothing is wrong.
func (n *Node) reach(ctx context.Context, trip *trip, v *view, begun countsync.Time, w way, to, hop int, op op, flags uint8, asks []ask, results []result) (by answerer, err error) {
	sent, wait := begun, n.cfg.Timeout/2
	by = answerer{to, hop, flags, trip}
	switch w {
	case direct:
		wait = n.cfg.Timeout * 3 / 4
	case standIn:
		by.flags |= flagStandIn
	}
	for {
		err = n.forward(ctx, v, by, op, asks, results, sent, wait)
		if err == nil || op == opRefund || !unanswered(err) {
			return by, err
		}
		now := n.time(n.now())
		soon := now.Steady-sent.Steady < int64(n.cfg.Timeout/8)
		// Of those that stand in, a second one is asked only where the first has just
		// died, or answers nothing now: it has the counts, and a share of this node's
		// own would come on top of them. After one that was late it might count twice
		// what is asked.
		if by.flags&flagStandIn != 0 && !soon {
			return by, err
		}
		for i := range asks {
			asks[i].lease = wireLease{} // only an owner lends, to who asks it itself
		}
		left := n.cfg.Timeout - time.Duration(now.Steady-begun.Steady)
		sent, wait = now, min(left, n.cfg.Timeout/2)
		s := v.standIn(asks[0].id, by.member)
		switch {
		case left <= 0: // nobody else could answer in time, and might do it all the same
			if s == v.Self {
				by.member = s
			}
			return by, err
		case w == relay && by.hop == hop && !errors.Is(err, errUnreached) && v.detour(to, hop) >= 0:
			by.hop = v.detour(to, hop) // who is to relay has not answered, which says nothing of the owner
		case s < 0:
			return by, err
		case s != v.Self:
			v, by = v.without(by.member), answerer{s, v.next[s], flags | flagStandIn, trip}
		case w == direct && by.member == to && by.hop == hop && v.detour(to, hop) >= 0:
			by.hop = v.detour(to, hop)
		default:
			by.member = v.Self
			return by, err
		}
	}
}

// viewAfter is the view to decide by once a member has not answered. Who is only late
// is not missing; one whose connection broke is, though no view may say so yet.
func (n *Node) viewAfter(v *view, to int, err error) *view {
	if errors.Is(err, cluster.ErrBroken) || errors.Is(err, cluster.ErrUnheard) {
		return v.without(to)
	}
	return n.view.Load()
}

// unanswered says of an error that whoever was asked has not answered: another one may.
func unanswered(err error) bool {
	return errors.Is(err, cluster.ErrTimeout) || unheard(err) || errors.Is(err, errUnreached)
}

// unheard says of an error that nothing was sent, as whoever was to be asked is not
// heard, or answers nothing now.
func unheard(err error) bool {
	return errors.Is(err, cluster.ErrUnheard) || errors.Is(err, cluster.ErrStalled)
}

// unsent says of an error that nobody has been asked.
func unsent(err error) bool { return unheard(err) || errors.Is(err, cluster.ErrBusy) }

// spend carries out op on the count that is held here, within the share that
// this node has. FailClosed denies what asks; what was spent or given back
// elsewhere is counted all the same, also where the share is nothing.
func (n *Node) spend(v *view, as standing, op op, flags uint8, a *ask, now int64, r *result) {
	r.stoodIn = as != asOwner
	if as == asOwner && v.complete {
		n.applyWhole(op, flags, a, now, r)
		r.source = Owner
		return
	}
	a.lease = wireLease{}
	s, source := v.share(as, a.id, a.partition)
	r.source = source
	switch {
	case s.all:
		n.applyWhole(op, flags, a, now, r)
	case source == FailedClosed && (op == opTake || op == opPeek || op == opWait):
		r.Result = bucket.Result{RetryAfter: outageRetry, ResetAfter: outageRetry}
	default:
		part := s.limit(n.wholeOf(a, now))
		if (op == opDebit || op == opRefund) && part.Capacity() == 0 {
			part = *a.limit
		}
		n.apply(op, flags, a, &part, now, r)
		r.RetryAfter = v.retryAfter(as, source, r.RetryAfter)
		if op == opDebit && source == FailedClosed {
			r.Allowed, r.RetryAfter, r.ResetAfter = false, outageRetry, max(r.ResetAfter, outageRetry)
		}
	}
}

// applyWhole carries out op within all that this region has of the limit.
func (n *Node) applyWhole(op op, flags uint8, a *ask, now int64, r *result) {
	if a.global && n.regions.Holdings != nil {
		n.applyGlobal(op, flags, a, now, r)
		return
	}
	n.apply(op, flags, a, a.limit, now, r)
}

// wholeOf is all that this region has of the limit of an ask.
func (n *Node) wholeOf(a *ask, now int64) *bucket.Limit {
	if !a.global || n.regions.Holdings == nil {
		return a.limit
	}
	held := n.regions.Limit(a.id, a.limit, n.time(now))
	return &held
}

// apply carries out op on the count that is held here.
func (n *Node) apply(op op, flags uint8, a *ask, l *bucket.Limit, now int64, r *result) {
	if op == opTake || op == opPeek {
		if waiting := n.ahead(a, l, now); waiting > 0 {
			r.Result = n.counts.Peek(a.id, l, now, a.units)
			denyBehind(waiting, l, &r.Result)
			return
		}
	}
	switch op {
	case opWait:
		n.applyWait(a, l, now, r)
	case opTake:
		if a.lease.units > 0 {
			n.takeLending(a, l, now, r)
		} else {
			n.counts.TakeInto(a.id, l, now, a.units, &r.Result)
		}
		n.soonest(a.id, &r.Result, now)
	case opDebit:
		r.Result = n.counts.Debit(a.id, l, now, a.units)
	case opPeek:
		r.Result = n.counts.Peek(a.id, l, now, a.units)
		n.soonest(a.id, &r.Result, now)
	case opRefund:
		n.refund(flags, a, l, now)
	case opReset:
		n.stream.ResetTo(a.id, uint64(a.units), 0, now)
	}
}

// refund gives back what a receipt was given for. What was granted without authority
// counts on top of a state that has come since, whose windows or entries begin at
// other times: it is among the newest units, for as long as it counts. What was granted
// before a reset is not in the count any more.
func (n *Node) refund(flags uint8, a *ask, l *bucket.Limit, now int64) {
	lent := n.lent.of(a.id, n.steadily(now))
	if a.resetNumber > 0 {
		s := n.lent.lock(a.id)
		defer s.mu.Unlock()
		if a.resetNumber < n.resetNumber(a.id, now) {
			return
		}
	}
	gave := n.counts.RefundBeside(a.id, l, now, a.units, a.receipt, flags&flagOnlyLast != 0, lent)
	if !gave && a.stoodIn && !l.IsBucket() && uint64(now-int64(a.receipt)) < uint64(l.Per) {
		n.counts.Refund(a.id, l, now, a.units, 0, false)
	}
}

// exchange holds the bytes of one question and its answer, so that asking
// allocates nothing.
type exchange struct{ request, answer []byte }

// errUnreached: whom we asked to hand a check on could not.
var errUnreached = errors.New("weir: the owner was not reached")

// forward sends asks to a member, for itself or for one that it hears, and takes in
// the results.
func (n *Node) forward(ctx context.Context, v *view, by answerer, op op, asks []ask, results []result, sent countsync.Time, wait time.Duration) error {
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	if op == opTake {
		for i := range asks {
			asks[i].receipt = bucket.Receipt(sent.Steady) // for Late
		}
	}
	x.request = v.request(x.request[:0], by, op, wait, asks)
	relayed := by.hop != by.member || by.flags&flagStandIn != 0
	if err := n.exchange(ctx, v, by, x, wait); err != nil {
		if errors.Is(err, cluster.ErrTimeout) && !relayed {
			n.outages.waited(v.Members[by.hop].Name, n.steady())
		}
		return err
	}
	for i := range results {
		r := parseResult(x.answer, i)
		switch {
		case r.source == Owner && relayed:
			r.source = Relayed
		case r.source == Owner:
			r.source = Forwarded
		}
		if op == opTake {
			n.pushbacks.learn(&asks[i], &r, sent)
		}
		if asks[i].lease.units > 0 {
			n.leases.learn(&asks[i], &r, v.hashes[by.member], sent, n.time(n.now()))
		}
		results[i] = r
	}
	return nil
}

// request appends a request to b.
func (v *view) request(b []byte, by answerer, op op, wait time.Duration, asks []ask) []byte {
	if by.trip.travels() {
		by.flags |= flagTraced
	}
	b = header{op, by.flags, maxHops, uint8(len(asks)), wait, v.hashes[by.member]}.append(b)
	for i := range asks {
		b = asks[i].append(b)
	}
	if by.flags&flagTraced != 0 {
		b = by.trip.context.append(b)
	}
	return b
}

// exchange sends x.request to a member and fills x.answer with one that fits.
func (n *Node) exchange(ctx context.Context, v *view, by answerer, x *exchange, wait time.Duration) error {
	to := &v.Members[by.hop]
	var begun int64
	observed := n.cfg.Observer != nil || by.trip != nil
	if observed {
		begun = n.now()
	}
	answer, err := to.Peer.Ask(ctx, x.request, x.answer, wait)
	if observed {
		e := HopEvent{To: to.Name, Err: err, Took: time.Duration(n.now() - begun)}
		if n.cfg.Observer != nil {
			n.cfg.Observer.Hopped(ctx, e)
		}
		by.trip.hopped(e)
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
	w, to, hop := v.route(a.id, v.owner(a.id), n.steadily(now))
	by := answerer{member: to, hop: hop, flags: flags} // nobody traces what is told
	if w == standIn {
		by.flags |= flagStandIn
	}
	switch {
	case w == alone:
		n.spend(v, asSelf, op, flags, a, now, new(result))
	case to == v.Self:
		n.spend(v, v.standing(a.id), op, flags, a, now, new(result))
	default:
		v.Members[hop].Peer.Tell(v.request(nil, by, op, 0, []ask{*a}))
	}
	n.pushbacks.end(a.id, n.steady())
}

// cancelled is the context's error, but for a deadline: when that passes, the
// budget answers.
func cancelled(ctx context.Context) error {
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

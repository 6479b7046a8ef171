package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

// inbound is the node as the cluster sees it: what comes in.
type inbound struct{ n *Node }

// Changed swaps the view that checks are routed by.
func (in inbound) Changed() { in.n.look() }

// Heard notes that some member has answered just now.
func (in inbound) Heard() { in.n.heard.Store(in.n.steady()) }

// Serve answers what other members ask. One clock read serves the whole batch,
// so that the table's cache misses overlap.
func (in inbound) Serve(b *cluster.Batch) {
	n := in.n
	v, now := n.view.Load(), n.now()
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	n.counts.Prefetch(idsOf(b.Requests, new([64]bucket.ID)[:0]))
	blind := v.Self < 0 && n.starting.Load() // this node does not know yet who is here
	fenced := n.fenced(v, now)
	waited := time.Duration(0)
	if !b.Read.IsZero() {
		waited = time.Since(b.Read)
	}
	from, longest := sender{b.Region, b.From}, n.longestWait()
	for i, request := range b.Requests {
		h, err := parseHeader(request)
		if err != nil {
			b.Reply(i, nil)
			continue
		}
		h.wait = min(h.wait, longest)
		if b.Region != n.cfg.Region || h.op == opExchange || h.flags&flagAbroad != 0 {
			if refusal, err := n.border(b, &h, request, now); refusal != nil || err != nil {
				b.Reply(i, refusal)
				continue
			}
		}
		var trip *trip
		if h.flags&flagTraced != 0 {
			trip, request = n.arrive(b, h, request)
		}
		if h.op < opReset && h.wait > 0 && waited > h.wait {
			// Whoever asked waits no more, and has been answered by others. What is told
			// waits for nothing, and is carried out.
			n.meters.overdue.Add(uint64(h.asks))
			n.reply(b, i, trip, h, request, appendAnswer(x.answer[:0], statusUnreached, 0))
			continue
		}
		if blind || fenced && h.op < opReset {
			n.reply(b, i, trip, h, request, appendAnswer(x.answer[:0], statusUnreached, 0))
			continue
		}
		if v.awaits(h, request) && n.await(from, h, request, trip, b.Later(i)) {
			continue
		}
		if member, flags := v.onward(h, request, n.steadily(now)); member >= 0 {
			h.flags = flags
			if hop := v.next[member]; hop >= 0 && hop != member && v.Members[hop].Name == b.From {
				// Each of the two takes the other for the way there. Who is asked to stand in
				// itself does so, as the asker has not reached that one either: else the asker
				// would stand in, and so would this node for asks of its own.
				got := appendAnswer(x.answer[:0], statusUnreached, 0)
				if request[1]&flagStandIn != 0 && v.stays() && h.to == v.hashes[v.Self] {
					got = n.standsIn(v, request)
				}
				n.reply(b, i, trip, h, request, got)
				continue
			}
			n.handOn(v, member, h, request, trip, b.Later(i), func(f func(context.Context)) bool { return n.serveApart(from, f) })
			continue
		}
		switch h.op {
		case opPublish:
			if err := n.servePublished(v, b.From, request[headerBytes:], now); err != nil {
				b.Reply(i, nil)
				continue
			}
			b.Reply(i, appendAnswer(x.answer[:0], statusDone, 0))
			continue
		case opCompare:
			n.serveComparison(from, request[headerBytes:], b.Later(i))
			continue
		case opDeclare:
			limits, err := parseLimits(request[headerBytes:])
			if err != nil {
				b.Reply(i, nil)
				continue
			}
			n.registry.compare(limits, b.From, n.steady())
			b.Reply(i, appendAnswer(x.answer[:0], statusDone, 0))
			continue
		case opLocate:
			x.answer = n.serveLocate(request[headerBytes:], x.answer[:0])
			v = n.view.Load()
			b.Reply(i, x.answer)
			continue
		case opTop:
			n.serveTop(from, request[headerBytes:], b.Later(i))
			continue
		case opExchange:
			n.serveExchange(from, request, h, b.Later(i))
			continue
		case opStream:
			x.answer = n.serveFrame(request[headerBytes:], now, x.answer[:0])
			v = n.view.Load() // authority may have come with it
			b.Reply(i, x.answer)
			continue
		}
		if v.Self < 0 {
			// It has left, and found nobody to pass this on to. What it did would be told nobody.
			n.reply(b, i, trip, h, request, appendAnswer(x.answer[:0], statusUnreached, 0))
			continue
		}
		if h.op == opReset && !resetsInTime(h, request, now) {
			b.Reply(i, nil)
			continue
		}
		if x.answer, err = n.answer(v, h, request, x.answer[:0], now); err != nil {
			n.reply(b, i, trip, h, request, nil)
			continue
		}
		n.meters.served.Add(uint64(h.asks))
		n.reply(b, i, trip, h, request, x.answer)
	}
}

// reply answers a request that may be traced.
func (n *Node) reply(b *cluster.Batch, i int, trip *trip, h header, request, answer []byte) {
	trip.answered(h, request, answer)
	b.Reply(i, answer)
}

// onward says which member a request goes on to, with which flags; -1 if it is
// answered here. A request for another member is relayed towards it. One that is
// for this node, of ids that another answers for, is passed on: views differ
// while a change of membership spreads, and while authority moves. Asked to stand
// in, this node asks the owner first if it hears it.
func (v *view) onward(h header, request []byte, now int64) (member int, flags uint8) {
	if to, known := v.named[h.to]; known && to != v.Self {
		return to, h.flags
	}
	stands := h.flags&flagStandIn != 0
	switch {
	case h.op >= opLend, h.flags&passBits >= maxPasses:
		return -1, 0
	case h.op == opRefund:
		if receipt, stoodIn := receiptOf(request); receipt != 0 && (stoodIn || !stands) {
			return -1, 0 // a receipt means nothing but where it was given
		}
	}
	member = -1
	for i := range int(h.asks) {
		id := idOf(request, i)
		owner := v.owner(id)
		if owner == v.Self && v.settled {
			return -1, 0
		}
		w, to, _ := v.route(id, owner, now)
		if h.flags&passBits > 0 && w != here {
			from := v.holder(id)
			if from < 0 {
				from = v.whoHas(id, v.gave)
			}
			if from >= 0 && v.Direct[from] {
				w, to = direct, from // the owner waits for this node, which waited for that one, or gave to it
			}
		}
		passes := w == direct || w == relay
		if w == standIn && to != v.Self && !v.serves() { // who leaves, or has left, stands in for nobody
			passes, flags = true, flagStandIn
		}
		if !passes || i > 0 && to != member {
			return -1, 0
		}
		member = to
	}
	return member, h.flags&^flagStandIn + 1 | flags
}

// handOn sends a request on to a member, or towards it, and brings its answer
// back. It takes three quarters of the asker's wait at most, so that the asker
// hears of a failure in time.
//
// A refund that was sent is not carried out here as well, whatever the answer: the
// member may have done it, or may yet do it, and unlike a take or a debit, which Late
// refunds, nothing would undo the second one. That a way ended without an answer
// (statusUnreached) may mean no more than that the answer was late further on.
//
// start runs the rest in the background. It reports false if there is no slot for it.
func (n *Node) handOn(v *view, member int, h header, request []byte, trip *trip, answer cluster.Later, start func(func(context.Context)) bool) {
	answer = trip.later(h, request, answer)
	unreached := appendAnswer(nil, statusUnreached, 0)
	hop := v.next[member]
	if hop < 0 || h.hops == 0 {
		answer(unreached)
		return
	}
	stands := request[1]&flagStandIn != 0 && h.flags&flagStandIn == 0
	passes := h.to != v.hashes[member] // else it was for that one all along
	h.hops--
	h.to = v.hashes[member]
	h.wait = h.wait * 3 / 4
	if stands {
		h.wait = h.wait * 2 / 3 // half of the asker's: what is left is for standing in
	}
	onward := append(h.append(nil), request[headerBytes:]...)
	for i := range int(h.asks) {
		wantNoLease(onward, i) // it would not know whose it is
	}
	peer := v.Members[hop].Peer
	n.meters.passed.Add(uint64(h.asks))
	if h.wait == 0 {
		peer.Tell(onward)
		answer(unreached)
		return
	}
	started := start(func(ctx context.Context) {
		begun := n.now()
		got, err := peer.Ask(ctx, onward, nil, h.wait)
		trip.hopped(HopEvent{To: v.Members[hop].Name, Err: err, Took: time.Duration(n.now() - begun)})
		failed := err != nil || len(got) == 0 || status(got[0]) == statusUnreached
		switch {
		case stands && v.stays() && failed && (h.op != opRefund || unsent(err)):
			got = n.standsIn(n.viewAfter(v, member, err), onward)
		case err != nil:
			got = unreached
		case passes:
			unmarkStoodIn(got)
		}
		answer(got)
	})
	if !started {
		answer(unreached)
	}
}

// standsIn answers a request in the stead of an owner that has just not answered
// this node either.
func (n *Node) standsIn(v *view, request []byte) []byte {
	h, err := parseHeader(request)
	if err != nil {
		return nil
	}
	answer, err := n.answer(v, h, request, nil, n.now())
	if err != nil {
		return nil
	}
	return answer
}

// answer carries out a request here and appends the answer.
func (n *Node) answer(v *view, h header, request, dst []byte, now int64) ([]byte, error) {
	steady, tentative := n.steadily(now), h.flags&flagTentative != 0
	if h.op == opTake && h.asks > 1 {
		s := n.scratch(int(h.asks))
		defer n.done(s)
		asks, results, limits := s.all[:h.asks], s.results[:h.asks], make([]bucket.Limit, h.asks)
		for i := range asks {
			var err error
			if asks[i], err = parseAsk(request, i, &limits[i]); err != nil {
				return nil, err
			}
		}
		dst = appendAnswer(dst, statusDone, len(asks))
		for i := range asks {
			results[i].resetNumber = n.resetNumber(asks[i].id, now)
		}
		n.begin(h.flags, asks, steady)
		n.spendAll(v, v.standing(asks[0].id), asks, now, s, results)
		n.settle(h.flags, asks, results)
		for i := range results {
			results[i].firm = n.firm(&asks[i], &results[i], steady)
			dst = results[i].append(dst)
		}
		return dst, nil
	}
	dst = appendAnswer(dst, statusDone, int(h.asks))
	for i := range int(h.asks) {
		var (
			limit bucket.Limit
			r     result
		)
		a, err := parseAsk(request, i, &limit)
		if err != nil {
			return nil, err
		}
		if tentative && h.op == opTake {
			n.tentative.begin(a.id, steady, n.cfg.Timeout)
		}
		r.resetNumber = n.resetNumber(a.id, now)
		switch h.op {
		case opLend:
			a.units = 0
			n.spend(v, v.standing(a.id), opTake, h.flags, &a, now, &r)
		case opReturn:
			n.takeBack(v, &a, now)
		default:
			n.spend(v, v.standing(a.id), h.op, h.flags, &a, now, &r)
		}
		if tentative && (h.op == opRefund || !r.Allowed) {
			n.tentative.settle(a.id)
		}
		r.firm = h.op == opTake && n.firm(&a, &r, steady)
		dst = r.append(dst)
	}
	return dst, nil
}

// Late refunds a yes that arrives after its asker gave up: the asker has been
// answered from its budget, or not at all. A debit that left a debt stays: how
// much of it the debt's bound let through is not known here. A firm denial is
// remembered, if it is not another's that this node has handed on.
func (in inbound) Late(from cluster.Peer, request, answer []byte) {
	h, err := parseHeader(request)
	if err != nil || h.op != opTake && h.op != opDebit && h.op != opWait && h.op != opLend {
		return
	}
	if s, err := parseAnswer(answer, int(h.asks)); err != nil || s != statusDone {
		return
	}
	var (
		taken  []ask
		units  uint64
		denied bool
	)
	for i := range int(h.asks) {
		a, err := parseAsk(request, i, new(bucket.Limit))
		r := parseResult(answer, i)
		if err == nil && (h.op == opTake || h.op == opLend) && h.hops == maxHops {
			sent := in.n.sentAt(int64(a.receipt))
			in.n.pushbacks.learn(&a, &r, sent)
			in.n.leases.learn(&a, &r, h.to, sent, in.n.time(in.n.now()))
		}
		switch {
		case err != nil:
			return
		case h.op == opLend:
		case !r.Allowed:
			denied = denied || !a.shadow
		default:
			if h.op == opWait {
				a.units = int64(r.lease.units)
			}
			units += uint64(a.units)
			taken = append(taken, a.taken(&r))
		}
	}
	if denied || len(taken) == 0 {
		return
	}
	refund := header{opRefund, h.flags &^ flagTraced, maxHops, uint8(len(taken)), 0, h.to}.append(nil)
	for i := range taken {
		refund = taken[i].append(refund)
	}
	in.n.meters.lateUnits.Add(units)
	from.Tell(refund)
	for i := range taken {
		in.n.pushbacks.end(taken[i].id, in.n.steady())
	}
}

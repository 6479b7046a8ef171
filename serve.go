package weir

import (
	"context"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

// inbound is the node as the cluster sees it: what comes in.
type inbound struct{ n *Node }

// Changed swaps the view that checks are routed by.
func (in inbound) Changed() {
	n := in.n
	n.swap.Lock()
	defer n.swap.Unlock()
	before := n.view.Load()
	if n.starting.Load() {
		before = nil
	}
	n.view.Store(newView(n.now(), n.cluster.View(), n.cfg.Expect, before))
}

// Serve answers what other members ask. One clock read serves the whole batch,
// so that the table's cache misses overlap.
func (in inbound) Serve(b *cluster.Batch) {
	n := in.n
	v, now := n.view.Load(), n.now()
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	blind := v.Self < 0 && n.starting.Load() // this node does not know yet who is here
	for i, request := range b.Requests {
		h, err := parseHeader(request)
		if err != nil {
			b.Reply(i, nil)
			continue
		}
		if blind {
			b.Reply(i, appendAnswer(x.answer[:0], statusUnreached, 0))
			continue
		}
		if member, passed := v.onward(h, request); member >= 0 {
			h.flags |= passed
			n.handOn(v, member, h, request[headerBytes:], b.Later(i))
			continue
		}
		if x.answer, err = n.answer(v, h, request, x.answer[:0], now); err != nil {
			b.Reply(i, nil)
			continue
		}
		n.meters.served.Add(uint64(h.asks))
		b.Reply(i, x.answer)
	}
}

// onward says which member a request goes on to, -1 if it is answered here. A
// request for another member is relayed towards it. One that is for this node,
// of ids that another owns (views differ while a change of membership spreads),
// is passed on, once.
func (v *view) onward(h header, request []byte) (member int, flags uint8) {
	if to, known := v.named[h.to]; known && to != v.Self {
		return to, 0
	}
	if h.flags&flagPassed != 0 || h.op == opReset || h.op == opRefund && receiptOf(request) != 0 {
		return -1, 0 // a receipt means nothing but where it was given
	}
	owner := v.owner(idOf(request, 0))
	for i := 1; i < int(h.asks); i++ {
		if v.owner(idOf(request, i)) != owner {
			return -1, 0
		}
	}
	if owner < 0 || owner == v.Self {
		return -1, 0
	}
	return owner, flagPassed
}

// handOn sends a request on to a member, or towards it, and brings its answer
// back. It takes three quarters of the asker's wait at most, so that the asker
// hears of a failure in time.
func (n *Node) handOn(v *view, member int, h header, asks []byte, answer cluster.Later) {
	unreached := appendAnswer(nil, statusUnreached, 0)
	hop := v.next[member]
	if hop < 0 || h.hops == 0 {
		answer(unreached)
		return
	}
	h.hops--
	h.to = nameHash(v.Members[member].Name)
	h.wait = h.wait * 3 / 4
	request := append(h.append(nil), asks...)
	peer := v.Members[hop].Peer
	n.meters.passed.Add(uint64(h.asks))
	if h.wait == 0 {
		peer.Tell(request)
		answer(unreached)
		return
	}
	started := n.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, h.wait)
		defer cancel()
		got, err := peer.Ask(ctx, request, nil, n.cfg.Timeout)
		if err != nil {
			got = unreached
		}
		answer(got)
	})
	if !started {
		answer(unreached)
	}
}

// answer carries out a request here and appends the answer.
func (n *Node) answer(v *view, h header, request, dst []byte, now int64) ([]byte, error) {
	if h.op == opTake && h.asks > 1 {
		asks, limits := make([]ask, h.asks), make([]bucket.Limit, h.asks)
		for i := range asks {
			var err error
			if asks[i], err = parseAsk(request, i, &limits[i]); err != nil {
				return nil, err
			}
		}
		dst = appendAnswer(dst, statusDone, len(asks))
		for _, r := range n.spendAll(v, asOwner, asks, now) {
			dst = r.append(dst)
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
		n.spend(v, asOwner, h.op, h.flags, &a, now, &r)
		dst = r.append(dst)
	}
	return dst, nil
}

// Late refunds a yes that arrives after its asker gave up: the asker has been
// answered from its budget, or not at all. A debit that left a debt stays: how
// much of it the debt's bound let through is not known here.
func (in inbound) Late(from cluster.Peer, request, answer []byte) {
	h, err := parseHeader(request)
	if err != nil || h.op != opTake && h.op != opDebit {
		return
	}
	if s, err := parseAnswer(answer, int(h.asks)); err != nil || s != statusDone {
		return
	}
	refund := header{opRefund, h.flags, maxHops, h.asks, 0, h.to}.append(nil)
	var units uint64
	for i := range int(h.asks) {
		r := parseResult(answer, i)
		if !r.Allowed {
			return
		}
		a, err := parseAsk(request, i, new(bucket.Limit))
		if err != nil {
			return
		}
		a.receipt = r.Receipt
		units += uint64(a.units)
		refund = a.append(refund)
	}
	in.n.meters.lateUnits.Add(units)
	from.Tell(refund)
}

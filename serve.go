package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// inbound is the node as the cluster sees it: what comes in.
type inbound struct{ n *Node }

// Changed swaps the view that checks are routed by.
func (in inbound) Changed() { in.n.handover.Refresh() }

// Heard notes that some member has answered just now.
func (in inbound) Heard() { in.n.heard.Store(in.n.clock.Steady()) }

// Serve answers what other members ask. One clock read serves the whole batch,
// so that the table's cache misses overlap.
func (in inbound) Serve(b *cluster.Batch) {
	n := in.n
	v, now := n.handover.View(), n.clock.Now()
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	n.counts.Prefetch(wire.IDsOf(b.Requests, new([64]bucket.ID)[:0]))
	blind := v.Self < 0 && n.handover.Starting() // this node does not know yet who is here
	fenced := n.fenced(v, now)
	waited := time.Duration(0)
	if !b.Read.IsZero() {
		waited = time.Since(b.Read)
	}
	from, longest := env.Sender{Region: b.Region, Name: b.From}, n.longestWait()
	for i, request := range b.Requests {
		h, err := wire.ParseHeader(request)
		if err != nil {
			b.Reply(i, wire.Refusal(err))
			continue
		}
		h.Wait = min(h.Wait, longest)
		if b.Region != n.cfg.Region || h.Op == wire.OpExchange || h.Flags&wire.FlagAbroad != 0 {
			if refusal, err := n.regions.Border(b, &h, request, now); refusal != nil || err != nil {
				b.Reply(i, refusal)
				continue
			}
		}
		var trip *trip
		if h.Flags&wire.FlagTraced != 0 {
			trip, request = n.arrive(b, h, request)
		}
		if h.Op < wire.OpReset && h.Wait > 0 && waited > h.Wait {
			// Whoever asked waits no more, and has been answered by others. What is told
			// waits for nothing, and is carried out.
			n.meters.Overdue.Add(uint64(h.Asks))
			n.reply(b, i, trip, h, request, wire.AppendAnswer(x.answer[:0], wire.Unreached, 0))
			continue
		}
		if blind || fenced && h.Op < wire.OpReset {
			n.reply(b, i, trip, h, request, wire.AppendAnswer(x.answer[:0], wire.Unreached, 0))
			continue
		}
		if v.Awaits(h, request) && n.await(from, h, request, trip, b.Later(i)) {
			continue
		}
		if member, flags := v.Onward(h, request, n.clock.SteadyAt(now)); member >= 0 {
			h.Flags = flags
			if hop := v.Next[member]; hop >= 0 && hop != member && v.Members[hop].Name == b.From {
				// Each of the two takes the other for the way there. Who is asked to stand in
				// itself does so, as the asker has not reached that one either: else the asker
				// would stand in, and so would this node for asks of its own.
				got := wire.AppendAnswer(x.answer[:0], wire.Unreached, 0)
				if request[1]&wire.FlagStandIn != 0 && v.Stays() && h.To == v.Hashes[v.Self] {
					got = n.standsIn(v, request)
				}
				n.reply(b, i, trip, h, request, got)
				continue
			}
			n.handOn(v, member, h, request, trip, b.Later(i), func(f func(context.Context)) bool { return n.serveApart(from, f) })
			continue
		}
		switch h.Op {
		case wire.OpPublish:
			if err := n.published.Serve(request[wire.HeaderBytes:], b.From); err != nil {
				b.Reply(i, nil)
				continue
			}
			b.Reply(i, wire.AppendAnswer(x.answer[:0], wire.Done, 0))
			continue
		case wire.OpCompare:
			n.serveCompare(from, request[wire.HeaderBytes:], b.Later(i))
			continue
		case wire.OpDeclare:
			if err := n.registry.Compare(request[wire.HeaderBytes:], b.From, n.clock.Steady()); err != nil {
				b.Reply(i, nil)
				continue
			}
			b.Reply(i, wire.AppendAnswer(x.answer[:0], wire.Done, 0))
			continue
		case wire.OpLocate:
			x.answer = n.handover.ServeLocate(request[wire.HeaderBytes:], x.answer[:0])
			v = n.handover.View()
			b.Reply(i, x.answer)
			continue
		case wire.OpTop:
			n.serveTop(from, request[wire.HeaderBytes:], b.Later(i))
			continue
		case wire.OpExchange:
			n.regions.Serve(from, request, h, b.Later(i))
			continue
		case wire.OpStream:
			x.answer = n.handover.ServeFrame(request[wire.HeaderBytes:], now, x.answer[:0])
			v = n.handover.View() // authority may have come with it
			b.Reply(i, x.answer)
			continue
		}
		if v.Self < 0 {
			// It has left, and found nobody to pass this on to. What it did would be told nobody.
			n.reply(b, i, trip, h, request, wire.AppendAnswer(x.answer[:0], wire.Unreached, 0))
			continue
		}
		if h.Op == wire.OpReset && !resetsInTime(h, request, now) {
			b.Reply(i, nil)
			continue
		}
		if x.answer, err = n.owner.Answer(v, h, request, x.answer[:0], now); err != nil {
			n.reply(b, i, trip, h, request, nil)
			continue
		}
		n.meters.Served.Add(uint64(h.Asks))
		n.reply(b, i, trip, h, request, x.answer)
	}
}

// reply answers a request that may be traced.
func (n *Node) reply(b *cluster.Batch, i int, trip *trip, h wire.Header, request, answer []byte) {
	trip.answered(h, request, answer)
	b.Reply(i, answer)
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
func (n *Node) handOn(v *view.View, member int, h wire.Header, request []byte, trip *trip, answer cluster.Later, start func(func(context.Context)) bool) {
	answer = trip.later(h, request, answer)
	unreached := wire.AppendAnswer(nil, wire.Unreached, 0)
	hop := v.Next[member]
	if hop < 0 || h.Hops == 0 {
		answer(unreached)
		return
	}
	stands := request[1]&wire.FlagStandIn != 0 && h.Flags&wire.FlagStandIn == 0
	passes := h.To != v.Hashes[member] // else it was for that one all along
	h.Hops--
	h.To = v.Hashes[member]
	h.Wait = h.Wait * 3 / 4
	if stands {
		h.Wait = h.Wait * 2 / 3 // half of the asker's: what is left is for standing in
	}
	onward := append(h.Append(nil), request[wire.HeaderBytes:]...)
	for i := range int(h.Asks) {
		wire.WantNoLease(onward, i) // it would not know whose it is
	}
	peer := v.Members[hop].Peer
	n.meters.Passed.Add(uint64(h.Asks))
	if h.Wait == 0 {
		peer.Tell(onward)
		answer(unreached)
		return
	}
	started := start(func(ctx context.Context) {
		begun := n.clock.Now()
		got, err := peer.Ask(ctx, onward, nil, h.Wait)
		trip.hopped(HopEvent{To: v.Members[hop].Name, Err: err, Took: time.Duration(n.clock.Now() - begun)})
		failed := err != nil || len(got) == 0 || wire.Status(got[0]) == wire.Unreached
		switch {
		case stands && v.Stays() && failed && (h.Op != wire.OpRefund || unsent(err)):
			got = n.standsIn(n.viewAfter(v, member, err), onward)
		case err != nil:
			got = unreached
		case passes:
			wire.UnmarkStoodIn(got)
		}
		answer(got)
	})
	if !started {
		answer(unreached)
	}
}

// standsIn answers a request in the stead of an owner that has just not answered
// this node either.
func (n *Node) standsIn(v *view.View, request []byte) []byte {
	h, err := wire.ParseHeader(request)
	if err != nil {
		return nil
	}
	answer, err := n.owner.Answer(v, h, request, nil, n.clock.Now())
	if err != nil {
		return nil
	}
	return answer
}

// Late refunds a yes that arrives after its asker gave up: the asker has been
// answered from its budget, or not at all. A debit that left a debt stays: how
// much of it the debt's bound let through is not known here. A firm denial is
// remembered, if it is not another's that this node has handed on.
func (in inbound) Late(from cluster.Peer, request, answer []byte) {
	h, err := wire.ParseHeader(request)
	if err != nil || h.Op != wire.OpTake && h.Op != wire.OpDebit && h.Op != wire.OpWait && h.Op != wire.OpLend {
		return
	}
	if s, err := wire.ParseAnswer(answer, int(h.Asks)); err != nil || s != wire.Done {
		return
	}
	var (
		taken  []wire.Ask
		units  uint64
		denied bool
	)
	for i := range int(h.Asks) {
		a, err := wire.ParseAsk(request, i, new(bucket.Limit))
		r := wire.ParseResult(answer, i)
		if err == nil && (h.Op == wire.OpTake || h.Op == wire.OpLend) && h.Hops == wire.MaxHops {
			in.n.asker.Learn(&a, &r, h.To, in.n.asker.SentAt(int64(a.Receipt)))
		}
		switch {
		case err != nil:
			return
		case h.Op == wire.OpLend:
		case !r.Allowed:
			denied = denied || !a.Shadow
		default:
			if h.Op == wire.OpWait {
				a.Units = int64(r.Lease.Units)
			}
			units += uint64(a.Units)
			taken = append(taken, a.Taken(&r))
		}
	}
	if denied || len(taken) == 0 {
		return
	}
	refund := wire.Header{Op: wire.OpRefund, Flags: h.Flags &^ wire.FlagTraced, Hops: wire.MaxHops, Asks: uint8(len(taken)), Wait: 0, To: h.To}.Append(nil)
	for i := range taken {
		refund = taken[i].Append(refund)
	}
	in.n.meters.LateUnits.Add(units)
	from.Tell(refund)
	for i := range taken {
		in.n.asker.End(taken[i].ID)
	}
}

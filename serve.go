package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// inbound is the node as the cluster sees it: what comes in.
type inbound struct{ n *Node }

// Changed swaps the view that checks are routed by.
func (in inbound) Changed() { in.n.handover.Refresh() }

// Heard notes that some member has answered just now.
func (in inbound) Heard() { in.n.handover.Heard(in.n.env.Steady()) }

// Serve answers what other members ask. One clock read serves the whole batch,
// so that the table's cache misses overlap.
func (in inbound) Serve(b *cluster.Batch) {
	n := in.n
	s := serving{
		n: n, b: b, x: n.pools.exchanges.Get().(*exchange), v: n.handover.View(), now: n.env.Now(),
		from: env.Sender{Region: b.Region, Name: b.From}, longest: n.cfg.longestWait(),
	}
	defer n.pools.exchanges.Put(s.x)
	n.counts.Prefetch(wire.IDsOf(b.Requests, new([64]bucket.ID)[:0]))
	s.blind = s.v.Self < 0 && n.handover.Starting()
	s.fenced = n.handover.Fenced(s.v, s.now)
	if !b.Read.IsZero() {
		s.waited = time.Since(b.Read)
	}
	for i, bytes := range b.Requests {
		if r := (request{i: i, bytes: bytes}); s.admit(&r) && !s.passOn(&r) && !s.told(&r) {
			s.decide(&r)
		}
	}
}

// serving is what answers one batch.
type serving struct {
	n       *Node
	b       *cluster.Batch
	x       *exchange
	v       *view.View
	now     int64
	from    env.Sender
	longest time.Duration // bounds the wait of each
	waited  time.Duration // since the batch was read
	blind   bool          // this node does not know yet who is here
	fenced  bool
}

// request is one of a batch, and what it was parsed to.
type request struct {
	i     int
	h     wire.Header
	bytes []byte
	trip  *trip
}

// admit parses a request, and reports whether it is to be carried out; one that is not
// has been answered. All that a request has to pass is here, so that no operation can
// forget a part of it.
func (s *serving) admit(r *request) bool {
	h, err := wire.ParseHeader(r.bytes)
	if err != nil {
		s.b.Reply(r.i, wire.Refusal(err))
		return false
	}
	h.Wait = min(h.Wait, s.longest)
	if s.b.Region != s.n.cfg.Region || h.Op == wire.OpExchange || h.Flags&wire.FlagAbroad != 0 {
		if refusal, err := s.n.regions.Border(s.b, &h, r.bytes, s.now); refusal != nil || err != nil {
			s.b.Reply(r.i, refusal)
			return false
		}
	}
	r.h = h
	if h.Flags&wire.FlagTraced != 0 {
		r.trip, r.bytes = s.n.arrive(s.b, h, r.bytes)
	}
	// What gives back is sent once only. If this node did not carry it out, its units would stay
	// spent.
	decides := h.Op.Checks() && !h.Op.GivesBack()
	switch {
	case decides && h.Wait > 0 && s.waited > overdueAfter(h.Wait):
		// The asker waits no more, and has been answered by others. What is told
		// waits for nothing, and is carried out.
		s.n.meters.Overdue.Add(uint64(h.Asks))
	case s.blind || s.fenced && decides:
	default:
		return true
	}
	s.unreached(r)
	return false
}

// overdueAfter returns how long a request may wait here before this node drops it. The asker
// gives up after wait, and does not count time in which its process does not run. While this node
// does not run, the asker may not run either, so the request may wait for twice as long. If a
// grant arrives after the asker has given up, the asker refunds it.
func overdueAfter(wait time.Duration) time.Duration { return 2 * wait }

// passOn reports whether a request is kept until authority has come, or goes on to
// another member.
func (s *serving) passOn(r *request) bool {
	n, v, from := s.n, s.v, s.from
	if v.Awaits(r.h, r.bytes) && n.await(from, r.h, r.bytes, r.trip, s.b.Later(r.i)) {
		return true
	}
	member, flags := v.Onward(r.h, r.bytes, n.env.SteadyAt(s.now))
	if member < 0 {
		return false
	}
	h := r.h
	h.Flags = flags
	if hop := v.Next[member]; hop >= 0 && hop != member && v.Members[hop].Name == s.b.From {
		// Each of the two takes the other for the way there. The one that is asked to stand in
		// does so, as the asker has not reached that one either: else the asker
		// would stand in, and so would this node for asks of its own.
		if r.bytes[1]&wire.FlagStandIn != 0 && v.Stays() && h.To == v.Hashes[v.Self] {
			s.reply(r, n.standsIn(v, r.bytes))
		} else {
			s.unreached(r)
		}
		return true
	}
	n.handOn(v, member, h, r.bytes, r.trip, s.b.Later(r.i), func(f func(context.Context)) bool { return n.serveApart(from, f) })
	return true
}

// told carries out what is no check, and reports whether a request was none.
func (s *serving) told(r *request) bool {
	n, body := s.n, r.bytes[wire.HeaderBytes:]
	switch r.h.Op {
	case wire.OpPublish:
		s.taken(r, n.published.Serve(body, s.b.From))
	case wire.OpDeclare:
		s.taken(r, n.registry.Compare(body, s.b.From, n.env.Steady()))
	case wire.OpCompare:
		n.serveCompare(s.from, body, s.b.Later(r.i))
	case wire.OpTop:
		s.answerApart(r, n.clients.survey.AppendTop)
	case wire.OpTotals:
		s.answerApart(r, n.clients.survey.AppendTotals)
	case wire.OpRenew:
		s.answer(r, n.clients.holds.ServeRenew)
	case wire.OpHeld:
		s.answer(r, n.clients.holds.ServeHeld)
	case wire.OpSince:
		s.answer(r, n.epochs.Serve)
	case wire.OpExchange:
		n.regions.Serve(s.from, r.bytes, r.h, s.b.Later(r.i))
	case wire.OpLocate:
		s.x.answer = n.handover.ServeLocate(body, s.x.answer[:0])
		s.v = n.handover.View()
		s.b.Reply(r.i, s.x.answer)
	case wire.OpStream:
		s.x.answer = n.handover.ServeFrame(body, s.now, s.x.answer[:0])
		s.v = n.handover.View() // authority may have come with it
		s.b.Reply(r.i, s.x.answer)
	default:
		return false
	}
	return true
}

// decide carries out a check on what is held here.
func (s *serving) decide(r *request) {
	switch {
	case s.v.Declines(r.h, r.bytes):
		s.unreached(r)
		return
	case wire.OfHolds(r.h, r.bytes):
		s.hold(r)
		return
	case r.h.Op == wire.OpReset && !resetsInTime(r.h, r.bytes, s.now):
		s.b.Reply(r.i, nil)
		return
	}
	answer, err := s.n.owner.Answer(s.v, r.h, r.bytes, s.x.answer[:0], s.now)
	if err != nil {
		s.reply(r, nil)
		return
	}
	s.x.answer = answer
	s.n.meters.Served.Add(uint64(r.h.Asks))
	s.reply(r, answer)
}

// hold carries out an ask for a hold, once this node knows what is held.
func (s *serving) hold(r *request) {
	n := s.n
	a, err := wire.ParseAsk(r.bytes, 0, new(bucket.Limit))
	if err != nil {
		s.reply(r, nil)
		return
	}
	as := s.v.Standing(a.ID)
	if r.h.Op == wire.OpRelease || n.clients.holds.Knows(s.v, as, r.h.Op, &a) {
		s.x.answer = n.clients.holds.Answer(s.v, r.h, &a, s.x.answer[:0], n.env.SteadyAt(s.now))
		n.meters.Served.Add(1)
		s.reply(r, s.x.answer)
		return
	}
	kept, h, request, trip, from, answer := a, r.h, append([]byte(nil), r.bytes...), r.trip, s.from, s.b.Later(r.i)
	if !n.serveApart(from, func(ctx context.Context) {
		n.clients.holds.Learn(ctx, as, h.Op, &kept)
		n.goOn(ctx, n.handover.View(), h, request, trip, answer)
	}) {
		trip.later(h, request, answer)(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// answer answers what is no check by what f appends to the header of an answer.
func (s *serving) answer(r *request, f func(message, dst []byte) ([]byte, error)) {
	answer, err := f(r.bytes[wire.HeaderBytes:], wire.AppendAnswer(s.x.answer[:0], wire.Done, 0))
	if err != nil {
		s.b.Reply(r.i, nil)
		return
	}
	s.x.answer = answer
	s.b.Reply(r.i, answer)
}

// answerApart answers a question that is no more than its op, apart from checks.
func (s *serving) answerApart(r *request, f func(b []byte) []byte) {
	if len(r.bytes) > wire.HeaderBytes {
		s.b.Reply(r.i, nil)
		return
	}
	s.n.answerApart(s.from, s.b.Later(r.i), f)
}

// taken answers what was told, which has nothing to say unless it was refused.
func (s *serving) taken(r *request, err error) {
	if err != nil {
		s.b.Reply(r.i, nil)
		return
	}
	s.b.Reply(r.i, wire.AppendAnswer(s.x.answer[:0], wire.Done, 0))
}

// unreached hands a request back.
func (s *serving) unreached(r *request) {
	s.reply(r, wire.AppendAnswer(s.x.answer[:0], wire.Unreached, 0))
}

// reply answers a request that may be traced.
func (s *serving) reply(r *request, answer []byte) {
	r.trip.answered(r.h, r.bytes, answer)
	s.b.Reply(r.i, answer)
}

// handOn sends a request on to a member, or towards it, and brings its answer
// back. It takes three quarters of the asker's wait at most, so that the asker
// hears of a failure in time.
//
// A refund that was sent is not carried out here as well, whatever the answer: the
// member may have done it, or may yet do it, and unlike a take or a debit, which Late
// refunds, nothing would undo the second one. That a way ended without an answer
// (wire.Unreached) may mean no more than that the answer was late further on.
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
		wire.ClearWant(onward, i) // it would not know whose it is
	}
	peer := v.Members[hop].Peer
	n.meters.Passed.Add(uint64(h.Asks))
	if h.Wait == 0 {
		peer.Tell(onward)
		answer(unreached)
		return
	}
	started := start(func(ctx context.Context) {
		begun := n.env.Now()
		got, err := peer.Ask(ctx, onward, nil, h.Wait)
		trip.hopped(HopEvent{To: v.Members[hop].Name, Err: err, Took: time.Duration(n.env.Now() - begun)})
		failed := err != nil || len(got) == 0 || wire.Status(got[0]) == wire.Unreached
		after := n.viewAfter(v, member, err)
		switch {
		case stands && after.Stays() && failed && (h.Op != wire.OpRefund || check.IsUnsent(err)):
			got = n.standsIn(after, onward)
		case err != nil:
			got = unreached
		case passes:
			wire.UnmarkStoodIn(h.Op, got)
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
	answer, err := n.answer(v, h, request, n.env.Now())
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
	if err != nil || !h.Op.GrantsUnits() && !h.Op.LearnsLeases() {
		return
	}
	if s, err := wire.ParseAnswer(answer, h.Op, int(h.Asks)); err != nil || s != wire.Done {
		return
	}
	var (
		taken  []wire.Ask
		units  uint64
		denied bool
	)
	for i := range int(h.Asks) {
		a, err := wire.ParseAsk(request, i, new(bucket.Limit))
		r := wire.ParseResult(answer, h.Op, i)
		if err == nil && h.Op.LearnsLeases() && h.Hops == wire.MaxHops {
			in.n.asker.Learn(&a, &r, h.To, in.n.asker.SentAt(a.Take.Sent))
		}
		switch {
		case err != nil:
			return
		case !h.Op.GrantsUnits():
		case !r.Allowed:
			denied = denied || !a.Shadow
		case h.Op == wire.OpHold:
			in.n.clients.holds.Late(from, h.To, &a)
		default:
			if h.Op == wire.OpWait {
				a.Units = r.Granted
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

// serveApart runs f in a goroutine that Close ends, on behalf of a sender. It reports
// false if too much goes on for that one, or in all.
func (n *Node) serveApart(from env.Sender, f func(context.Context)) bool {
	if _, known := n.handover.View().Named[view.NameHash(from.Name)]; !known || from.Region != n.cfg.Region {
		from.Name = ""
	}
	return n.env.TryFor(from, f)
}

// answerApart answers a sender by what f appends to the header of an answer, apart from
// checks.
func (n *Node) answerApart(from env.Sender, answer cluster.Later, f func(b []byte) []byte) {
	started := n.serveApart(from, func(context.Context) { answer(f(wire.AppendAnswer(nil, wire.Done, 0))) })
	if !started {
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// longestWait bounds how long this node works on a request, whatever its sender says:
// as long as it would wait itself, for a check or for what members ask each other.
func (c *Config) longestWait() time.Duration {
	return max(c.Timeout+check.Extension(c.Timeout, c.Timeout), stats.TopWait, handover.LocateWait)
}

package check

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// request is a request of another member, with the way to answer it.
type request struct {
	from  env.Sender
	h     wire.Header
	bytes []byte
	trip  *trip     // nil if the request is not traced
	x     *exchange // x.answer is the buffer of the response

	batch *cluster.Batch // sends the answer while the batch is served
	index int            // index of the request in batch

	// A request that must wait has its own goroutine, and is answered by calling later.
	later   cluster.Later
	life    context.Context
	learned bool // set after this node has asked other members for their holds
}

// reply answers the request. An empty answer refuses a malformed request, or a reset with a number
// in the future.
func (r *request) reply(answer []byte) {
	r.trip.answered(r.h, r.bytes, answer)
	if r.later != nil {
		r.later(answer)
		return
	}
	r.batch.Reply(r.index, answer)
}

// handBack answers that this node cannot execute the request.
func (r *request) handBack() {
	r.x.answer = wire.AppendResponse(r.x.answer[:0], wire.Unreached, 0)
	r.reply(r.x.answer)
}

// detach runs f in a goroutine with a request that outlives its batch. It reports false if too many
// goroutines run.
func (c *Checks) detach(r *request, f func(ctx context.Context, r *request)) bool {
	if r.later != nil {
		f(r.life, r) // r has a goroutine already
		return true
	}
	kept := *r
	kept.bytes, kept.x, kept.later, kept.batch = slices.Clone(r.bytes), new(exchange), r.batch.Defer(r.index), nil
	return c.Env.RunFor(kept.from, func(life context.Context) {
		kept.life = life
		f(life, &kept)
	})
}

// Serve handles the requests of another member, or of a node of another region. It reads the clock once
// for the whole batch, and prefetches the counts of up to 64 takes, so that their cache misses overlap.
func (c *Checks) Serve(b *cluster.Batch) {
	x := c.exchanges.Get().(*exchange)
	defer c.exchanges.Put(x)
	v, now := c.Env.View(), c.Env.Now()
	s := serving{
		checks: c, longest: LongestWait(c.Timeout),
		starting: v.Self < 0 && c.Handover.Starting(), fenced: c.Env.IsFenced(v, now),
	}
	if !b.Read.IsZero() {
		s.waited = time.Since(b.Read)
	}
	c.Owner.Prefetch(wire.AppendIDs(b.Requests, new([64]bucket.ID)[:0]))
	from := env.Sender{Region: b.Region, Name: b.From}
	r := &x.served
	for i, bytes := range b.Requests {
		*r = request{from: from, bytes: bytes, x: x, batch: b, index: i}
		if s.admit(r, now) && !c.keep(v, r) {
			v = c.handle(v, now, r)
		}
	}
	*r = request{}
}

// serving holds the values that are the same for all requests of a batch.
type serving struct {
	checks   *Checks
	longest  time.Duration // bounds the wait of each request
	waited   time.Duration // time since the batch was read
	starting bool          // whether this node does not know the members yet
	fenced   bool
}

// admit parses a request, and reports whether this node may handle it. If not, admit has answered
// the request. All requests pass admit, so that its conditions hold for every operation.
func (s *serving) admit(r *request, now int64) bool {
	c := s.checks
	h, err := wire.ParseHeader(r.bytes)
	if err != nil {
		r.batch.Reply(r.index, wire.Refusal(err))
		return false
	}
	h.Wait = min(h.Wait, s.longest)
	if r.from.Region != c.Env.Region || h.Op == wire.OpExchange || h.Flags&wire.FlagAbroad != 0 {
		if refusal, err := c.Regions.Border(r.batch, &h, r.bytes, now); refusal != nil || err != nil {
			r.batch.Reply(r.index, refusal)
			return false
		}
	}
	r.h = h
	if h.Flags&wire.FlagTraced != 0 {
		r.trip, r.bytes = c.arrive(r.batch, r.bytes)
	}
	// A request that returns units is sent only once. If this node did not execute the request, the
	// units would remain spent.
	decides := h.Op.Checks() && !h.Op.GivesBack()
	switch {
	case decides && h.Wait > 0 && s.waited > overdueAfter(h.Wait):
		c.Meters.Overdue.Add(uint64(h.Asks))
	case s.starting || s.fenced && decides:
	default:
		return true
	}
	r.handBack()
	return false
}

// overdueAfter returns how long a request may wait here before this node drops the request. The
// asker gives up after the time wait, but does not count the time in which its process does not run. While
// this node does not run, the asker may not run either, so the request may wait here for twice as
// long. If a grant arrives after the asker has given up, the asker refunds the grant.
func overdueAfter(wait time.Duration) time.Duration { return 2 * wait }

// handle executes a request, or passes the request on. It returns the present view, which a request
// may have replaced.
func (c *Checks) handle(v *view.View, now int64, r *request) *view.View {
	if member, flags := v.Onward(r.h, r.bytes, c.Env.MonotonicAt(now)); member >= 0 {
		c.passOn(v, member, flags, now, r)
		return v
	}
	switch {
	case r.h.Op.AskBytes() == 0:
		c.handleMessage(now, r)
		return c.Env.View() // the message may have transferred authority to this node
	case v.Declines(r.h, r.bytes):
		r.handBack()
	case r.h.Op == wire.OpReset && !areResetsInTime(r.h, r.bytes, now):
		r.reply(nil)
	default:
		c.executeRequest(v, now, r)
	}
	return v
}

// executeRequest executes a request on counts or holds of this node.
func (c *Checks) executeRequest(v *view.View, now int64, r *request) {
	answer, unknown, err := c.answer(v, r.h, r.bytes, r.x.answer[:0], now)
	switch {
	case err != nil:
		r.reply(nil)
	case unknown && !r.learned:
		if !c.learnAndHandle(v, r) {
			r.handBack()
		}
	default:
		r.x.answer = answer
		c.Meters.Served.Add(uint64(r.h.Asks))
		r.reply(answer)
	}
}

// answer executes a request on counts or holds of this node, and appends the response to dst.
// unknown is the Unknown of a result about a hold.
func (c *Checks) answer(v *view.View, h wire.Header, bytes, dst []byte, now int64) (answer []byte, unknown bool, err error) {
	if !wire.IsAboutHold(h, bytes) {
		answer, err = c.Owner.Answer(v, h, bytes, dst, now)
		return answer, false, err
	}
	a, err := wire.ParseAsk(bytes, 0, new(bucket.Limit))
	if err != nil {
		return nil, false, err
	}
	var result wire.Result
	c.execute(v, v.Standing(a.ID), h.Op, &a, now, &result)
	return result.Append(h.Op, wire.AppendResponse(dst, wire.Done, 1)), result.Unknown, nil
}

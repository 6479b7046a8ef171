package queue

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Tick is how long a queue waits before it notifies the owner that waiters have left, so that one
// request covers all waiters that leave in that time. If an ask could not start, the queue waits as
// long before the next ask.
const Tick = 20 * time.Millisecond

// leaky is the part of a queue for units of a LeakyBucket. The first waiter drives the queue:
// it asks the owner for the units of the next waiters, and each waiter is served when its
// turn comes. No unit is reserved for a particular waiter. If a waiter leaves, later waiters
// move up.
type leaky struct {
	name     string // the name of the limit
	limit    bucket.Limit
	ticket   uint64        // identifies the queue for the owner
	joins    *list.Element // element of the first waiter without a place; nil if there is none
	total    int64         // units of all waiters
	placed   int64         // units of the waiters that have a place
	grants   []grant       // grants that are not used up, in the order of their turns
	granted  int64         // units of all grants
	askAt    int64         // the earliest time of the next ask, by the monotonic clock
	asking   bool          // an ask is under way
	notified bool          // the owner may have a record of this node
	changed  bool          // waiters have left since the last request to the owner
	last     wire.Result   // the last response of the owner
	trip     time.Duration // the round trip of the last response
	banned   int64         // monotonic time at which a ban or a pause ends, as the owner stated last; 0 if there is none
}

// grant is the result of a request for units. turn is the time from which its next unit may be
// used.
type grant struct {
	units int64
	turn  int64 // monotonic time
	r     wire.Result
}

// outcome is the result of a call of Wait.
type outcome struct {
	r   wire.Result
	err error
}

// Wait waits for the turn of the units of the ask a, and returns the result of their grant. The error is
// ErrFull, env.ErrClosed or the error of ctx. If the turn would come after the deadline of ctx, Wait returns
// context.DeadlineExceeded early. With an error, the result is a denial.
func (l *Queues) Wait(ctx context.Context, a *wire.Ask) (r wire.Result, err error) {
	w := &waiter{units: a.Units, first: make(chan struct{}, 1), served: make(chan outcome, 1)}
	w.deadline, _ = ctx.Deadline()
	x := l.join(a, w)
	for {
		select {
		case o := <-w.served:
			return o.r, o.err
		case <-w.first:
			l.drive(ctx, x, w, a)
		case <-ctx.Done():
			return l.quit(x, w, a, ctx.Err())
		case <-l.cfg.Env.Done():
			return l.quit(x, w, a, env.ErrClosed)
		}
	}
}

// join adds a waiter to the queue of its limit.
func (l *Queues) join(a *wire.Ask, w *waiter) *queue {
	s := l.shard(a.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.arrived = l.cfg.Env.Monotonic() // under the lock, so that waiters are in the order of arrival
	x := s.enter(keyOf(a), w)
	if x.leaky == nil {
		x.leaky = &leaky{name: a.Name, limit: *a.Limit, ticket: rand.Uint64()}
	}
	x.total += w.units
	if x.joins == nil {
		x.joins = w.element
	}
	return x
}

func keyOf(a *wire.Ask) key { return key{a.ID.Hi, a.ID.Lo, wire.NumbersHash(a.Limit)} }

// drop removes a waiter from the queue, and subtracts its units from the totals.
func (x *queue) drop(w *waiter) {
	if x.joins == w.element {
		x.joins = w.element.Next()
	}
	x.remove(w)
	x.total -= w.units
	if w.place {
		x.placed -= w.units
	}
}

// quit removes a waiter that ends with err. If the waiter was served just now, quit returns its
// outcome instead.
func (l *Queues) quit(x *queue, w *waiter, a *wire.Ask, err error) (wire.Result, error) {
	x.shard.mu.Lock()
	defer x.shard.mu.Unlock()
	if w.element == nil {
		o := <-w.served
		return o.r, o.err
	}
	x.drop(w)
	x.changed = true
	l.passOrRefund(x, a)
	denial := x.last
	denial.Allowed = false
	return denial, err
}

// passOrRefund gives the turn to the first waiter. If no waiter is left, passOrRefund refunds the
// units that were granted but not used, and notifies the owner.
func (l *Queues) passOrRefund(x *queue, a *wire.Ask) {
	if !x.passTurn() {
		return
	}
	for i := len(x.grants) - 1; i >= 0; i-- { // in the reverse order of the grants, as OnlyLast requires
		back := a.WithReceipt(&x.grants[i].r)
		back.Units = x.grants[i].units
		back.Spent.OnlyLast = true
		l.cfg.Checks.Send(wire.OpRefund, &back)
	}
	x.grants, x.granted = nil, 0
	if x.notified && !x.asking {
		x.notified = false
		leaves := *a
		leaves.Units, leaves.Wait = 0, wire.Wait{Ticket: x.ticket}
		l.cfg.Checks.Send(wire.OpWait, &leaves)
	}
}

// drive serves the queue for as long as w is its first waiter.
func (l *Queues) drive(ctx context.Context, x *queue, w *waiter, a *wire.Ask) {
	s := x.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now := l.cfg.Env.Monotonic()
		x.serve(now)
		if x.head() != w {
			l.passOrRefund(x, a)
			return
		}
		units, wait := x.nextAsk(now)
		if wait <= 0 && l.askFor(ctx, x, a, units, now) {
			wait = wire.MaxAskPause // the response wakes the driver earlier
		} else if wait <= 0 {
			wait = Tick // too many goroutines run
		}
		s.mu.Unlock()
		ended := l.await(ctx, wait, w.first)
		s.mu.Lock()
		if ended {
			return
		}
	}
}

// askFor asks the owner for units, and for places for the waiters that have none. The response is
// applied to the queue even if its first waiter has left. askFor returns false if the node has too
// many goroutines.
func (l *Queues) askFor(ctx context.Context, x *queue, a *wire.Ask, units, now int64) bool {
	asked, last, ctx := *a, x.waiters.Back().Value.(*waiter).arrived, context.WithoutCancel(ctx)
	asked.Units, asked.Wait = units, x.request(now)
	started := l.cfg.Env.Try(func(context.Context) {
		var r wire.Result
		err := l.cfg.Checks.Do(ctx, wire.OpWait, &asked, &r)
		x.shard.mu.Lock()
		defer x.shard.mu.Unlock()
		if x.asking = false; err == nil {
			x.applyResponse(units, &r, now, last, l.cfg.Env.Monotonic())
		}
		l.passOrRefund(x, &asked)
	})
	if started {
		x.asking, x.notified, x.changed = true, true, false
	} else {
		x.askAt = now + int64(Tick)
	}
	return started
}

// await waits for the given time, or until woken is signaled. It reports whether ctx or the node
// has ended.
func (l *Queues) await(ctx context.Context, wait time.Duration, woken <-chan struct{}) (ended bool) {
	select {
	case <-time.After(wait):
	case <-woken:
	case <-ctx.Done():
		return true
	case <-l.cfg.Env.Done():
		return true
	}
	return false
}

// end removes a waiter from the queue and sends the outcome to the waiter.
func (x *queue) end(w *waiter, o outcome) {
	x.drop(w)
	w.served <- o
	env.Signal(w.first) // the waiter may be driving the queue
}

// refuse ends the wait of w with the error err. The owner may have counted the units of the waiter as waiting, so
// the queue notifies the owner.
func (x *queue) refuse(w *waiter, r *wire.Result, err error) {
	denial := *r
	denial.Allowed = false
	x.changed = true
	x.end(w, outcome{denial, err})
}

// serve ends the wait of the first waiters, as long as a grant covers their units and the
// time of the grant has come.
func (x *queue) serve(now int64) {
	for w := x.head(); w != nil && w.units <= x.granted && x.grants[0].turn <= now; w = x.head() {
		r := x.grants[0].r
		x.granted -= w.units
		for left := w.units; left > 0; {
			g := &x.grants[0]
			used := min(left, g.units)
			left -= used
			g.units -= used
			g.turn += int64(x.service(&g.r, used))
			if g.units == 0 {
				x.grants = x.grants[1:]
			}
		}
		x.end(w, outcome{r, nil})
	}
}

// request returns the part of an ask that describes the waiters without a grant.
func (x *queue) request(now int64) (q wire.Wait) {
	q.Ticket = x.ticket
	q.Waiting = uint32(min(max(0, x.total-x.granted), math.MaxUint32))
	covered := x.granted
	for e := x.waiters.Front(); e != nil; e = e.Next() { // visits the waiters with grants and the next waiter
		w := e.Value.(*waiter)
		if covered -= w.units; covered < 0 {
			q.Age = time.Duration(now - w.arrived)
			break
		}
	}
	return q
}

// nextAsk returns the units of the next ask, and the time until the ask or until the turn of the
// first waiter, whichever is earlier. An ask is for the units of the waiters whose turns are within
// half of QueueAhead or within two round trips, whichever is longer, but at least for the first
// waiter, and at most for wire.MaxAsks waiters. If a waiter has no place yet, the queue asks at once.
func (x *queue) nextAsk(now int64) (units int64, wait time.Duration) {
	wait = wire.MaxAskPause
	if x.asking {
		if x.granted >= x.head().units {
			wait = min(wait, time.Duration(x.grants[0].turn-now))
		}
		return 0, max(wait, 1)
	}
	if x.changed {
		x.askAt = min(x.askAt, now+int64(Tick))
		wait = time.Duration(x.askAt - now)
	}
	first := x.head().units
	if x.granted >= first {
		wait = min(wait, time.Duration(x.grants[0].turn-now))
	}
	want := int64(0)
	for e, few := x.waiters.Front(), wire.MaxAsks; e != nil && few > 0; e, few = e.Next(), few-1 {
		w := e.Value.(*waiter)
		if want > 0 && x.service(&x.last, want+w.units) > max(wire.QueueAhead/2, 2*x.trip) {
			break
		}
		want += w.units
	}
	if want > x.granted {
		units = want - x.granted
		wait = min(wait, time.Duration(x.askAt-now))
	}
	if x.joins != nil {
		if now < x.askAt {
			units = 0
		}
		return units, 0
	}
	return units, max(wait, 0)
}

// applyResponse applies the response r to an ask for units. The ask was sent at the time sent, and
// covers the waiters that had arrived at the time arrivedBy. RetryAfter counts from the arrival of
// the ask at the owner. The next ask takes as long to arrive, so RetryAfter is added to sent.
func (x *queue) applyResponse(units int64, r *wire.Result, sent, arrivedBy, now int64) {
	// In an outage only the waiters on this node fill the queue: the owner is not reached, and may be back at any time.
	outage := r.Source == wire.FailedClosed || r.Source.IsShare()
	switch {
	case r.Banned:
		x.banned = sent + int64(r.RetryAfter)
	case !outage:
		x.banned = 0
	case r.Allowed && now < x.banned:
		denial := *r // the member that has decided lacks the count of the ban
		denial.Allowed, denial.RetryAfter = false, time.Duration(x.banned-now)
		r = &denial
	}
	x.last, x.trip = *r, time.Duration(now-sent)
	if r.Allowed {
		units = r.Granted
	}
	switch {
	case r.Allowed:
		x.grants = append(x.grants, grant{units, now + int64(max(0, r.ResetAfter-x.service(r, units))), *r})
		x.granted += units
		x.askAt = now
	case outage:
		x.askAt = now + int64(min(max(r.RetryAfter, 1), view.OutageRetry))
	default: // a ban or a pause may be released before it ends
		x.askAt = sent + int64(min(max(r.RetryAfter, 1), wire.MaxAskPause))
	}
	room := r.Remaining + x.granted
	if outage {
		room = x.limit.Capacity()
	}
	one := max(x.service(r, 1), 1)
	used := int64((r.ResetAfter + one - 1) / one)
	elsewhere := max(0, r.Limit-r.Remaining-used)
	for e := x.joins; e != nil && e.Value.(*waiter).arrived <= arrivedBy; e = x.joins {
		w := e.Value.(*waiter)
		wait := r.ResetAfter + x.service(r, elsewhere+max(0, x.placed-x.granted))
		switch {
		case x.placed+w.units > room:
			x.refuse(w, r, fmt.Errorf("%w: limit %q has its Burst of %d units waiting; the next place is free in %v", ErrFull, x.name, x.limit.Capacity(), one))
		case !outage && x.placed >= x.granted && !w.deadline.IsZero() && time.Until(w.deadline) < wait:
			x.refuse(w, r, context.DeadlineExceeded)
		default:
			w.place = true
			x.placed += w.units
			x.joins = e.Next()
		}
	}
}

// service returns the time that the rate of the limit needs for units, rounded down. If r was
// decided within a share of the limit, the rate is that of the share.
func (x *queue) service(r *wire.Result, units int64) time.Duration {
	rate := x.limit.Rate
	if whole := x.limit.Capacity(); r.Limit > 0 && r.Limit < whole {
		hi, lo := bits.Mul64(uint64(rate), uint64(r.Limit))
		q, _ := bits.Div64(hi, lo, uint64(whole))
		rate = int64(q) + 1 // rounded up, so that no waiter is served before its turn
	}
	return wire.ServiceOf(rate, x.limit.Per, units)
}

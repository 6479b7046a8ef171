package queue

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// key identifies a line: the ID and the numbers of its limit.
type key struct{ hi, lo, numbers uint64 }

// line is the waiters of one key. The first waiter drives the line (Queues.drive): it asks the owner,
// and serves the other waiters. The caller of a method must hold the lock of the shard.
type line struct {
	shard   *shard
	of      key
	name    string // of the limit, and
	limit   bucket.Limit
	full    error         // the error of a waiter that finds no place
	ticket  uint64        // names the line to the owner
	waiters list.List     // of *waiter, in order of arrival; those with a place come first
	joins   *list.Element // the first waiter without a place; nil if there is none
	total   int64         // units of all waiters
	placed  int64         // units of the waiters that have a place
	grants  []grant       // in order of their turns
	granted int64         // units of all grants
	askAt   int64         // the earliest time of the next ask, by the monotonic clock
	asking  bool          // an ask is under way
	told    bool          // the owner counts this line
	changed bool          // waiters have left since the last request to the owner
	last    wire.Result   // the last response of the owner
	trip    time.Duration // the round trip of the last response
}

// grant is the result of a request for units. The units may be used from the time at.
type grant struct {
	units int64
	at    int64 // by the monotonic clock
	r     wire.Result
}

// waiter is one call of Wait.
type waiter struct {
	units   int64
	arrived int64
	at      *list.Element // nil once it is served or refused
	place   bool          // the owner has said that there is room for it
	by      time.Time     // its deadline; zero if it has none
	served  chan outcome  // has room for one
	first   chan struct{} // it is to drive the line; has room for one
}

// outcome is the result of a call of Wait.
type outcome struct {
	r   wire.Result
	err error
}

// head is the first waiter, nil if there is none.
func (x *line) head() *waiter {
	if e := x.waiters.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// remove removes a waiter from the line.
func (x *line) remove(w *waiter) {
	if x.joins == w.at {
		x.joins = w.at.Next()
	}
	x.waiters.Remove(w.at)
	w.at = nil
	x.total -= w.units
	if w.place {
		x.placed -= w.units
	}
}

// end removes a waiter from the line and sends the outcome to it.
func (x *line) end(w *waiter, o outcome) {
	x.remove(w)
	w.served <- o
	env.Signal(w.first) // it may drive the line
}

// refuse ends a waiter with an error. The owner may have counted its units.
func (x *line) refuse(w *waiter, r *wire.Result, why error) {
	denial := *r
	denial.Allowed = false
	x.changed = true
	x.end(w, outcome{denial, why})
}

// serve ends the wait of the first waiters, as long as a grant covers their units and its time has come.
func (x *line) serve(now int64) {
	for w := x.head(); w != nil && w.units <= x.granted && x.grants[0].at <= now; w = x.head() {
		r := x.grants[0].r
		x.granted -= w.units
		for left := w.units; left > 0; {
			g := &x.grants[0]
			used := min(left, g.units)
			left -= used
			g.units -= used
			g.at += int64(x.service(&g.r, used))
			if g.units == 0 {
				x.grants = x.grants[1:]
			}
		}
		x.end(w, outcome{r, nil})
	}
}

// request returns the part of an ask that describes the waiters without a grant.
func (x *line) request(now int64) (q wire.Wait) {
	q.Ticket = x.ticket
	q.Waiting = uint32(min(max(0, x.total-x.granted), math.MaxUint32))
	covered := x.granted
	for e := x.waiters.Front(); e != nil; e = e.Next() { // at most as many as have grants, and one more
		w := e.Value.(*waiter)
		if covered -= w.units; covered < 0 {
			q.Age = time.Duration(now - w.arrived)
			break
		}
	}
	return q
}

// next returns the time until the next ask, and its units: those that the owner may serve within half of
// QueueAhead, or until the response to the ask after this one. If a waiter has no place, the line asks at
// once.
func (x *line) next(now int64) (units int64, wait time.Duration) {
	wait = wire.LineAsks
	if x.asking {
		if x.granted >= x.head().units {
			wait = min(wait, time.Duration(x.grants[0].at-now))
		}
		return 0, max(wait, 1)
	}
	if x.changed {
		x.askAt = min(x.askAt, now+int64(Tick))
		wait = time.Duration(x.askAt - now)
	}
	first := x.head().units
	if x.granted >= first {
		wait = min(wait, time.Duration(x.grants[0].at-now))
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

// answered applies the response r to an ask for units. The ask was sent at the time sent, and covers the
// waiters that had arrived at the time by. RetryAfter counts from the time at which the owner got the ask;
// the next ask takes as long to get there.
func (x *line) answered(units int64, r *wire.Result, sent, by, now int64) {
	x.last, x.trip = *r, time.Duration(now-sent)
	if r.Allowed {
		units = r.Granted
	}
	// In an outage no queue is full: the owner is not reached, and may be back at any time.
	outage := r.Source == wire.FailedClosed || r.Source.IsShare()
	switch {
	case r.Allowed:
		x.grants = append(x.grants, grant{units, now + int64(max(0, r.ResetAfter-x.service(r, units))), *r})
		x.granted += units
		x.askAt = now
	case outage:
		x.askAt = now + int64(min(max(r.RetryAfter, 1), view.OutageRetry))
	default:
		x.askAt = sent + int64(max(r.RetryAfter, 1))
	}
	room := r.Remaining + x.granted
	if outage {
		room = x.limit.Capacity()
	}
	one := max(x.service(r, 1), 1)
	used := int64((r.ResetAfter + one - 1) / one)
	elsewhere := max(0, r.Limit-r.Remaining-used)
	for e := x.joins; e != nil && e.Value.(*waiter).arrived <= by; e = x.joins {
		w := e.Value.(*waiter)
		wait := r.ResetAfter + x.service(r, elsewhere+max(0, x.placed-x.granted))
		switch {
		case x.placed+w.units > room:
			x.refuse(w, r, fmt.Errorf("%w: limit %q has its Burst of %d units waiting; the next place is free in %v", x.full, x.name, x.limit.Capacity(), one))
		case !outage && x.placed >= x.granted && !w.by.IsZero() && time.Until(w.by) < wait:
			x.refuse(w, r, context.DeadlineExceeded)
		default:
			w.place = true
			x.placed += w.units
			x.joins = e.Next()
		}
	}
}

// service returns the time that the limit needs for units at its rate, rounded down. If the owner has a
// share of the limit, the rate is that of the share.
func (x *line) service(r *wire.Result, units int64) time.Duration {
	rate := x.limit.Rate
	if whole := x.limit.Capacity(); r.Limit > 0 && r.Limit < whole {
		hi, lo := bits.Mul64(uint64(rate), uint64(r.Limit))
		q, _ := bits.Div64(hi, lo, uint64(whole))
		rate = int64(q) + 1 // rounded up, so that no waiter is served before its turn
	}
	return wire.ServiceOf(rate, x.limit.Per, units)
}

package weir

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// waiting is the lines of this node: the waiters of each key of a LeakyBucket, in order of
// arrival. A waiter holds nothing at the owner. The first of a line asks there for all, and
// what the line is granted goes to its first waiter when its turn comes: one that left has
// taken nothing along.
type waiting struct {
	shards [owner.QueueShards]waitingShard
}

// waitingShard has the lines of the ids that share a lock. What is done under it does not
// grow with the waiters.
type waitingShard struct {
	mu sync.Mutex
	of map[lineOf]*line
}

// lineOf is what the waiters of a line have in common.
type lineOf struct{ hi, lo, numbers uint64 }

// line is the waiters of one key. The first of them drives it (drive): it asks the owner,
// and serves the others. The shard's lock is held for all of it.
type line struct {
	shard   *waitingShard
	of      lineOf
	ticket  uint64
	waiters list.List     // of *waiter, in order of arrival: first those that have a place
	joins   *list.Element // the first that has no place yet; nil if there is none
	total   int64         // units of all
	placed  int64         // units of those that have a place
	grants  []grant       // in order of their turns
	granted int64         // units of all grants
	askAt   int64         // not before, by the steady clock
	asking  bool          // an ask is under way
	told    bool          // the owner knows that something waits
	changed bool          // less waits than the owner was told
	last    wire.Result   // what the owner has answered last
	trip    time.Duration // how long that took
}

// grant is units that the owner has granted, from a time on.
type grant struct {
	units int64
	at    int64 // by the steady clock
	r     wire.Result
}

// waiter is one Wait.
type waiter struct {
	units   int64
	arrived int64
	at      *list.Element // nil once it is served or refused
	place   bool          // the owner has said that there is room for it
	by      time.Time     // its deadline; zero if it has none
	served  chan outcome  // has room for one
	first   chan struct{} // it is to drive the line; has room for one
}

// outcome is what became of a waiter.
type outcome struct {
	r   wire.Result
	err error
}

// queueTick bounds how often a line tells the owner that waiters have left.
const queueTick = 20 * time.Millisecond

// join has a Wait wait for its turn, and returns what it was granted.
func (l *Limiter) join(ctx context.Context, a *wire.Ask) (r wire.Result, err error) {
	n := l.node
	w := &waiter{units: a.Units, served: make(chan outcome, 1), first: make(chan struct{}, 1)}
	w.by, _ = ctx.Deadline()
	x := n.enter(a, w)
	for {
		select {
		case o := <-w.served:
			return o.r, o.err
		case <-w.first:
			l.drive(ctx, x, w, a)
		case <-ctx.Done():
			return l.quit(x, w, a, ctx.Err())
		case <-n.env.Done():
			return l.quit(x, w, a, ErrClosed)
		}
	}
}

// enter has a waiter join the line of what it asks for, which it begins if there is none.
func (n *Node) enter(a *wire.Ask, one *waiter) *line {
	s, of := &n.clients.waiting.shards[a.ID.Lo%owner.QueueShards], lineOf{a.ID.Hi, a.ID.Lo, wire.NumbersHash(a.Limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	one.arrived = n.env.Steady() // under the lock, so that a line is in order of it
	x := s.of[of]
	if x == nil {
		if s.of == nil {
			s.of = make(map[lineOf]*line)
		}
		x = &line{shard: s, of: of, ticket: rand.Uint64()}
		s.of[of] = x
	}
	one.at = x.waiters.PushBack(one)
	x.total += one.units
	if x.joins == nil {
		x.joins = one.at
	}
	env.Signal(x.head().first)
	return x
}

// head is the first waiter, nil if there is none.
func (x *line) head() *waiter {
	if e := x.waiters.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// remove takes a waiter out of the line.
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

// end takes a waiter out of the line and tells it what became of it.
func (x *line) end(w *waiter, o outcome) {
	x.remove(w)
	w.served <- o
	env.Signal(w.first) // it may drive the line
}

// refuse ends a waiter that the owner may have taken for one that waits.
func (x *line) refuse(w *waiter, r *wire.Result, why error) {
	denial := *r
	denial.Allowed = false
	x.changed = true
	x.end(w, outcome{denial, why})
}

// quit has a waiter leave, unless it was served just now.
func (l *Limiter) quit(x *line, w *waiter, a *wire.Ask, why error) (wire.Result, error) {
	x.shard.mu.Lock()
	defer x.shard.mu.Unlock()
	if w.at == nil {
		o := <-w.served
		return o.r, o.err
	}
	x.remove(w)
	x.changed = true
	l.pass(x, a)
	denial := x.last
	denial.Allowed = false
	return denial, why
}

// pass has the first of a line drive it, or ends the line where nobody waits: what was
// granted and nobody has got goes back.
func (l *Limiter) pass(x *line, a *wire.Ask) {
	if w := x.head(); w != nil {
		env.Signal(w.first)
		return
	}
	if x.shard.of[x.of] == x {
		delete(x.shard.of, x.of)
	}
	for i := len(x.grants) - 1; i >= 0; i-- { // the last first, as FlagOnlyLast wants it
		back := a.Taken(&x.grants[i].r)
		back.Units = x.grants[i].units
		l.node.tell(wire.OpRefund, wire.FlagOnlyLast, &back)
	}
	x.grants, x.granted = nil, 0
	if told := x.told; told && !x.asking {
		x.told = false
		leaves := *a
		leaves.Units, leaves.Receipt, leaves.ResetNumber = 0, owner.Queued{}.Pack(), x.ticket
		l.node.tell(wire.OpWait, 0, &leaves)
	}
}

// drive serves the line for as long as w is its first waiter.
func (l *Limiter) drive(ctx context.Context, x *line, w *waiter, a *wire.Ask) {
	n, s := l.node, x.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now := n.env.Steady()
		l.serve(x, now)
		if x.head() != w {
			l.pass(x, a)
			return
		}
		units, wait := l.next(x, now)
		if wait <= 0 && l.askFor(ctx, x, a, units, now) {
			wait = owner.LineAsks // until the answer wakes it
		} else if wait <= 0 {
			wait = queueTick // too much is under way
		}
		s.mu.Unlock()
		ended := n.awaitTurn(ctx, wait, w.first)
		s.mu.Lock()
		if ended {
			return
		}
	}
}

// askFor asks the owner for units and for places. The answer is the line's, also where its
// first waiter has left by then. It reports false if too much is under way.
func (l *Limiter) askFor(ctx context.Context, x *line, a *wire.Ask, units, now int64) bool {
	asked, last, ctx := *a, x.waiters.Back().Value.(*waiter).arrived, context.WithoutCancel(ctx)
	asked.Units, asked.Receipt, asked.ResetNumber = units, x.says(now).Pack(), x.ticket
	started := l.node.env.Try(func(context.Context) {
		var r wire.Result
		err := l.node.decide(ctx, wire.OpWait, 0, &asked, &r)
		x.shard.mu.Lock()
		defer x.shard.mu.Unlock()
		if x.asking = false; err == nil {
			l.answered(x, units, &r, now, last)
		}
		l.pass(x, &asked)
	})
	if started {
		x.asking, x.told, x.changed = true, true, false
	} else {
		x.askAt = now + int64(queueTick)
	}
	return started
}

// awaitTurn waits for so long, or until it is woken, and reports whether ctx or the node has
// ended.
func (n *Node) awaitTurn(ctx context.Context, wait time.Duration, woken <-chan struct{}) (ended bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
		return true
	case <-n.env.Done():
		return true
	}
	return false
}

// serve has waiters go whose turn has come.
func (l *Limiter) serve(x *line, now int64) {
	for w := x.head(); w != nil && w.units <= x.granted && x.grants[0].at <= now; w = x.head() {
		r := x.grants[0].r
		x.granted -= w.units
		for left := w.units; left > 0; {
			g := &x.grants[0]
			used := min(left, g.units)
			left -= used
			g.units -= used
			g.at += int64(l.service(&g.r, used))
			if g.units == 0 {
				x.grants = x.grants[1:]
			}
		}
		x.end(w, outcome{r, nil})
	}
}

// says is what the line tells the owner of the waiters that nothing was granted for yet.
func (x *line) says(now int64) (q owner.Queued) {
	q.Waiting = uint32(min(max(0, x.total-x.granted), math.MaxUint32))
	covered := x.granted
	for e := x.waiters.Front(); e != nil; e = e.Next() { // no more of them than were granted for
		w := e.Value.(*waiter)
		if covered -= w.units; covered < 0 {
			q.Age = time.Duration(now - w.arrived)
			break
		}
	}
	return q
}

// next returns when the line is to ask, and for how many units: those that may be served
// within half of QueueAhead, or until the answer to the ask after this one. It asks at once
// for places of those that have none.
func (l *Limiter) next(x *line, now int64) (units int64, wait time.Duration) {
	wait = owner.LineAsks
	if x.asking {
		if x.granted >= x.head().units {
			wait = min(wait, time.Duration(x.grants[0].at-now))
		}
		return 0, max(wait, 1)
	}
	if x.changed {
		x.askAt = min(x.askAt, now+int64(queueTick))
		wait = time.Duration(x.askAt - now)
	}
	first := x.head().units
	if x.granted >= first {
		wait = min(wait, time.Duration(x.grants[0].at-now))
	}
	want := int64(0)
	for e, few := x.waiters.Front(), wire.MaxAsks; e != nil && few > 0; e, few = e.Next(), few-1 {
		w := e.Value.(*waiter)
		if want > 0 && l.service(&x.last, want+w.units) > max(owner.QueueAhead/2, 2*x.trip) {
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

// answered takes in what the owner has said to an ask for units, which was sent then, of
// those that had arrived by then. RetryAfter is from when the ask came to the owner: the
// next one takes as long.
func (l *Limiter) answered(x *line, units int64, r *wire.Result, sent, by int64) {
	now := l.node.env.Steady()
	x.last, x.trip = *r, time.Duration(now-sent)
	if r.Allowed {
		units = int64(r.Lease.Units)
	}
	// In an outage no queue is full: the owner is not reached, and may be back at any time.
	outage := r.Source == wire.FailedClosed || r.Source.IsShare()
	switch {
	case r.Allowed:
		x.grants = append(x.grants, grant{units, now + int64(max(0, r.ResetAfter-l.service(r, units))), *r})
		x.granted += units
		x.askAt = now
	case outage:
		x.askAt = now + int64(min(max(r.RetryAfter, 1), view.OutageRetry))
	default:
		x.askAt = sent + int64(max(r.RetryAfter, 1))
	}
	room := r.Remaining + x.granted
	if outage {
		room = l.numbers.Capacity()
	}
	one := max(l.service(r, 1), 1)
	used := int64((r.ResetAfter + one - 1) / one)
	elsewhere := max(0, r.Limit-r.Remaining-used)
	for e := x.joins; e != nil && e.Value.(*waiter).arrived <= by; e = x.joins {
		w := e.Value.(*waiter)
		wait := r.ResetAfter + l.service(r, elsewhere+max(0, x.placed-x.granted))
		switch {
		case x.placed+w.units > room:
			x.refuse(w, r, fmt.Errorf("%w: limit %q has its Burst of %d units waiting; the next place is free in %v", ErrFull, l.limit.Name, l.numbers.Capacity(), one))
		case !outage && x.placed >= x.granted && !w.by.IsZero() && time.Until(w.by) < wait:
			x.refuse(w, r, context.DeadlineExceeded)
		default:
			w.place = true
			x.placed += w.units
			x.joins = e.Next()
		}
	}
}

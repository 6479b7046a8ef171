// Package queue has the lines of a node: the waiters of each key of a LeakyBucket, in order of
// arrival.
//
// The owner does not reserve units for a single waiter. The first waiter of a line asks the owner for the
// whole line, and the granted units go to the first waiter when its turn comes. So if a waiter leaves,
// the other waiters move up. The work under a lock does not grow with the number of waiters.
package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// shards have a lock each.
	shards = 64
	// Tick is the least time between two reports to the owner that waiters have left.
	Tick = 20 * time.Millisecond
)

// Config has the parts of a node that its Queues need.
type Config struct {
	Clock env.Clock
	Life  *env.Life
	// Decide executes op at the member that answers for the count, and waits for the response.
	Decide func(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error
	// Tell sends op to the member that answers for the count, and does not wait.
	Tell func(op wire.Op, a *wire.Ask)
	// Full is the error of a waiter that has no place, and Closed that of a waiter at the end of the
	// node.
	Full, Closed error
}

// Queues contains the lines of one node. Its methods are safe for concurrent use.
type Queues struct {
	cfg    Config
	shards [shards]shard
}

// shard is a part of the lines, with a lock of its own.
type shard struct {
	mu sync.Mutex
	of map[key]*line
}

// New returns Queues without waiters.
func New(cfg Config) *Queues { return &Queues{cfg: cfg} }

// Wait waits for the turn of a's units, and returns what they were granted. With an error, which
// is Full, Closed, or the context's, the result is a denial.
func (l *Queues) Wait(ctx context.Context, a *wire.Ask) (r wire.Result, err error) {
	w := &waiter{units: a.Units, served: make(chan outcome, 1), first: make(chan struct{}, 1)}
	w.by, _ = ctx.Deadline()
	x := l.enter(a, w)
	for {
		select {
		case o := <-w.served:
			return o.r, o.err
		case <-w.first:
			l.drive(ctx, x, w, a)
		case <-ctx.Done():
			return l.quit(x, w, a, ctx.Err())
		case <-l.cfg.Life.Done():
			return l.quit(x, w, a, l.cfg.Closed)
		}
	}
}

// enter adds a waiter to the line of its key, and creates the line if there is none.
func (l *Queues) enter(a *wire.Ask, one *waiter) *line {
	s, of := l.of(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	one.arrived = l.cfg.Clock.Steady() // under the lock, so that waiters are in the order of arrival
	x := s.of[of]
	if x == nil {
		if s.of == nil {
			s.of = make(map[key]*line)
		}
		x = &line{shard: s, of: of, name: a.Name, limit: *a.Limit, full: l.cfg.Full, ticket: rand.Uint64()}
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

// of returns the shard and the key of an ask's line.
func (l *Queues) of(a *wire.Ask) (*shard, key) {
	return &l.shards[a.ID.Lo%shards], key{a.ID.Hi, a.ID.Lo, wire.NumbersHash(a.Limit)}
}

// quit removes a waiter, unless it was served just now.
func (l *Queues) quit(x *line, w *waiter, a *wire.Ask, why error) (wire.Result, error) {
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

// pass wakes the first waiter, which then drives the line. If there is no waiter, pass deletes the line
// and refunds the units that were granted but not used.
func (l *Queues) pass(x *line, a *wire.Ask) {
	if w := x.head(); w != nil {
		env.Signal(w.first)
		return
	}
	if x.shard.of[x.of] == x {
		delete(x.shard.of, x.of)
	}
	for i := len(x.grants) - 1; i >= 0; i-- { // in the reverse order of the grants, as OnlyLast requires
		back := a.Taken(&x.grants[i].r)
		back.Units = x.grants[i].units
		back.Spent.OnlyLast = true
		l.cfg.Tell(wire.OpRefund, &back)
	}
	x.grants, x.granted = nil, 0
	if x.told && !x.asking {
		x.told = false
		leaves := *a
		leaves.Units, leaves.Wait = 0, wire.Wait{Ticket: x.ticket}
		l.cfg.Tell(wire.OpWait, &leaves)
	}
}

// drive serves the line for as long as w is its first waiter.
func (l *Queues) drive(ctx context.Context, x *line, w *waiter, a *wire.Ask) {
	s := x.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now := l.cfg.Clock.Steady()
		x.serve(now)
		if x.head() != w {
			l.pass(x, a)
			return
		}
		units, wait := x.next(now)
		if wait <= 0 && l.askFor(ctx, x, a, units, now) {
			wait = wire.LineAsks // until the response wakes it
		} else if wait <= 0 {
			wait = Tick // too much is under way
		}
		s.mu.Unlock()
		ended := l.await(ctx, wait, w.first)
		s.mu.Lock()
		if ended {
			return
		}
	}
}

// askFor asks the owner for units and for places. The response is applied to the line even if its first
// waiter has left. It reports false if the node has too many goroutines.
func (l *Queues) askFor(ctx context.Context, x *line, a *wire.Ask, units, now int64) bool {
	asked, last, ctx := *a, x.waiters.Back().Value.(*waiter).arrived, context.WithoutCancel(ctx)
	asked.Units, asked.Wait = units, x.request(now)
	started := l.cfg.Life.Try(func(context.Context) {
		var r wire.Result
		err := l.cfg.Decide(ctx, wire.OpWait, &asked, &r)
		x.shard.mu.Lock()
		defer x.shard.mu.Unlock()
		if x.asking = false; err == nil {
			x.answered(units, &r, now, last, l.cfg.Clock.Steady())
		}
		l.pass(x, &asked)
	})
	if started {
		x.asking, x.told, x.changed = true, true, false
	} else {
		x.askAt = now + int64(Tick)
	}
	return started
}

// await waits until the time is over or woken is signaled. It reports whether ctx or the node has ended.
func (l *Queues) await(ctx context.Context, wait time.Duration, woken <-chan struct{}) (ended bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
		return true
	case <-l.cfg.Life.Done():
		return true
	}
	return false
}

// Placed returns the units of the waiters of an ask's line that have a place, 0 while one of
// them has none.
func (l *Queues) Placed(a *wire.Ask) int64 {
	s, of := l.of(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of[of]
	if x == nil || x.joins != nil {
		return 0
	}
	return x.placed
}

// Len returns how many lines there are.
func (l *Queues) Len() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.of)
		s.mu.Unlock()
	}
	return n
}

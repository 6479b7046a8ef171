package owner

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// askLate is how late the ask of a node may arrive that is to be served before others.
	askLate = 3 * time.Millisecond
	// A node that has not asked for forgetAfter no longer waits.
	forgetAfter = 3 * wire.MaxAskPause
	// queueShards is the number of shards, each with a lock.
	queueShards = 64
)

// queues records the nodes that wait for a count of a LeakyBucket on this node. Each node asks
// wire.QueueAhead before the turn of its first waiter, and is granted the units then, so that a waiter that
// leaves takes none along. The node whose first waiter arrived first is served first. If its ask is
// more than askLate late, the next node is served.
type queues struct {
	shards     [queueShards]queueShard
	contenders atomic.Int64 // of all shards
}

type queueShard struct {
	mu sync.Mutex
	queue.Contenders
}

func (q *queues) lock(id bucket.ID) *queueShard {
	s := &q.shards[id.Lo%queueShards]
	s.mu.Lock()
	return s
}

// waitingUnits returns the units that wait for a count.
func (q *queues) waitingUnits(id bucket.ID, steady int64) (units int64) {
	if q.contenders.Load() == 0 {
		return 0
	}
	s := q.lock(id)
	defer s.mu.Unlock()
	units, _ = s.OtherUnits(id, queue.Ticket{}, 0, steady)
	return units
}

// applyWait executes OpWait on a count of this node, within l. It grants as many of the requested units
// as there is room for, if their turn is within wire.QueueAhead. Remaining is then the number of units that
// the asking node may have waiting, RetryAfter the time until its next ask, and ResetAfter the time until
// all units that were granted are served.
func (o *Owner) applyWait(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	steady := o.clock.MonotonicAt(now)
	self := queue.Contender{
		Ticket: queue.Ticket{Number: a.Wait.Ticket}, Units: int64(a.Wait.Waiting),
		Arrived: steady - int64(a.Wait.Age), Expires: steady + int64(forgetAfter),
	}
	s := o.queues.lock(a.ID)
	defer s.mu.Unlock()
	others, until := s.OtherUnits(a.ID, self.Ticket, self.Arrived-int64(wire.QueueAhead), steady)
	peek := o.counts.Peek(a.ID, l, now, 1)
	units := min(a.Units, peek.Remaining, math.MaxUint32)
	shared := a.Global && o.holdings != nil
	r.Result = peek
	r.Allowed, r.Receipt = false, 0
	r.RetryAfter = peek.ResetAfter - wire.QueueAhead
	if r.RetryAfter <= 0 && until > steady {
		r.RetryAfter = min(time.Duration(until-steady), peek.ResetAfter)
	}
	switch {
	case r.RetryAfter > 0 || a.Units == 0:
	case units == 0:
		r.RetryAfter = peek.RetryAfter
	case shared:
		o.holdings.Take(a.ID, a.Limit, o.clock.TimeAt(now), units, &r.Result)
	default:
		o.counts.TakeInto(a.ID, l, now, units, &r.Result)
	}
	if r.Allowed {
		r.Granted = units
		self.Units = max(0, self.Units-units)
		self.Arrived = steady // until the next ask, which contains the arrival of the next waiter and so no later time
	} else {
		if shared && a.Units > 0 {
			o.holdings.Lacks(a.ID, a.Limit, o.clock.TimeAt(now), a.Units)
		}
		r.RetryAfter = min(max(r.RetryAfter, 1), wire.MaxAskPause)
	}
	self.Due = steady + int64(r.RetryAfter+askLate)
	r.Remaining = max(0, r.Remaining-others)
	self.Units = min(self.Units, r.Remaining)
	before := s.Len()
	s.Record(a.ID, self, steady)
	s.Sweep(1, steady)
	o.queues.contenders.Add(int64(s.Len() - before))
}

// unitsAhead returns the number of units that wait for the count of an ask. A take that does
// not wait is denied until they are served.
func (o *Owner) unitsAhead(a *wire.Ask, l *bucket.Limit, now int64) int64 {
	if l.Algorithm != bucket.LeakyBucket {
		return 0
	}
	return o.queues.waitingUnits(a.ID, o.clock.MonotonicAt(now))
}

// denyBehind denies a take or a peek because units wait before it. r must be the result of a Peek.
// Then r.Remaining is the room for further waiters.
func denyBehind(waiting int64, l *bucket.Limit, r *bucket.Result) {
	r.Allowed, r.Remaining, r.Receipt = false, max(0, r.Remaining-waiting), 0
	r.ResetAfter += wire.ServiceOf(l.Rate, l.Per, min(waiting, l.Capacity()))
	r.RetryAfter = max(r.RetryAfter, r.ResetAfter-wire.QueueAhead, 1)
}

// WaitingNodes returns the number of nodes that wait for counts of this node, each once for a count.
func (o *Owner) WaitingNodes() int64 { return o.queues.contenders.Load() }

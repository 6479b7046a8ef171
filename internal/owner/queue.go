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
	// askLate is how late the ask of the node that is next to be served may arrive before another
	// node is served.
	askLate = 3 * time.Millisecond
	// forgetAfter is the time after its last ask at which a node no longer counts as waiting.
	forgetAfter = 3 * wire.MaxAskPause
	// queueShards is the number of shards, each with a lock.
	queueShards = 64
)

// queues records the nodes that wait for a count of a LeakyBucket on this node. Each node asks
// wire.QueueAhead before the turn of its first waiter, and gets no units earlier. So a waiter
// that leaves before that time uses no units. The node whose first waiter arrived first, by
// more than wire.QueueAhead, is served first. If its ask is more than askLate late, the next node is served.
type queues struct {
	shards     [queueShards]queueShard
	contenders atomic.Int64 // number of contenders of all shards
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

// applyWait executes OpWait on a count of this node, within the limit l. It grants as many of the requested
// units as there is room for, if their turn is within wire.QueueAhead. In the result, Remaining is
// the number of units that the asking node may have waiting, RetryAfter the time until its next
// ask, and ResetAfter the time until all granted units are served.
func (o *Owner) applyWait(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	steady := o.clock.MonotonicAt(now)
	self := contenderOf(a, steady)
	s := o.queues.lock(a.ID)
	defer s.mu.Unlock()
	others, until := s.OtherUnits(a.ID, self.Ticket, self.Arrived-int64(wire.QueueAhead), steady)
	peek := o.counts.Peek(a.ID, l, now, 1)
	units := min(a.Units, peek.Remaining, math.MaxUint32)
	shared := a.Global && o.holdings != nil
	r.Result = peek
	r.Allowed, r.Receipt = false, 0
	r.RetryAfter = peek.ResetAfter - wire.QueueAhead
	if left := time.Duration(until - steady); r.RetryAfter <= 0 && left > 0 {
		r.RetryAfter = min(left, peek.ResetAfter)
		// Also if no units are used, as at the end of a pause. The earlier node may itself wait, for at most
		// askLate, for the ask of a node before it, and is then due within twice askLate.
		if left <= 2*askLate {
			r.RetryAfter = min(left, askLate)
		}
	}
	switch {
	case r.RetryAfter > 0 || a.Units == 0:
	case units == 0:
		r.RetryAfter = peek.RetryAfter
	case shared:
		o.holdings.TakeUnits(a.ID, a.Limit, o.clock.TimeAt(now), units, &r.Result)
	default:
		o.counts.TakeInto(a.ID, l, now, units, &r.Result)
	}
	if r.Allowed {
		r.Granted = units
		self.Units = max(0, self.Units-units)
		self.Arrived = steady // until the next ask, which states when the next waiter arrived: at this time or before
	} else {
		if shared && a.Units > 0 {
			o.holdings.Lacks(a.ID, a.Limit, o.clock.TimeAt(now), a.Units)
		}
		r.RetryAfter = min(max(r.RetryAfter, 1), wire.MaxAskPause)
	}
	self.Due = steady + int64(r.RetryAfter+askLate)
	r.Remaining = max(0, r.Remaining-others)
	self.Units = min(self.Units, r.Remaining)
	o.queues.record(s, a.ID, self, steady)
}

// record records a contender in its shard, whose lock must be held.
func (q *queues) record(s *queueShard, id bucket.ID, self queue.Contender, steady int64) {
	before := s.Len()
	s.Record(id, self, steady)
	s.Sweep(1, steady)
	q.contenders.Add(int64(s.Len() - before))
}

// keepPlace records the waiters of the node that asks OpWait for a banned or paused key, so that the
// order of the nodes remains when the key is released. It changes r, the denial.
func (o *Owner) keepPlace(a *wire.Ask, now int64, r *wire.Result) {
	steady := o.clock.MonotonicAt(now)
	s := o.queues.lock(a.ID)
	defer s.mu.Unlock()
	self := contenderOf(a, steady)
	others, _ := s.OtherUnits(a.ID, self.Ticket, 0, steady)
	r.Remaining = max(0, a.Limit.Capacity()-others)
	self.Units = min(self.Units, r.Remaining)
	self.Due = steady + int64(min(r.RetryAfter, wire.MaxAskPause)+askLate)
	o.queues.record(s, a.ID, self, steady)
}

// contenderOf returns the contender of an ask of OpWait, without the time of its next ask.
func contenderOf(a *wire.Ask, steady int64) queue.Contender {
	return queue.Contender{
		Ticket: queue.Ticket{Number: a.Wait.Ticket}, Units: int64(a.Wait.Waiting),
		Arrived: steady - int64(a.Wait.Age), Expires: steady + int64(forgetAfter),
	}
}

// unitsAhead returns the number of units that wait for the count of an ask, 0 for other algorithms
// than LeakyBucket. A take that does not wait is denied until these units are served.
func (o *Owner) unitsAhead(a *wire.Ask, l *bucket.Limit, now int64) int64 {
	if l.Algorithm != bucket.LeakyBucket {
		return 0
	}
	return o.queues.waitingUnits(a.ID, o.clock.MonotonicAt(now))
}

// denyBehind denies a take or a peek because units wait before it. It changes r, which must be the
// result of a Peek. r.Remaining becomes the room for further waiters.
func denyBehind(waiting int64, l *bucket.Limit, r *bucket.Result) {
	r.Allowed, r.Remaining, r.Receipt = false, max(0, r.Remaining-waiting), 0
	r.ResetAfter += wire.ServiceOf(l.Rate, l.Per, min(waiting, l.Capacity()))
	r.RetryAfter = max(r.RetryAfter, r.ResetAfter-wire.QueueAhead, 1)
}

// WaitingNodes returns the number of nodes that wait for counts of this node. A node that waits for
// several counts is counted for each, and a node that asks no more until its contender is deleted.
func (o *Owner) WaitingNodes() int64 { return o.queues.contenders.Load() }

package owner

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// lineLate is how late a line may come that is to ask before others.
	lineLate = 3 * time.Millisecond
	// A line that has not asked for lineForgotten is forgotten.
	lineForgotten = 3 * wire.LineAsks
)

// queueShards shards have linesOfShard lines each at most. What comes on top is served when
// there is room, and in no order.
const (
	queueShards  = 64
	linesOfShard = 1 << 10
)

// queues are the lines that wait for this node's counts: a line is the waiters of one key on
// one node (package lines). A queue is in order of arrival: all lines ask wire.QueueAhead before the
// next turn, and the one whose first waiter has waited for longest is granted the unit; the
// next line is, where that one has not come by lineLate. What waits is spent when it is
// granted, so that a waiter that leaves takes nothing with it.
//
// Nothing here is copied to other members: each line says it all again when it asks.
type queues struct {
	shards [queueShards]queueShard
	lines  atomic.Int64 // in all shards
}

type queueShard struct {
	mu    sync.Mutex
	of    map[bucket.ID][]lineSeen
	lines int
}

// lineSeen is what a line has said when it asked last, by the steady clock.
type lineSeen struct {
	ticket  uint64 // names the line
	waiting int64  // units that wait in it
	arrived int64  // when its first waiter did
	seen    int64
	asks    int64 // when it was told to ask again
}

// Waiting returns the units that wait for a count.
func (q *queues) waiting(id bucket.ID, steady int64) (units int64) {
	if q.lines.Load() == 0 {
		return 0
	}
	s := q.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.of[id] {
		if steady-o.seen < int64(lineForgotten) {
			units += o.waiting
		}
	}
	return units
}

func (q *queues) shard(id bucket.ID) *queueShard { return &q.shards[id.Lo%queueShards] }

// others returns the units that wait in other lines than this one, and until when one of
// these is to be waited for, as it has waited for longer and is to ask before that. s.mu is
// held.
func (s *queueShard) others(id bucket.ID, self lineSeen) (units, until int64) {
	for _, o := range s.of[id] {
		if o.ticket == self.ticket || self.seen-o.seen >= int64(lineForgotten) {
			continue
		}
		units += o.waiting
		if o.waiting > 0 && o.arrived < self.arrived-int64(wire.QueueAhead) {
			until = max(until, o.asks+int64(lineLate))
		}
	}
	return units, until
}

// note takes down what a line has said, and forgets lines that have not asked for long. One
// in which nothing waits is none. s.mu is held.
func (q *queues) note(s *queueShard, id bucket.ID, self lineSeen) {
	before := len(s.of[id])
	kept := s.of[id][:0]
	for _, o := range s.of[id] {
		if o.ticket != self.ticket && self.seen-o.seen < int64(lineForgotten) {
			kept = append(kept, o)
		}
	}
	if self.waiting > 0 && s.lines-before+len(kept) < linesOfShard {
		kept = append(kept, self)
	}
	if len(kept) == 0 {
		delete(s.of, id)
	} else {
		if s.of == nil {
			s.of = make(map[bucket.ID][]lineSeen)
		}
		s.of[id] = kept
	}
	q.count(s, len(kept)-before)
	for other, lines := range s.of { // one of them, whichever
		if last := lines[len(lines)-1]; other != id && self.seen-last.seen >= int64(lineForgotten) {
			delete(s.of, other)
			q.count(s, -len(lines))
		}
		break
	}
}

func (q *queues) count(s *queueShard, more int) {
	s.lines += more
	q.lines.Add(int64(more))
}

// applyWait carries out OpWait on the count that is held here, within l: it takes of the
// units that a line asks for as many as there is room for, if their turn is within
// wire.QueueAhead. Remaining is then how many units that line may have waiting, RetryAfter when
// it is to ask again, and ResetAfter when what was granted until now is served.
func (o *Owner) applyWait(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	steady := o.clock.SteadyAt(now)
	self := lineSeen{ticket: a.Wait.Ticket, waiting: int64(a.Wait.Waiting), arrived: steady - int64(a.Wait.Age), seen: steady}
	s := o.queues.shard(a.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	others, until := s.others(a.ID, self)
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
		o.holdings.Take(a.ID, a.Limit, o.clock.At(now), units, &r.Result)
	default:
		o.counts.TakeInto(a.ID, l, now, units, &r.Result)
	}
	if r.Allowed {
		r.Granted = units
		self.waiting = max(0, self.waiting-units)
		self.arrived = steady // no earlier than the next waiter's, which it says when it asks again
	} else {
		if shared && a.Units > 0 {
			o.holdings.Lacks(a.ID, a.Limit, o.clock.At(now), a.Units)
		}
		r.RetryAfter = min(max(r.RetryAfter, 1), wire.LineAsks)
	}
	self.asks = steady + int64(r.RetryAfter)
	r.Remaining = max(0, r.Remaining-others)
	self.waiting = min(self.waiting, r.Remaining)
	o.queues.note(s, a.ID, self)
}

// ahead returns the units that wait for the count of an ask. They come before it: a take
// that does not wait is denied until they are served.
func (o *Owner) ahead(a *wire.Ask, l *bucket.Limit, now int64) int64 {
	if l.Algorithm != bucket.LeakyBucket {
		return 0
	}
	return o.queues.waiting(a.ID, o.clock.SteadyAt(now))
}

// denyBehind denies a take or a peek, of which r is what a Peek says, since so many units
// wait. Remaining is the room that is left for others that wait.
func denyBehind(waiting int64, l *bucket.Limit, r *bucket.Result) {
	r.Allowed, r.Remaining, r.Receipt = false, max(0, r.Remaining-waiting), 0
	r.ResetAfter += wire.ServiceOf(l.Rate, l.Per, min(waiting, l.Capacity()))
	r.RetryAfter = max(r.RetryAfter, r.ResetAfter-wire.QueueAhead, 1)
}

// Lines returns how many lines wait for counts of this node.
func (o *Owner) Lines() int64 { return o.queues.lines.Load() }

package holds

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/queue"
)

// waitsFor is the time for which a waiting hold keeps its place in the queue after its last ask.
const waitsFor = 150 * time.Millisecond

// ticket returns the Ticket of a hold in the queue of its count.
func (r *ref) ticket() queue.Ticket { return queue.Ticket{Node: r.holder, Number: r.number} }

// isFirst reports whether a hold need not wait for another hold of the count that waits and may
// still ask in time. If this hold waits as well, only holds that arrived before it matter. The
// caller must hold s.mu.
func (s *shard) isFirst(name ref, now int64) bool {
	arrived := int64(math.MaxInt64)
	if self, waits := s.contenders.Find(name.id, name.ticket(), now); waits {
		arrived = self.Arrived
	}
	_, until := s.contenders.OtherUnits(name.id, name.ticket(), arrived, now)
	return until <= now
}

// wait records that a hold has asked now and waits, as a contender for its count. Holds that arrive
// later wait until this hold asks again or is overdue. It is overdue twice the time between its last two
// asks plus denyFor after the last ask, but no later than waitsFor after it. After its first ask, it is
// overdue after waitsFor. The caller must hold s.mu.
func (s *shard) wait(name ref, now int64) {
	self, waits := s.contenders.Find(name.id, name.ticket(), now)
	pause := int64(waitsFor)
	if waits {
		pause = now - (self.Expires - int64(waitsFor))
	} else {
		s.arrivals++
		self = queue.Contender{Ticket: name.ticket(), Units: 1, Arrived: s.arrivals}
	}
	self.Due, self.Expires = now+2*pause+int64(denyFor), now+int64(waitsFor)
	s.contenders.Record(name.id, self, now)
}

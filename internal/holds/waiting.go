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

// isFirst reports whether no other hold of the count has the turn before the named hold. A waiting hold that is
// overdue (see wait) has no turn. If the named hold waits as well, only holds that arrived before it matter. The
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
// later wait until this hold asks again or is overdue. If d is the time between its last two asks, the hold is
// overdue 2*d+denyFor after its last ask, but at the latest after waitsFor. After its first ask, the hold is
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

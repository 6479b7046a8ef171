package queue

import "github.com/weir-go/weir/internal/wire"

// Placed returns the units of the waiters with a place in the queue of an ask. It returns 0
// while a waiter has no place.
func (l *Queues) Placed(a *wire.Ask) int64 {
	s := l.shard(a.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.queues[keyOf(a)]
	if x == nil || x.joins != nil {
		return 0
	}
	return x.placed
}

// Len returns the number of queues.
func (l *Queues) Len() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.queues)
		s.mu.Unlock()
	}
	return n
}

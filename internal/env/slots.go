package env

import "sync"

const (
	// maxForSenders bounds what a node does in the background for others at once. The rest of
	// maxErrands is for its own errands.
	maxForSenders = maxErrands * 7 / 8
	// MaxOfOneSender is the part of a sender. It is a quarter of maxErrands, so that
	// a sender that waits for a member that never answers leaves the others most of it.
	MaxOfOneSender = maxErrands / 4
)

// Sender is the node that a request came from.
type Sender struct{ Region, Name string }

// slots counts what this node does in the background for others. Each member of the
// roster has a part of it. So has each other region, and so have all senders together
// that are not in the roster, since a sender can choose the name that it gives.
type slots struct {
	mu   sync.Mutex
	used map[Sender]int
	all  int
}

// acquire takes a slot. It reports false if the sender has its part, or all are taken.
func (s *slots) acquire(from Sender) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxForSenders || s.used[from] >= MaxOfOneSender {
		return false
	}
	if s.used == nil {
		s.used = make(map[Sender]int)
	}
	s.used[from]++
	s.all++
	return true
}

func (s *slots) release(from Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.used[from]--; s.used[from] == 0 {
		delete(s.used, from)
	}
}

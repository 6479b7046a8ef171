package env

import "sync"

const (
	// maxForSenders is the maximum number of errands on behalf of senders. The rest of maxErrands
	// is for the errands of the node itself.
	maxForSenders = maxErrands * 7 / 8
	// MaxOfOneSender is the maximum number of errands on behalf of a single sender. It is a
	// quarter of maxErrands, so that most errands remain for other senders while the requests of
	// a sender wait for a member that does not answer.
	MaxOfOneSender = maxErrands / 4
)

// Sender identifies the node that has sent a request.
type Sender struct{ Region, Name string }

// slots counts the errands of this node on behalf of senders. Each member of the roster counts as
// a sender. In each region, all senders that are not in the roster count as a single sender,
// because a sender can choose its name.
type slots struct {
	mu   sync.Mutex
	used map[Sender]int
	all  int
}

// acquire takes a slot. It reports false if the sender has all of its slots, or if no slot is
// left.
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

package cluster

import (
	"context"
	"sync"
	"time"
)

// maxUnmetDials bounds the attempts under way to connect to members that this node has never met: a
// sender of gossip can name thousands of such members, at addresses that never answer. Attempts to
// connect to members that this node has met do not wait for a turn.
const maxUnmetDials = 64

// turns holds an element for each attempt under way to connect to a member that this node has never met.
type turns chan struct{}

// wait waits for a turn, until the member is met or ctx is done. The caller must call the function done
// when the attempt is over.
func (t turns) wait(ctx context.Context, met firstMeeting) (done func()) {
	select {
	case <-met.happened:
		return func() {}
	default:
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }
	case <-met.happened:
	case <-ctx.Done():
	}
	return func() {}
}

// firstMeeting is the first handshake between this node and a member, whichever of them dialled.
type firstMeeting struct {
	once     *sync.Once
	happened chan struct{}
	at       *time.Time // set before happened is closed
}

func newFirstMeeting() firstMeeting {
	return firstMeeting{new(sync.Once), make(chan struct{}), new(time.Time)}
}

func (m firstMeeting) record() {
	m.once.Do(func() {
		*m.at = time.Now()
		close(m.happened)
	})
}

// time returns the time of the meeting, or zero if it has not happened yet.
func (m firstMeeting) time() time.Time {
	select {
	case <-m.happened:
		return *m.at
	default:
		return time.Time{}
	}
}

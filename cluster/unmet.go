package cluster

import (
	"context"
	"sync"
	"time"
)

// maxUnmetDials bounds the attempts under way to connect to members that this node
// has never met: any sender of gossip can name any number of them, at addresses that
// swallow what is sent. Those that it has met wait for nobody.
const maxUnmetDials = 64

// turns is a turn for each attempt under way.
type turns chan struct{}

// wait waits for a turn, no longer than until the member is met or ctx is done. The
// caller calls what it returns when the attempt is over.
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

// firstMeeting happens once: when a member has shaken hands, here or there.
type firstMeeting struct {
	once     *sync.Once
	happened chan struct{}
	at       *time.Time // set before happened is closed
}

func newFirstMeeting() firstMeeting {
	return firstMeeting{new(sync.Once), make(chan struct{}), new(time.Time)}
}

func (m firstMeeting) now() {
	m.once.Do(func() {
		*m.at = time.Now()
		close(m.happened)
	})
}

// when returns the time of the meeting, zero if it has not happened yet.
func (m firstMeeting) when() time.Time {
	select {
	case <-m.happened:
		return *m.at
	default:
		return time.Time{}
	}
}

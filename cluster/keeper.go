package cluster

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// event is a set of events that the keeper handles for a link.
type event uint32

const (
	eventGone     event = 1 << iota // the link is not in peers.links any more
	eventEnded                      // a session has ended
	eventDialed                     // an attempt to connect has ended
	eventArranged                   // this node has begun or stopped watching the member
	eventAlive                      // the member may be alive: dial at once
	eventWanted                     // a request waits for the connection
	eventPonged                     // a pong has arrived while the connection rests
	eventMissed                     // the member has left a request unanswered: ping at once
	eventRows                       // the table has changed
)

// keeper maintains the connections of all links, in a single goroutine. A link without an event or a
// due appointment takes no time, and an idle link has no upkeep.
type keeper struct {
	wake chan struct{} // signals that ready is not empty

	mu    sync.Mutex // taken after peers.mu, and never held while waiting
	ready []*link    // the links that have events, without duplicates

	open schedule // the upkeep of the links that are not idle; owned by the goroutine in run
}

// post adds events of l, and wakes the keeper.
func (l *link) post(e event) {
	if l.events.Or(uint32(e)) != 0 {
		return // l is ready
	}
	k := &l.peers.keeper
	k.mu.Lock()
	k.ready = append(k.ready, l)
	k.mu.Unlock()
	signal(k.wake)
}

// takeReady removes all links from ready and returns them.
func (k *keeper) takeReady() []*link {
	k.mu.Lock()
	defer k.mu.Unlock()
	ready := k.ready
	k.ready = nil
	return ready
}

// run handles events and appointments until ctx is done, and then closes the connections of all links. It
// does not close connections to other regions or accepted connections.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	var planned time.Time // when timer fires; zero if it has fired or was never set
	for {
		select {
		case <-ctx.Done():
			for _, u := range k.open {
				u.close()
			}
			return
		case <-k.wake:
		case <-timer.C:
			planned = time.Time{}
		}
		for _, l := range k.takeReady() {
			k.handle(l, event(l.events.Swap(0)))
		}
		now := time.Now()
		for len(k.open) > 0 && !k.open[0].next.After(now) {
			u := k.open[0]
			u.handleDue(now)
			k.plan(u)
		}
		// A Reset of a pending timer makes the runtime visit all its timers, and most events plan nothing
		// earlier.
		if len(k.open) > 0 && !k.open[0].next.Equal(planned) {
			planned = k.open[0].next
			timer.Reset(time.Until(planned))
		}
	}
}

// handle handles events of l.
func (k *keeper) handle(l *link, e event) {
	if l.upkeep == nil {
		if l.gone = l.gone || e&eventGone != 0; l.gone {
			return
		}
		l.upkeep = &upkeep{link: l, pace: dialPace}
		heap.Push(&k.open, l.upkeep)
	}
	l.upkeep.handle(e)
	k.plan(l.upkeep)
}

// plan moves u in open to the place of its next appointment, or frees u if u is idle.
func (k *keeper) plan(u *upkeep) {
	if u.isIdle() {
		heap.Remove(&k.open, u.index)
		u.link.upkeep = nil
		return
	}
	u.next = time.Now().Add(restAfter)
	for _, a := range []*appointment{&u.dial, &u.look, &u.drain, &u.feeding} {
		if a.planned && a.due.Before(u.next) {
			u.next = a.due
		}
	}
	heap.Fix(&k.open, u.index)
}

// schedule is a heap of the upkeep of links, ordered by the next appointment.
type schedule []*upkeep

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, k int) bool { return s[i].next.Before(s[k].next) }

func (s schedule) Swap(i, k int) {
	s[i], s[k] = s[k], s[i]
	s[i].index, s[k].index = i, k
}

// Push implements heap.Interface.
func (s *schedule) Push(u any) {
	u.(*upkeep).index = len(*s)
	*s = append(*s, u.(*upkeep))
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	u := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return u
}

// appointment is a time at which an action is due. takeDue and cancel do not change the field due, so that
// the delay of this process can be computed.
type appointment struct {
	due     time.Time
	planned bool // neither takeDue nor cancel has ended the appointment
}

func (a *appointment) planIn(d time.Duration) { a.planAt(time.Now().Add(d)) }

func (a *appointment) planAt(due time.Time) { a.due, a.planned = due, true }

func (a *appointment) cancel() { a.planned = false }

// takeDue reports whether the appointment is due. If so, it cancels the appointment.
func (a *appointment) takeDue(now time.Time) bool {
	if !a.planned || a.due.After(now) {
		return false
	}
	a.planned = false
	return true
}

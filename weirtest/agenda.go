package weirtest

import (
	"container/heap"
	"time"
)

// event is an event on the network. The caller of its methods must hold Network.mu.
type event interface {
	occur()
	isVoid() bool // reports whether the event need not occur any more
}

// moment is an event and its time.
type moment struct {
	at    time.Duration // time of the event, since agenda.start
	link  int           // orders events of the same time, regardless of the order in which they were added
	seq   uint64
	exact bool // the event occurs exactly at this time; other events move to an instant without another packet
	event event
}

func (m *moment) before(o *moment) bool {
	switch {
	case m.at != o.at:
		return m.at < o.at
	case m.link != o.link:
		return m.link < o.link
	}
	return m.seq < o.seq
}

// agenda contains the future events of a network, and one timer for the first event. Unless ties is set,
// no two packets arrive in the same instant: in a bubble, all effects of a packet are complete when the
// next packet arrives.
type agenda struct {
	start   time.Time
	due     queue
	late    queue // due events that wait for an instant without another packet; their field at is zero
	seq     uint64
	last    time.Duration // when the last packet arrived
	timer   *time.Timer
	running bool
	ties    bool // packets may arrive in the same instant
}

// tieEvery is the time between two instants at which packets arrive if ties are allowed. A cluster of 1,000
// idle nodes receives about 10 packets in each instant.
const tieEvery = 200 * time.Microsecond

// addEvent adds an event to the agenda. The caller must hold n.mu.
func (n *Network) addEvent(t time.Time, link int, exact bool, e event) {
	a := &n.agenda
	a.seq++
	at := t.Sub(a.start)
	if a.ties && !exact {
		at = max(at.Truncate(tieEvery), time.Since(a.start))
	}
	m := &moment{at, link, a.seq, exact, e}
	heap.Push(&a.due, m)
	if first, _ := a.firstEvent(); first.seq == m.seq && !a.running {
		n.armTimer(first.at)
	}
}

// armTimer sets the timer to the first event. The caller must hold n.mu.
func (n *Network) armTimer(at time.Duration) {
	a := &n.agenda
	if a.timer != nil {
		a.timer.Stop()
	}
	// A Reset of the pending timer would make the runtime visit all timers of the bubble.
	a.timer = time.AfterFunc(at-time.Since(a.start), n.runEvents)
}

// runEvents executes the events that are due.
func (n *Network) runEvents() {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &n.agenda
	a.running = true
	now := time.Since(a.start)
	for {
		m, from := a.firstEvent()
		if from == nil {
			break
		}
		if m.event.isVoid() {
			heap.Pop(from)
			continue
		}
		if m.at > now {
			n.armTimer(m.at)
			break
		}
		heap.Pop(from)
		if !m.exact {
			a.last = m.at
		}
		m.event.occur()
	}
	a.running = false
}

// firstEvent returns the next event, and the queue whose first event this is. The queue
// is nil if there is no event.
func (a *agenda) firstEvent() (m moment, from *queue) {
	for !a.ties && len(a.due) > 0 && !a.due[0].exact && a.due[0].at <= a.last {
		m := heap.Pop(&a.due).(*moment)
		m.at = 0
		heap.Push(&a.late, m)
	}
	if len(a.late) > 0 {
		m, from = *a.late[0], &a.late
		m.at = a.last + 1
	}
	if len(a.due) > 0 && (from == nil || a.due[0].before(&m)) {
		m, from = *a.due[0], &a.due
	}
	return m, from
}

// queue is a heap of moments, for package container/heap.
type queue []*moment

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].before(q[j]) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(m any)        { *q = append(*q, m.(*moment)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return m
}

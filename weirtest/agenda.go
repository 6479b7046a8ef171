package weirtest

import (
	"container/heap"
	"time"
)

// event is something that happens on the network. Network.mu is held.
type event interface {
	occur()
	void() bool // it need not happen any more
}

// moment is when an event happens.
type moment struct {
	at    time.Duration // since Network.start
	link  int           // orders what is due at one time, whichever node was first to send it
	seq   uint64
	exact bool // at this very time; else it has an instant of its own
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

// agenda is what is to happen on a network, and one timer for the first of it.
// No two packets arrive at one instant: in a bubble, all that comes of one is
// over when the next arrives.
type agenda struct {
	start   time.Time
	due     queue
	late    queue // packets that are due, and arrive when none did; their at is zero
	seq     uint64
	last    time.Duration // when the last packet arrived
	timer   *time.Timer
	running bool
}

// at puts an event on the agenda. n.mu is held.
func (n *Network) at(t time.Time, link int, exact bool, e event) {
	a := &n.agenda
	a.seq++
	m := &moment{t.Sub(a.start), link, a.seq, exact, e}
	heap.Push(&a.due, m)
	if first, _ := a.first(); first.seq == m.seq && !a.running {
		n.arm(first.at)
	}
}

// arm sets the timer to the first event. n.mu is held.
func (n *Network) arm(at time.Duration) {
	a := &n.agenda
	d := at - time.Since(a.start)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, n.proceed)
		return
	}
	a.timer.Reset(d)
}

// proceed has happen what is due.
func (n *Network) proceed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &n.agenda
	a.running = true
	now := time.Since(a.start)
	for {
		m, from := a.first()
		if from == nil {
			break
		}
		if m.event.void() {
			heap.Pop(from)
			continue
		}
		if m.at > now {
			n.arm(m.at)
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

// first is what happens next, and the queue that it is the first of: none if there
// is nothing.
func (a *agenda) first() (m moment, from *queue) {
	for len(a.due) > 0 && !a.due[0].exact && a.due[0].at <= a.last {
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

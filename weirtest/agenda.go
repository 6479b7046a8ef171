package weirtest

import "time"

// event is something that happens on the network. Network.mu is held.
type event interface {
	occur()
	void() bool // it need not happen any more
}

// moment is when an event happens.
type moment struct {
	at    time.Duration // since Network.start
	link  int           // orders what is due at one time, whoever was first to send it
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
	heap    []moment
	seq     uint64
	last    time.Duration // when the last packet arrived
	timer   *time.Timer
	running bool
}

// at puts an event on the agenda. n.mu is held.
func (n *Network) at(t time.Time, link int, exact bool, e event) {
	a := &n.agenda
	a.seq++
	m := moment{t.Sub(a.start), link, a.seq, exact, e}
	a.heap = append(a.heap, m)
	i := len(a.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !m.before(&a.heap[parent]) {
			break
		}
		a.heap[i] = a.heap[parent]
		i = parent
	}
	a.heap[i] = m
	if i == 0 && !a.running {
		n.arm()
	}
}

// arm sets the timer to the first event. n.mu is held.
func (n *Network) arm() {
	a := &n.agenda
	d := a.heap[0].at - time.Since(a.start)
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
	for len(a.heap) > 0 {
		m := a.heap[0]
		switch {
		case m.event.void():
			a.pop()
			continue
		case !m.exact && m.at <= a.last:
			m.at = a.last + 1
			a.sink(m)
			continue
		case m.at > now:
			a.running = false
			n.arm()
			return
		}
		a.pop()
		if !m.exact {
			a.last = m.at
		}
		m.event.occur()
	}
	a.running = false
}

// pop takes the first event off.
func (a *agenda) pop() {
	end := len(a.heap) - 1
	last := a.heap[end]
	a.heap[end] = moment{}
	a.heap = a.heap[:end]
	if end > 0 {
		a.sink(last)
	}
}

// sink puts m in the place of the first event, and then where it belongs.
func (a *agenda) sink(m moment) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(a.heap) {
			break
		}
		if right := child + 1; right < len(a.heap) && a.heap[right].before(&a.heap[child]) {
			child = right
		}
		if !a.heap[child].before(&m) {
			break
		}
		a.heap[i] = a.heap[child]
		i = child
	}
	a.heap[i] = m
}

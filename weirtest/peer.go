package weirtest

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
)

// peer is how one member talks to another: it implements cluster.Peer.
type peer struct {
	owner, to *member
	out       flow
	heard     bool
	answered  time.Time // when it last did
	blamed    time.Time // when an ask to it timed out; pings from before prove nothing
	pinged    time.Time // when the ping that has no pong yet was sent
	pinging   bool
	noted     time.Time // when the last ping that has its pong was sent
	merged    *gossip   // the last that was taken in
	asks      map[uint64]*ask
}

func (m *member) peer(to *member) *peer {
	p := m.peers[to.name]
	if p == nil {
		p = &peer{owner: m, to: to, out: flow{from: m.host, to: to.host}, asks: make(map[uint64]*ask)}
		m.peers[to.name] = p
	}
	return p
}

// send has deliver called with the receiver's side of the pair. A receiver
// that is no more answers with a reset. n.mu is held.
func (p *peer) send(deliver func(*peer)) {
	p.owner.net.send(&p.out, func() {
		there := p.to.peer(p.owner)
		switch {
		case !p.to.closed:
			deliver(there)
		case !p.owner.closed:
			p.owner.net.send(&there.out, p.reset)
		}
	})
}

// ping wants a pong, unless one is on its way: one that is held or slow is not
// added to.
func (p *peer) ping() {
	if p.pinging {
		return
	}
	p.pinging, p.pinged = true, time.Now()
	known := p.owner.known()
	p.send(func(there *peer) {
		m := there.owner
		if there.heard {
			there.merge(known)
		} else {
			there.ping() // what it knows is taken in once it has answered
		}
		answer := m.known()
		there.send(func(p *peer) { p.pong(answer) })
	})
}

// tell sends what the member knows to all that it hears.
func (m *member) tell() {
	known := m.known()
	for _, p := range m.peers {
		if p.heard {
			p.send(func(there *peer) {
				if there.heard {
					there.merge(known)
				}
			})
		}
	}
}

func (p *peer) pong(g *gossip) {
	m := p.owner
	if p.answered.IsZero() {
		m.stats.JoinedCount++
	}
	p.pinging = false
	p.answered = time.Now()
	p.noted = p.pinged
	inTime := time.Since(p.pinged) <= heardFor
	if inTime && !p.heard && !p.pinged.Before(p.blamed) {
		p.heard, m.stale = true, true
	}
	p.merge(g)
	if inTime {
		m.hear()
	} else if m.entries[p.to.name].status == alive {
		p.ping()
	}
	m.progress.wake()
}

// hear has the handler told that somebody has answered in time.
func (m *member) hear() {
	m.heard = true
	m.arrived.wake()
}

// merge takes in what the peer knows.
func (p *peer) merge(g *gossip) {
	if g != p.merged {
		p.merged = g
		p.owner.merge(g)
	}
	p.owner.refresh()
}

// ask is a request that has no answer yet.
type ask struct {
	request []byte
	sent    time.Time
	answer  []byte
	err     error
	done    chan struct{} // closed when answer or err is there; nil once the asker has given up
}

// Ask implements cluster.Peer.
func (p *peer) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	answer = answer[:0]
	if len(request) > cluster.MaxMessage {
		return answer, cluster.ErrTooLarge
	}
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	m := p.owner
	m.net.mu.Lock()
	if err := p.ready(); err != nil {
		m.net.mu.Unlock()
		return answer, err
	}
	m.asks++
	id, done := m.asks, make(chan struct{})
	a := &ask{request: slices.Clone(request), sent: time.Now(), done: done}
	p.asks[id] = a
	p.request(id, slices.Clone(request)) // the handler there may write to its own
	m.net.mu.Unlock()

	var err error
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return append(answer, a.answer...), a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = cluster.ErrTimeout
	case <-m.done:
		err = cluster.ErrClosed
	}

	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if a.done == nil { // it came in the meantime
		return append(answer, a.answer...), a.err
	}
	a.done = nil
	if err == cluster.ErrTimeout {
		m.stats.Timeouts++
		if wait < heardFor {
			p.blame()
		}
	}
	return answer, err
}

// Tell implements cluster.Peer.
func (p *peer) Tell(request []byte) {
	m := p.owner
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if len(request) <= cluster.MaxMessage && !p.owner.closed && len(p.out.queue) < askBound {
		p.request(0, slices.Clone(request))
	}
}

// ready says why nothing can be sent to the peer.
func (p *peer) ready() error {
	switch {
	case p.owner.closed:
		return cluster.ErrClosed
	case !p.heard:
		return cluster.ErrUnheard
	case len(p.asks) >= askBound || len(p.out.queue) >= askBound:
		p.owner.stats.Dropped++
		return cluster.ErrBusy
	}
	return nil
}

func (p *peer) request(id uint64, request []byte) {
	p.send(func(there *peer) {
		m := there.owner
		if len(m.inbox) < inboxBound {
			m.inbox = append(m.inbox, event{from: there, id: id, request: request})
			m.arrived.wake()
		}
	})
}

// reply sends what answers the peer's request.
func (p *peer) reply(id uint64, body []byte) {
	if id == 0 || len(body) > cluster.MaxMessage {
		return
	}
	body = append(make([]byte, 0, len(body)), body...) // not nil
	p.owner.net.mu.Lock()
	defer p.owner.net.mu.Unlock()
	if !p.owner.closed {
		p.send(func(there *peer) { there.settle(id, body, nil) })
	}
}

// settle gives an ask its answer, or what came of it; one that nobody waits
// for any more is the handler's.
func (p *peer) settle(id uint64, answer []byte, err error) {
	a := p.asks[id]
	if a == nil {
		return
	}
	delete(p.asks, id)
	if err == nil {
		p.answered = time.Now()
	}
	switch {
	case a.done != nil:
		if err == nil && time.Since(a.sent) <= heardFor {
			p.owner.hear()
		}
		a.answer, a.err = answer, err
		close(a.done)
		a.done = nil
	case err == nil:
		m := p.owner
		m.stats.Late++
		m.inbox = append(m.inbox, event{from: p, request: a.request, answer: answer})
		m.arrived.wake()
	}
}

// blame makes the peer unheard until it answers a ping sent from now on.
func (p *peer) blame() {
	p.blamed = time.Now()
	if p.heard {
		p.heard, p.owner.stale = false, true
		p.owner.refresh()
	}
}

// reset is the end of the peer's process, noticed: what it has not answered it
// will not.
func (p *peer) reset() {
	p.pinging = false
	ids := make([]uint64, 0, len(p.asks))
	for id := range p.asks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		p.settle(id, nil, cluster.ErrTimeout)
	}
	p.blame()
}

// batch implements cluster.Replier.
type batch struct {
	from *peer
	ids  []uint64 // of the requests; zero where no answer is wanted
}

func (b *batch) Reply(i int, body []byte) { b.from.reply(b.ids[i], body) }

func (b *batch) Later(i int) cluster.Later {
	from, id := b.from, b.ids[i]
	return func(body []byte) { from.reply(id, body) }
}

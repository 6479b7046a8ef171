package weirtest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/detect"
)

// peer implements cluster.Peer. It is the contact of the member in the field owner with the
// member in the field to.
type peer struct {
	owner, to   *member
	out         flow
	answered    time.Time     // when the other member last answered
	delay       time.Duration // the last scheduling delay that the other member reported; after its first pong, at least the round trip of the pong
	owed        time.Time     // when the oldest timed-out request that followed the last answer was sent, or zero
	pings       int           // number of pings without a pong
	waits       time.Time     // when the first ping without a pong was sent, or when the last pong arrived if that is later
	pinged      time.Time     // when the last ping was sent
	noted       time.Time     // when the last answered ping was sent
	merged      *gossip       // the last gossip that was merged
	feed        detect.Feed   // records the rows of the connectivity table that were sent to the other member
	feeding     bool          // a later sendRows is on the agenda
	used        time.Time     // when the last request to the other member was sent while the owner did not watch this member
	asks        map[uint64]*ask
	trips       detect.RoundTrips
	conn        uint64    // number of the connection on which the owner sends requests now
	open        uint64    // lowest number of a connection on which the owner accepts requests of the other member
	newest      uint64    // highest number of a connection on which the other member has sent a message
	lastArrival time.Time // when such a connection last brought a message

	welcome  bool    // the other member has permitted the owner to send requests; only for a peer in foreigners
	abroad   bool    // the peer is in foreigners: the other member belongs to another region, or was contacted as such
	region   *region // the region to which the owner sends requests through the other member, or nil
	reaching bool    // the owner has requested permission to send requests, and the other member has not answered
	admitted bool    // the other member may send requests to the owner
}

func newPeer(from, to *member) *peer {
	return &peer{owner: from, to: to, out: flow{from: from.host, to: to.host}, asks: make(map[uint64]*ask)}
}

func (m *member) peer(to *member) *peer {
	p := m.peers[to.name]
	if p == nil {
		p = newPeer(m, to)
		m.peers[to.name] = p
		m.table.SetMembers(slices.Sorted(maps.Keys(m.peers)))
	}
	return p
}

// isConnected reports whether the owner can send a request to the peer.
func (p *peer) isConnected() bool {
	if p.abroad {
		return p.welcome
	}
	return p.owner.table.IsConnected(p.to.name)
}

// message is a message of a peer.
type message struct {
	from   *peer
	kind   kind
	conn   uint64  // the connection on which the sender sends requests; in a pong, the lowest connection that is open at the sender
	id     uint64  // the number of the request or ping; zero for a request without a response
	body   []byte  // body of a request or an answer
	gossip *gossip // gossip of the sender
	rows   []detect.Row
	// chosen is set in a ping if the sender itself has chosen to watch the receiver.
	chosen bool
	// dialled is when the sender began to open a connection for the request, or zero if
	// there was a connection.
	dialled time.Time
	// answered is set in a ping: the time of the last answer that the sender received
	// from the receiver.
	answered time.Time
	late     time.Duration // scheduling delay of the sender; set only in a pong
}

type kind uint8

const (
	ping kind = iota
	pong
	news
	rows
	request
	answer
	reset   // the sender has ended
	reach   // a node of another region requests permission to ask the receiver
	welcome // the receiver may ask the sender
	refused // the receiver may not ask the sender
)

// usesOwnConnection reports whether a message uses the connection that its sender has
// opened. Other messages return on the connection of the receiver.
func (k kind) usesOwnConnection() bool {
	return k == ping || k == news || k == rows || k == request || k == reach
}

// send sends a message. The caller must hold n.mu.
func (p *peer) send(m message) {
	m.from = p
	if m.kind.usesOwnConnection() {
		m.conn = p.conn
	}
	p.owner.net.send(&p.out, &m)
}

// counterpart returns the peer with which the other member contacts the owner.
func (p *peer) counterpart() *peer {
	if p.abroad {
		return p.to.foreign(p.owner)
	}
	return p.to.peer(p.owner)
}

// arrive handles the message at the receiver. A receiver that has ended answers with a
// reset.
func (m *message) arrive() {
	from := m.from
	there := from.counterpart()
	if there.owner.closed {
		if !from.owner.closed {
			there.send(message{kind: reset})
		}
		return
	}
	if !m.dialled.IsZero() && time.Since(m.dialled) > dialWithin {
		return // the connection was never opened
	}
	if m.kind.usesOwnConnection() {
		there.recordArrival(m.conn)
	}
	if m.kind != reset {
		there.setRefused(false)
	}
	if there.abroad {
		m.handleRegional(there)
		return
	}
	if (m.kind == news || m.kind == rows || m.kind == request) && m.conn < there.open {
		return // the connection of the message was closed long ago
	}
	switch m.kind {
	case ping:
		if m.chosen {
			there.owner.recordChange(there.owner.table.RecordWatcher(there.to.name, time.Now()))
		}
		if there.isConnected() {
			there.owner.table.RecordAnswer(there.to.name, m.answered)
			there.merge(m.gossip)
		} else {
			there.ping() // the gossip of the peer is merged once the peer has answered
		}
		there.send(message{kind: pong, id: m.id, conn: there.open, gossip: there.owner.currentGossip(), late: there.owner.table.Delay()})
	case pong:
		there.pong(m)
		there.reconnect(m.conn)
	case news:
		if there.isConnected() {
			there.merge(m.gossip)
		}
	case rows:
		there.owner.recordChange(there.owner.table.Merge(from.owner.name, m.rows))
		there.owner.refresh()
	case request:
		there.owner.enqueue(handlerItem{from: there, id: m.id, request: m.body})
	case answer:
		there.finishRequest(m.id, m.body, nil)
	case reset:
		there.handleReset()
	}
}

// recordArrival records a message on a connection on which the other side sends requests.
// If no message has arrived for idleFor, or for idleAbroad from another region, this side
// has closed the connection meanwhile. After a cut, TCP sends the earlier data again, but
// no process reads it. A frozen host reads the data in its socket when it thaws, so its
// silence is measured from then.
func (p *peer) recordArrival(conn uint64) {
	idle := idleFor
	if p.abroad {
		idle = idleAbroad
	}
	if conn <= p.newest && !p.lastArrival.IsZero() && time.Since(laterTime(p.lastArrival, p.owner.host.thawed)) >= idle {
		p.open, p.admitted = conn+1, false
	}
	p.newest = max(p.newest, conn)
	p.lastArrival = time.Now()
}

// reconnect continues on a connection that is open at the other side, if the other side
// has closed the present connection. Requests without an answer on the closed connection
// fail.
func (p *peer) reconnect(open uint64) {
	if p.conn < open {
		p.conn = open
		p.failRequests()
	}
}

// ping sends a ping, unless many pings wait for a pong because they are held or slow, or
// one of these was sent at this instant.
func (p *peer) ping() {
	m, now := p.owner, time.Now()
	if p.pings == heldPings || p.pings > 0 && p.pinged.Equal(now) {
		return
	}
	if p.pings == 0 {
		p.waits = now
	}
	m.pings++
	p.pings, p.pinged = p.pings+1, now
	m.table.RecordPing(p.to.name, m.pings, now)
	m.table.Examine(p.to.name, now)
	_, chosen := m.table.IsWatched(p.to.name)
	p.send(message{kind: ping, id: m.pings, gossip: m.currentGossip(), answered: p.answered, chosen: chosen})
}

// sendGossip sends the gossip of this member to every member that it watches and is
// connected to, except the member that sent the news.
func (m *member) sendGossip(from *peer) {
	known := m.currentGossip()
	for _, p := range inOrder(m.peers) {
		if watched, _ := m.table.IsWatched(p.to.name); watched && p != from && p.isConnected() {
			p.send(message{kind: news, gossip: known})
		}
	}
}

func (p *peer) pong(pong *message) {
	m, now := p.owner, time.Now()
	m.table.SetDelay(p.to.name, pong.late)
	p.delay = pong.late
	if p.answered.IsZero() {
		m.stats.JoinedCount++
		m.answered[p.to.host] = true
	}
	if p.pings == 0 {
		return // the ping was sent before a reset
	}
	p.pings--
	p.waits = now
	took, inTime, changed := m.table.RecordPong(p.to.name, pong.id, now)
	m.recordChange(changed)
	if p.answered.IsZero() {
		p.delay = max(p.delay, took)
	}
	p.noted = now.Add(-took)
	p.recordReaction(took)
	p.merge(pong.gossip)
	if inTime {
		m.notifyAnswered()
	}
	if !p.isConnected() && m.inRoster(p.to.name) {
		p.ping()
	}
	m.progress.wake()
}

// recordReaction records an answer that arrived this long after its request.
func (p *peer) recordReaction(took time.Duration) {
	m := p.owner
	p.trips.Record(took)
	p.answered, p.owed = time.Now(), time.Time{}
	if p.abroad {
		return
	}
	m.table.RecordAnswer(p.to.name, p.answered)
	m.recordChange(m.table.RecordMessage(p.to.name))
	m.refresh()
}

// recordTimeout records a request that timed out. Some time after the request was sent,
// the peer is stalled unless it has answered.
func (p *peer) recordTimeout(sent time.Time) {
	if p.answered.After(sent) || !p.owed.IsZero() {
		return
	}
	p.owner.table.Examine(p.to.name, sent)
	p.owed = sent
	p.ping()
	timeout := max(detect.StallTimeout, p.trips.Timeout())
	due := sent.Add(timeout)
	p.owner.net.addEvent(due, p.out.link.number, true, stall{p, sent, timeout, due})
}

// stall is an event that checks whether a peer with an unanswered request is stalled.
type stall struct {
	peer    *peer
	sent    time.Time     // when the request was sent
	timeout time.Duration // time after sent after which the peer is stalled
	due     time.Time     // planned time of this check
}

func (s stall) isVoid() bool {
	return s.peer.owner.closed || !s.peer.owed.Equal(s.sent) || !s.peer.isConnected()
}

func (s stall) occur() {
	m, now := s.peer.owner, time.Now()
	switch {
	case m.isPaused():
		m.net.addEvent(m.catchUpTime(), s.peer.out.link.number, true, s)
	case m.table.CheckStall(s.peer.to.name, s.sent, s.timeout, s.due, now):
		m.stale = true
		m.refresh()
	default:
		s.due = now.Add(lookEvery)
		m.net.addEvent(s.due, s.peer.out.link.number, true, s)
	}
}

// notifyAnswered makes serve notify the handler that a member has answered in time.
func (m *member) notifyAnswered() {
	m.hasAnswers = true
	m.wake()
}

// merge merges the gossip of the peer.
func (p *peer) merge(g *gossip) {
	if g != p.merged {
		p.merged = g
		if p.owner.merge(g) && p.owner.table.IsSparse() {
			p.owner.sendGossip(p) // in a small cluster, the peer has sent this gossip to all members
		}
	}
	p.owner.refresh()
}

// ask is a request that waits for an answer.
type ask struct {
	to         *peer
	request    []byte
	sent       time.Time
	wait       time.Duration
	over       bool // answer or err is set, or the caller has given up
	mustNotify bool // the caller must notify the handler that the request was answered in time
	answer     []byte
	err        error
	done       chan struct{} // has room for the value that reports the end of the request
}

// Ask implements cluster.Peer.
func (p *peer) Ask(ctx context.Context, body, dst []byte, wait time.Duration) ([]byte, error) {
	dst = dst[:0]
	if len(body) > cluster.MaxMessage {
		return dst, cluster.ErrTooLarge
	}
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	m := p.owner
	m.net.mu.Lock()
	if err := p.checkReady(); err != nil {
		m.net.mu.Unlock()
		return dst, err
	}
	m.asks++
	dialled := p.recordUse()
	a := &ask{to: p, request: slices.Clone(body), sent: time.Now(), wait: wait, done: make(chan struct{}, 1)}
	p.asks[m.asks] = a
	p.send(message{kind: request, id: m.asks, body: slices.Clone(body), dialled: dialled}) // the handler there may write to its copy
	p.sortRequest()
	m.net.addEvent(a.sent.Add(wait), p.out.link.number, true, a)
	m.net.mu.Unlock()

	select {
	case <-a.done:
	case <-ctx.Done():
		m.net.mu.Lock()
		came := a.over // whether the request has ended meanwhile
		a.over = true
		m.net.mu.Unlock()
		if !came {
			return dst, ctx.Err()
		}
	}
	if a.mustNotify {
		m.handler.Answered()
	}
	return append(dst, a.answer...), a.err
}

// sortRequest sorts the request that was just sent into the requests of this instant, by
// contents. The seed does not determine which of the asking goroutines is first.
func (p *peer) sortRequest() {
	q := p.out.queue
	for i := len(q) - 1; i > 0; i-- {
		last, before := q[i].(*message), q[i-1].(*message)
		a := p.asks[before.id]
		if before.kind != request || a == nil || !a.sent.Equal(time.Now()) || bytes.Compare(before.body, last.body) <= 0 {
			return
		}
		q[i-1], q[i] = last, before
	}
}

// finish lets the caller of Ask continue. A call of finish must be the last step, because
// the caller reads the view without Network.mu.
func (a *ask) finish(answer []byte, err error) {
	a.over, a.answer, a.err = true, answer, err
	a.done <- struct{}{}
}

func (a *ask) isVoid() bool { return a.over }

// occur handles the end of the wait.
func (a *ask) occur() {
	if m := a.to.owner; m.isPaused() {
		m.net.addEvent(m.catchUpTime(), a.to.out.link.number, true, a)
		return
	} else if until := a.sent.Add(a.wait + m.host.pauses.pausedBetween(a.sent, time.Now())); time.Now().Before(until) {
		m.net.addEvent(until, a.to.out.link.number, true, a) // pauses of the process have extended the wait
		return
	}
	a.to.owner.stats.Timeouts++
	if !a.to.abroad {
		a.to.recordTimeout(a.sent)
	}
	a.finish(nil, cluster.ErrTimeout)
}

// Send implements cluster.Peer.
func (p *peer) Send(body []byte) {
	m := p.owner
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if len(body) <= cluster.MaxMessage && !m.closed && len(p.out.queue) < askBound {
		p.send(message{kind: request, body: slices.Clone(body), dialled: p.recordUse()})
	}
}

// recordUse records a request to a member that the owner of p does not watch. It returns
// the present time if the request opens a new connection, because the last such request
// was more than usedEvery ago. Otherwise it returns the zero Time.
func (p *peer) recordUse() (dialled time.Time) {
	if watched, _ := p.owner.table.IsWatched(p.to.name); watched || p.abroad {
		return time.Time{}
	}
	now := time.Now()
	if now.Sub(p.used) > usedEvery {
		p.conn, dialled = p.conn+1, now
	}
	p.used = now
	return dialled
}

// Delay implements cluster.Peer.
func (p *peer) Delay() time.Duration {
	p.owner.net.mu.Lock()
	defer p.owner.net.mu.Unlock()
	return p.delay
}

// Protocol implements cluster.Peer. All simulated members are of this release.
func (p *peer) Protocol() cluster.Protocol {
	p.owner.net.mu.Lock()
	defer p.owner.net.mu.Unlock()
	if !p.isConnected() {
		return cluster.Protocol{}
	}
	return spoken
}

var spoken = cluster.Protocol{Version: cluster.Version}

// checkReady returns the reason why the peer cannot be asked, or nil.
func (p *peer) checkReady() error {
	switch {
	case p.owner.closed:
		return cluster.ErrClosed
	case !p.isConnected():
		return cluster.ErrDisconnected
	case !p.abroad && p.owner.table.IsStalled(p.to.name):
		return cluster.ErrStalled
	case len(p.asks) >= askBound || len(p.out.queue) >= askBound:
		p.owner.stats.Dropped++
		return cluster.ErrBusy
	}
	return nil
}

// reply sends the answer to a request of the peer.
func (p *peer) reply(id uint64, body []byte) {
	if id == 0 || len(body) > cluster.MaxMessage {
		return
	}
	body = append(make([]byte, 0, len(body)), body...) // not nil
	p.owner.net.mu.Lock()
	defer p.owner.net.mu.Unlock()
	if !p.owner.closed {
		p.send(message{kind: answer, id: id, body: body})
	}
}

// finishRequest passes the answer or the error to the caller of a request. If the caller
// no longer waits, an answer from this region goes to the handler.
func (p *peer) finishRequest(id uint64, answer []byte, err error) {
	a := p.asks[id]
	if a == nil {
		return
	}
	delete(p.asks, id)
	if err == nil {
		p.recordReaction(time.Since(a.sent))
	}
	switch {
	case !a.over:
		if err == nil && !p.abroad && time.Since(a.sent) <= detect.MaxAnswerAge {
			if a.mustNotify = p.owner.resting; !a.mustNotify {
				p.owner.notifyAnswered() // after the other items for the handler
			}
		}
		a.finish(answer, err)
	case err == nil:
		m := p.owner
		m.stats.Late++
		if p.abroad {
			return
		}
		m.inbox = append(m.inbox, handlerItem{from: p, request: a.request, answer: answer})
		m.wake()
	}
}

// setRefused records whether the host of the peer refuses messages.
func (p *peer) setRefused(refused bool) {
	if !p.abroad {
		p.owner.recordChange(p.owner.table.SetRefused(p.to.name, refused))
	}
}

// handleReset handles the end of the peer's process, or of the connections with it:
// requests without an answer fail. The first reset ends the connection, and the next reset
// refuses a new connection. If another member of the cluster has started on the host since
// the process ended, the peer is dead at once.
func (p *peer) handleReset() {
	m, name := p.owner, p.to.name
	ended := p.isConnected()
	p.pings, p.owed = 0, time.Time{}
	m.recordChange(m.table.RecordFailure(name, time.Now()))
	p.setRefused(!ended)
	m.refresh()
	if next := p.to.host.process.member; p.to.closed && next != nil && m.belongsWith(next) && !m.view.Load().OnSide(name) {
		m.applyEvent(func(r *detect.Roster) detect.Change { return r.Replace(name, time.Now()) })
		m.refresh()
	}
	p.failRequests()
}

// handleBreak handles the end of the connections to and from the peer, which this side
// notices at once. The data on these connections is lost.
func (p *peer) handleBreak() {
	p.out.dropAll()
	p.lastArrival = time.Time{}
	if p.abroad {
		p.handleDrop()
		return
	}
	p.handleReset()
}

// failRequests ends all requests without an answer. All rows of the connectivity table are
// sent to the peer again.
func (p *peer) failRequests() {
	p.feed, p.owner.spread = detect.Feed{}, 0
	for _, id := range slices.Sorted(maps.Keys(p.asks)) {
		p.finishRequest(id, nil, cluster.ErrBroken)
	}
}

// batch implements cluster.Replier.
type batch struct {
	from *peer
	ids  []uint64 // numbers of the requests; zero for a request without a response
}

func (b *batch) Reply(i int, body []byte) { b.from.reply(b.ids[i], body) }

func (b *batch) Defer(i int) cluster.Later {
	from, id := b.from, b.ids[i]
	return func(body []byte) { from.reply(id, body) }
}

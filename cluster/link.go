package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

const (
	// pingPace is the time between pings to a watched member while pongs arrive. All nodes send these
	// pings at the multiples of pingPace in Unix time, so that an idle process wakes once for all pings.
	// If the clocks of the nodes differ, the process wakes up more often.
	pingPace = 300 * time.Millisecond
	// lookPace is the time from a ping to the check for its pong. Without a pong, the next ping is sent. If
	// the previous ping has its pong, the check is made at the next multiple of pingPace, because another
	// appointment would wake an idle process.
	lookPace = 100 * time.Millisecond
	// dialPace is the time between attempts to connect. For a member that is dead according to gossip
	// the time doubles with each attempt, up to dialPaceDead.
	dialPace     = time.Second
	dialPaceDead = 8 * time.Second
	// dialWait bounds an attempt if this process has no scheduling delay. dialWait is shorter than
	// dialPace minus the jitter.
	dialWait = 850 * time.Millisecond
)

// link sends the requests of this node to a member, and is the Peer of the member. It has a connection
// while this node watches the member or uses the connection. When a new connection replaces an old one,
// the old connection is read until no more answers are expected.
//
// The keeper connects and pings, and no other goroutine stores a new session. Callers never dial and
// never write, so an ask takes no longer than its wait, whatever the network does.
type link struct {
	asking
	peers *peers
	name  string
	addr  string

	// connected, stalled, watched and chosen are copies of the state of the member in
	// peers.table, for callers. They are written under peers.mu.
	connected atomic.Bool
	stalled   atomic.Bool
	watched   atomic.Bool
	chosen    atomic.Bool

	delay  atomic.Int64 // nanoseconds: see Delay
	used   atomic.Int64 // nanoseconds from peers.began to the last use while the member was not watched; 0 if there was none
	rests  atomic.Bool  // the connection rests: see ondemand.go
	opened broadcast    // wakes the asks that wait for a connection
	held   held         // the tells that wait for a connection

	met    firstMeeting  // the first handshake of the member with this node
	dead   atomic.Bool   // the member is dead according to gossip
	events atomic.Uint32 // the set of events that the keeper must handle; while it is not empty, the link is in keeper.ready, or is about to be added or handled

	// The keeper owns the following fields.
	upkeep *upkeep // nil if the link is idle
	gone   bool    // eventGone was handled
	silent bool    // the last session has ended, and not because the member closed the connection
	pings  uint64  // number of pings sent
}

func newLink(p *peers, name, addr string) *link {
	return &link{peers: p, name: name, addr: addr, met: newFirstMeeting()}
}

// redial makes the link dial its member, unless the member is connected. The attempt begins at least
// lookPace after the last attempt began.
func (l *link) redial() {
	if !l.connected.Load() {
		l.post(eventAlive)
	}
}

// Ask implements Peer.
func (l *link) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	s := l.use()
	switch {
	case !l.connected.Load():
		s = nil
	case l.stalled.Load():
		return answer[:0], ErrStalled
	case s == nil && wait > 0 && len(request) <= MaxMessage:
		var err error
		if s, wait, err = l.open(ctx, wait); err != nil {
			return answer[:0], err
		}
	}
	return ask(ctx, l, s, request, answer, wait)
}

// Delay implements Peer.
func (l *link) Delay() time.Duration { return time.Duration(l.delay.Load()) }

// ask sends a request over s. s is nil if w has no session, or if the member is disconnected.
func ask(ctx context.Context, w way, s *session, request, answer []byte, wait time.Duration) ([]byte, error) {
	answer = answer[:0]
	if len(request) > MaxMessage {
		return answer, fmt.Errorf("%w: it has %d bytes, and the maximum is %d", ErrTooLarge, len(request), MaxMessage)
	}
	if s == nil {
		return answer, w.unreachableError()
	}
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	if wait <= 0 {
		return answer, ErrTimeout
	}
	return s.ask(ctx, request, answer, wait)
}

func (l *link) unreachableError() error {
	if l.peers.ctx.Err() != nil {
		return ErrClosed
	}
	return ErrDisconnected
}

// handleEnd marks the member disconnected, unless a new session has replaced s.
func (l *link) handleEnd(s *session) {
	if l.session.CompareAndSwap(s, nil) {
		l.peers.step(l, func(c *detect.Connectivity) bool { return c.RecordFailure(l.name, time.Now()) })
	}
}

func (l *link) handleRecord(body []byte) error {
	if take := l.peers.cfg.HandleRecord; take != nil {
		take(l.name, body)
	}
	return nil
}

func (l *link) recordProof() { l.peers.handler.Answered() }

func (l *link) handleLate(request, answer []byte) { l.peers.handler.HandleLate(l, request, answer) }

func (l *link) handleMissed(s *session) {
	if l.session.Load() == s {
		l.post(eventMissed)
	}
}

func (l *link) handleResumed(s *session) {
	if l.session.Load() == s {
		l.peers.step(l, func(c *detect.Connectivity) bool { return c.RecordMessage(l.name) })
	}
}

// handlePong handles a pong, which contains the scheduling delay of the member. The results are the
// round-trip time, and whether the pong has arrived in time.
func (l *link) handlePong(s *session, f frame) (took time.Duration, inTime bool, err error) {
	if len(f.body) < pongSize {
		return 0, false, fmt.Errorf("%w: a pong has %d bytes, and needs at least %d", errGarbage, len(f.body), pongSize)
	}
	late := min(time.Duration(binary.BigEndian.Uint32(f.body))*time.Millisecond, maxSaid)
	if l.session.Load() != s {
		return 0, false, nil
	}
	now := time.Now()
	l.peers.step(l, func(c *detect.Connectivity) (changed bool) {
		took, inTime, changed = c.RecordPong(l.name, f.id, now)
		c.SetDelay(l.name, late)
		return changed
	})
	l.delay.Store(int64(delayOf(late, now.Sub(s.start))))
	if l.rests.Load() {
		l.post(eventPonged)
	}
	return took, inTime, nil
}

// newFor is how long a connection counts as new. The member may have started just before, and so may
// have measured too little to report its delay.
const newFor = time.Second

// delayOf returns the scheduling delay of a member that has reported a delay over a connection of the
// given age. Over a new connection, the result is at least newFor.
func delayOf(reported, age time.Duration) time.Duration {
	if age < newFor {
		return max(reported, newFor)
	}
	return reported
}

// ping sends a ping over s.
func (l *link) ping(s *session, now time.Time) {
	l.pings++
	var body [pingSize]byte
	l.peers.step(l, func(c *detect.Connectivity) bool {
		c.RecordPing(l.name, l.pings, now)
		return false
	})
	binary.BigEndian.PutUint32(body[:], uint32(min(s.silence(), maxSaid)/time.Millisecond))
	if l.watched.Load() {
		body[4] |= flagWatches
	}
	if l.chosen.Load() {
		body[4] |= flagChosen
	}
	if l.rests.Load() {
		body[4] |= flagWakes
	}
	s.out.put(kindPing, l.pings, body[:])
	s.forget(now)
}

// checkMember checks whether the member on s is silent or has stalled, and reports whether no ping waits
// for a pong. The argument due is the time for which the check was planned.
func (l *link) checkMember(s *session, due, now time.Time) (ponged bool) {
	answered := now.Add(-s.silence())
	l.peers.step(l, func(c *detect.Connectivity) bool {
		c.RecordAnswer(l.name, answered)
		changed := c.CheckSilence(l.name, due, now)
		if owed, stalls := s.unansweredSince(); owed > 0 {
			changed = c.CheckStall(l.name, s.start.Add(owed), stalls, due, now) || changed
		}
		ponged = !c.IsAwaited(l.name)
		return changed
	})
	return ponged
}

// upkeep is the state of a link while the keeper connects it or keeps it connected. Only the goroutine of
// the keeper uses it.
//
// Asks use only the session of the link. A silent session stays until a new session exists: the path
// may be broken, or the member may be frozen and continue later. While there is a session, the
// appointment look is planned.
//
// Answers that a busy machine delays may grant units, which are refunded when the answers arrive. So a
// replaced session is read until each ask is answered or lateFor has passed. The replaced session ends
// earlier if a further session is replaced, or if the other side closes it because no frames arrive.
type upkeep struct {
	*link
	index int       // index in keeper.open
	next  time.Time // when the keeper next checks the appointments

	s       *session         // nil if there is no session
	begun   time.Time        // when s began
	pinged  time.Time        // when the last ping was sent
	tried   time.Time        // when the last attempt to connect began; eventAlive causes a new attempt lookPace later at the earliest
	dialed  chan dialOutcome // receives the outcome of the current attempt; nil if there is none
	abandon func()           // ends that attempt
	pace    time.Duration    // the time between attempts
	dial    appointment      // when the next attempt to connect begins
	look    appointment      // when the member is checked next
	before  *session         // the last replaced session, while it is read; nil if there is none
	drain   appointment      // when before is checked: see checkDrained

	feed    detect.Feed
	feeding appointment // when more rows may be sent
	waking  time.Time   // when the ping that wakes the resting connection was sent; zero before that
}

// handle handles events, the events of sessions first.
func (u *upkeep) handle(e event) {
	if u.gone = u.gone || e&eventGone != 0; u.gone {
		u.shutDown()
		if e&eventDialed != 0 {
			u.discardDialed()
		}
		return
	}
	if e&eventEnded != 0 && u.s != nil && u.s.closed.Load() {
		u.handleLoss()
	}
	if e&eventDialed != 0 {
		u.replaceSession(<-u.dialed)
	}
	if e&eventArranged != 0 {
		u.rearrange()
	}
	if e&eventAlive != 0 && !u.connected.Load() {
		u.pace = dialPace
		u.dial.planIn(max(0, time.Until(u.tried.Add(lookPace))))
	}
	if e&eventWanted != 0 {
		u.handleWanted()
	}
	if e&eventPonged != 0 {
		u.wakeUp()
	}
	if e&eventMissed != 0 {
		u.pingNow()
	}
	if e&eventRows != 0 {
		u.sendRows()
	}
}

// handleDue performs the actions of the appointments that are due.
func (u *upkeep) handleDue(now time.Time) {
	if u.dial.takeDue(now) {
		u.tryDial()
	}
	if u.look.takeDue(now) {
		u.judge()
	}
	if u.drain.takeDue(now) {
		u.checkDrained()
	}
	if u.feeding.takeDue(now) {
		u.sendRows()
	}
}

// isIdle reports whether there is no session, no attempt to connect and no planned appointment.
func (u *upkeep) isIdle() bool {
	return u.s == nil && u.before == nil && u.dialed == nil && !u.dial.planned && !u.look.planned && !u.feeding.planned
}

// dialOutcome is the outcome of an attempt to connect: a session, or an error.
type dialOutcome struct {
	session *session
	err     error
}

// drainLook is the time between two checks of a replaced session.
const drainLook = 100 * time.Millisecond

// close closes the connections, and waits for the current attempt to connect. The keeper handles no
// event after that.
func (u *upkeep) close() {
	u.shutDown()
	u.discardDialed()
}

// shutDown closes the connections, and abandons the current attempt to connect.
func (u *upkeep) shutDown() {
	for _, s := range []*session{u.s, u.before} {
		if s != nil {
			s.shut()
		}
	}
	if u.dialed != nil {
		u.abandon()
	}
	u.s, u.before = nil, nil
	for _, a := range []*appointment{&u.dial, &u.look, &u.drain, &u.feeding} {
		a.cancel()
	}
}

// discardDialed waits for the current attempt to connect, and closes the connection that it has opened.
func (u *upkeep) discardDialed() {
	if u.dialed == nil {
		return
	}
	if next := (<-u.dialed).session; next != nil {
		sever(next.conn)
	}
	u.dialed = nil
}

// isAnswering reports whether the session has been silent for less than detect.MaxAnswerAge.
func (u *upkeep) isAnswering() bool { return u.s != nil && u.s.silence() < detect.MaxAnswerAge }

// needsSession reports whether a link that needs a connection needs a new session for it.
func (u *upkeep) needsSession() bool {
	return !u.isAnswering() && (u.watched.Load() || u.s == nil || !u.connected.Load())
}

// tryDial begins an attempt to connect if a connection is needed now. While the session answers, no
// further attempt is planned, because each appointment would wake an idle process. judge plans the next
// attempt.
func (u *upkeep) tryDial() {
	wait := u.connectWait(u.dial.due, time.Now())
	u.dial.planIn(u.pace - u.pace/10 + rand.N(u.pace/5))
	u.pace = min(2*u.pace, dialPaceDead)
	if !u.dead.Load() {
		u.pace = dialPace
	}
	switch {
	case u.dialed != nil:
		return // an attempt is under way: the next call, which is planned, decides
	case !u.isWanted():
		u.dial.cancel()
		u.closeUnused()
		return
	}
	if !u.needsSession() {
		u.dial.cancel()
		return
	}
	u.tried = time.Now()
	if !u.watched.Load() {
		u.look.planAt(u.tried.Add(detect.StallTimeout))
	}
	ctx, cancel := context.WithCancel(u.peers.ctx)
	dialed := make(chan dialOutcome, 1)
	u.dialed, u.abandon = dialed, cancel
	u.peers.wg.Go(func() {
		defer cancel()
		s, err := u.connect(ctx, wait)
		dialed <- dialOutcome{s, err}
		u.post(eventDialed)
	})
}

// replaceSession replaces the session by the session that an attempt has opened, unless the old session
// answers again.
func (u *upkeep) replaceSession(d dialOutcome) {
	u.dialed = nil
	next := d.session
	if next == nil {
		if u.s == nil {
			u.peers.step(u.link, func(c *detect.Connectivity) bool { return c.RecordFailure(u.name, time.Now()) })
		}
		u.held.takeAll()
		if u.setRefused(d.err, u.silent || u.s != nil) {
			u.dial.planIn(lookPace) // the process may be ending: its kernel will close that connection too
		}
		return
	}
	if u.isAnswering() {
		sever(next.conn)
		return
	}
	u.session.Store(next) // before the old session ends, because its end would disconnect the member
	if u.s != nil {
		u.s.retire()
		if u.s.closed.Load() || u.s.isIdle() {
			u.s.shut() // no answer is awaited over it
		} else {
			if u.before != nil {
				u.before.shut() // a member has at most two sessions
			}
			u.before = u.s
			u.drain.planIn(drainLook)
		}
	}
	u.s, u.begun = next, time.Now()
	u.feed, u.waking = detect.Feed{}, time.Time{}
	u.peers.wg.Go(func() { next.readUntilEnd(func() { u.post(eventEnded) }) })
	u.s.introduce() // before the ping, so that a tombstone comes before the pong
	u.pingAt(u.begun)
	u.sendRows()
	u.makeReady()
}

// checkDrained shuts the replaced session once no answer is awaited.
func (u *upkeep) checkDrained() {
	if u.before == nil {
		return
	}
	u.before.forget(time.Now())
	if !u.before.isIdle() && !u.before.closed.Load() {
		u.drain.planIn(drainLook)
		return
	}
	u.before.shut()
	u.before = nil
}

// handleLoss is called when the session has ended. The member is dialled at once if the session lasted
// longer than dialPace or no attempt is planned, and otherwise when the planned attempt is due.
func (u *upkeep) handleLoss() {
	u.silent = !u.s.hungUp.Load()
	u.s = nil
	u.look.cancel()
	if time.Since(u.begun) > dialPace || !u.dial.planned { // tryDial has cancelled the next attempt
		u.dial.planIn(0)
	}
}

func (u *upkeep) pingAt(now time.Time) {
	u.ping(u.s, now)
	u.pinged = now
	u.look.planAt(now.Add(lookPace))
}

// pingNow pings a member that has left an ask unanswered, and plans a look for the time at which
// the member may have stalled.
func (u *upkeep) pingNow() {
	if u.s == nil {
		return
	}
	u.pingAt(time.Now())
	if owed, stalls := u.s.unansweredSince(); owed > 0 {
		u.look.planAt(u.s.start.Add(owed + stalls))
	}
}

// judge checks the member, sends a ping if a ping is due, and plans an attempt to connect if the session
// does not answer.
func (u *upkeep) judge() {
	now := time.Now()
	if u.s == nil {
		u.judgeDial(now)
		return
	}
	if !u.dial.planned && u.needsSession() {
		u.dial.planIn(rand.N(dialPace))
	}
	if !u.watched.Load() {
		u.judgeUnwatched(now)
		return
	}
	ponged := u.checkMember(u.s, u.look.due, now)
	if !ponged || now.Sub(u.pinged) >= pingPace/2 { // the first ping may be sent just before a multiple of pingPace
		u.pingAt(now)
	}
	if ponged {
		u.look.planAt(nextPing(now))
	}
}

// nextPing returns the first multiple of pingPace after now.
func nextPing(now time.Time) time.Time {
	return now.Add(pingPace - time.Duration(now.UnixNano())%pingPace)
}

// connectWait returns how long the next attempt may take. The scheduling delay of this process is
// added, as for the time that members have to answer. Otherwise a process that gets little time would
// give up each attempt during the handshake, and never connect. The argument due is the time for which
// the attempt was planned.
func (l *link) connectWait(due, now time.Time) time.Duration {
	late := time.Duration(0)
	l.peers.step(l, func(c *detect.Connectivity) bool {
		c.RecordCheck(due, now)
		late = c.Delay()
		return false
	})
	return dialWait + detect.ExtraTime(late, 0)
}

// connect opens a connection and performs the handshake, within wait or until ctx is done. Before that,
// an attempt to connect to a member that this node has never met waits for its turn.
func (l *link) connect(ctx context.Context, wait time.Duration) (*session, error) {
	defer l.peers.unmet.wait(ctx, l.met)()
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, peer, err := l.peers.dial(limited, l.addr, l.peers.cfg.Self.Region)
	if err == nil && peer.Name != l.name {
		sever(conn)
		err = l.wrongMemberError(peer)
	}
	if err != nil {
		if ctx.Err() == nil {
			l.peers.trouble.add(l.name, l.addr, err)
		}
		return nil, err
	}
	l.peers.recordAnswerer(l, peer)
	return newSession(l.peers, l, conn, peer), nil
}

// wrongMemberError returns the error for an attempt to connect to the member of l, if a different member
// has answered at the address. The argument peer is the hello of the member that has answered. If that
// member advertises the same address, and the two members were not alive at the same time,
// wrongMemberError calls Replaced. If it advertises a different address, this node reached it by mistake,
// for example by a stale name.
func (l *link) wrongMemberError(peer hello) error {
	self := l.peers.cfg.Self
	if peer.Addr == l.addr && (l.peers.isCalling(l.name) || l.peers.wereAliveTogether(l.name, peer.Name)) {
		return fmt.Errorf("%w: %s and %s advertise %s", errShared, l.name, peer.Name, l.addr)
	}
	if peer.Addr == l.addr && l.peers.cfg.Replaced != nil {
		l.peers.cfg.Replaced(l.name)
	}
	if peer.Name == self.Name {
		return fmt.Errorf("%w: %s advertises %s, where %s answers", errSelf, l.name, l.addr, self.Name)
	}
	return fmt.Errorf("%w: it is %s", errName, peer.Name)
}

// violation returns the reason in Stats.Refused for a connection that ended with err because of invalid
// frames or a timeout, and "" for any other end.
func violation(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, errVersion):
		return reasonVersion
	case errors.Is(err, errOversized):
		return reasonOversized
	case errors.Is(err, errGarbage):
		return reasonGarbage
	case isTLSError(err): // the TLS handshake is over, so a record is invalid
		return reasonRecord
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	}
	return ""
}

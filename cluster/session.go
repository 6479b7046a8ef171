package cluster

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

const (
	// maxPending bounds the unanswered asks of a connection, including those whose askers
	// have given up.
	maxPending = 64 << 10
	// maxPendingBytes bounds the bytes of the requests of these asks.
	maxPendingBytes = 16 << 20
	// lateFor is how long a session waits for an answer after its asker has given up.
	lateFor = 10 * time.Second
	// looksPerWait is the number of looks at an ask while it waits, if these are at least lookAgain
	// apart. With fewer looks, a session detects less of the time in which this process did not run. With
	// more looks, an ask takes longer in a process that is late for each look.
	looksPerWait = 4
	// lookAgain is the time between a late look and the next look. By then the writer has
	// written, and the reader has read, if this process runs.
	lookAgain = detect.TimerTolerance
	// keepRequest is the largest request buffer that a free slot keeps.
	keepRequest = 1 << 10
)

// way is the owner of a session: a link to a member, or a region.
type way interface {
	// unreachableError returns the reason why no request can be sent.
	unreachableError() error
	// handleMissed is called when an ask is unanswered: its wait, or detect.StallTimeout, has passed, and
	// no frame has arrived since the ask was sent. It is called once until the next frame arrives.
	// unansweredSince returns the time since which the session has waited.
	handleMissed(s *session)
	// handleResumed is called when a frame arrives after a call of handleMissed.
	handleResumed(s *session)
	// handlePong handles a pong. The results are the round-trip time, and whether the pong is in time.
	handlePong(s *session, f frame) (took time.Duration, inTime bool, err error)
	// handleRecord handles a record that the other side has sent.
	handleRecord(body []byte) error
	// recordProof is called when an answer, or a pong, has arrived in time.
	recordProof()
	// handleLate handles an answer that arrives after the asker has given up.
	handleLate(request, answer []byte)
	// handleEnd is called when the session is over, before the waiting askers are notified.
	handleEnd(s *session)
}

// session is a connection to a node after the handshake, with the asks that are under way. A session
// ends with its connection.
//
// Each ask ends exactly once: with an answer, with the end of the session, or when the asker gives up.
// A compare-and-swap of the state of the slot decides between these. If a slot ended twice, an answer
// would be appended to the buffer of the next asker. Once over is set, no ask begins. shut sets over
// after way.handleEnd, so that the member is already disconnected when an asker receives the error.
// retire sets over when way has a new session.
type session struct {
	peers  *peers
	way    way
	conn   net.Conn
	out    *outbox
	speaks Protocol
	closed atomic.Bool
	hungUp atomic.Bool // the other side has closed the connection, by FIN or RST; set before the reader has ended

	answered   atomic.Int64 // nanoseconds from start to the last frame
	listens    atomic.Int64 // nanoseconds from start to when the reader began to wait for a frame; the constant never while it handles frames
	unanswered atomic.Int64 // nanoseconds from start to the sending of the ask that was first found unanswered since the last frame, 0 if there is none
	trip       atomic.Int64 // smoothed mean of the round trips in nanoseconds; 0 before the first
	late       atomic.Int64 // nanoseconds after which an answer is late, computed from the round trips
	start      time.Time

	// out.mu guards the following fields, so that an ask locks a single mutex, once to take its slot and
	// to queue its frame, and once to free the slot.
	slots   []*slot
	free    []*slot
	bytes   int // sum of the bytes of the requests in slots
	over    bool
	running detect.RunningClock // the time in which this process has run since start
	alarm   *time.Timer         // calls checkWaits at the time of the next look

	givenUp atomic.Int64 // number of slots that wait for a late answer
}

// slot is the place of an ask that is under way. The goroutine that moves state out of slotWaiting
// decides how the ask ends, and no other goroutine writes answer and err. The generation in state is
// also in the id of the ask, and differs for each ask of a slot, so that a late answer does not reach a
// later ask.
type slot struct {
	index   uint32
	state   atomic.Uint64 // generation<<2 | one of the states below
	request []byte        // a copy, for Handler.HandleLate
	answer  []byte        // the asker's buffer, while the asker waits
	err     error
	gaveUp  atomic.Int64  // when the asker gave up, in nanoseconds from the start of the session
	sent    time.Duration // when the ask was sent, from the start of the session; owned by the goroutine that has the slot
	wait    time.Duration // how long the asker waits. Guarded by out.mu
	until   time.Duration // the deadline on the clock session.running; the constant never once the asker was woken for it. Guarded by out.mu
	proves  time.Duration // latest time of an answer in time, from the start of the session: see Handler.Answered; owned by the goroutine that has the slot
	wake    chan wake     // holds each reason at most once
}

// wake is the reason that the asker wakes up.
type wake uint8

const (
	overdue wake = iota // the wait has passed: the asker gives up
	retired             // a new session has replaced this session: the asker gives up
	ended               // answer and err are set
	wakes               // the number of reasons
)

const never = time.Duration(1<<63 - 1)

const (
	slotFree    uint64 = iota // free, or being filled or ended by a single goroutine
	slotWaiting               // the asker waits
	slotGivenUp               // the asker has given up
)

// newSession returns a session over conn with the node whose hello is peer.
func newSession(p *peers, w way, conn net.Conn, peer hello) *session {
	s := &session{
		peers: p,
		way:   w,
		conn:  conn,
		out:   newOutbox(conn, &p.wg),
		start: time.Now(),
	}
	s.alarm = time.AfterFunc(never, s.checkWaits)
	s.alarm.Stop()
	s.speaks, _ = p.cfg.Self.agree(peer) // the handshake has ended otherwise
	return s
}

// takeSlot returns a slot with a copy of request, or nil if a bound is reached. The caller must
// hold out.mu.
func (s *session) takeSlot(request []byte) *slot {
	if s.bytes+len(request) > maxPendingBytes {
		return nil
	}
	var sl *slot
	if n := len(s.free); n > 0 {
		sl, s.free = s.free[n-1], s.free[:n-1]
	} else {
		if len(s.slots) == maxPending {
			return nil
		}
		sl = &slot{index: uint32(len(s.slots)), wake: make(chan wake, wakes)}
		s.slots = append(s.slots, sl)
	}
	s.bytes += len(request)
	sl.request = append(sl.request[:0], request...)
	return sl
}

// release frees a slot. No other goroutine may hold it.
func (s *session) release(sl *slot) {
	sl.answer, sl.err = nil, nil
	s.out.mu.Lock()
	s.bytes -= len(sl.request)
	if cap(sl.request) > keepRequest {
		sl.request = nil
	}
	for len(sl.wake) > 0 {
		<-sl.wake // the ask ended before the asker gave up
	}
	s.free = append(s.free, sl)
	s.out.mu.Unlock()
}

// ask sends a request and waits until the ask ends.
func (s *session) ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	sent := time.Since(s.start)
	s.out.mu.Lock()
	if s.over {
		s.out.mu.Unlock()
		return answer, s.way.unreachableError()
	}
	var sl *slot
	if s.out.fits(headerSize + len(request)) {
		sl = s.takeSlot(request)
	}
	if sl == nil {
		s.out.mu.Unlock()
		s.peers.dropped.Add(1)
		return answer, ErrBusy
	}
	sl.answer = answer
	generation := sl.state.Load()>>2 + 1
	if generation > 1<<32-1 {
		generation = 1
	}
	waiting := generation<<2 | slotWaiting
	sl.wait, sl.until = wait, s.running.Read(sent)+wait
	if sl.until < 0 {
		sl.until = never
	}
	sl.sent, sl.proves = sent, sent+min(wait, detect.MaxAnswerAge)
	sl.state.Store(waiting)
	s.out.buf = appendFrame(s.out.buf, kindAsk, generation<<32|uint64(sl.index), request)
	duty := s.out.claimForWriter()
	if due, planned := s.running.Due(); !planned || sent+lookAfter(wait) < due {
		s.planLook(sent, lookAfter(wait))
	}
	s.out.mu.Unlock()
	if duty {
		s.out.rouse()
	}

	done := ctx.Done()
	for {
		var why wake
		if done == nil {
			why = <-sl.wake
		} else {
			select {
			case why = <-sl.wake:
			case <-done:
				done = nil
			}
		}
		if why == ended {
			answer, err := sl.answer, sl.err
			s.release(sl)
			return answer, err
		}
		s.givenUp.Add(1)
		sl.gaveUp.Store(int64(time.Since(s.start)))
		if !sl.state.CompareAndSwap(waiting, generation<<2|slotGivenUp) {
			s.givenUp.Add(-1)
			continue // a different goroutine ends the ask now
		}
		if err := ctx.Err(); err != nil {
			return answer, err
		}
		if why == retired {
			return answer, ErrBroken
		}
		s.peers.timeouts.Add(1)
		s.recordUnanswered(sent)
		return answer, ErrTimeout
	}
}

// recordUnanswered records that an ask which was sent at the given time is unanswered, and calls
// way.handleMissed. It does nothing if a frame has arrived since, or if another ask is recorded.
func (s *session) recordUnanswered(sent time.Duration) {
	if s.answered.Load() <= int64(sent) && s.unanswered.CompareAndSwap(0, max(1, int64(sent))) {
		s.way.handleMissed(s)
	}
}

// unansweredSince returns the time, from the start of the session, since which the session has waited for
// the recorded unanswered ask, and the wait after which the other side has stalled. Both are zero if no ask is
// unanswered, or if the reader still handles frames that have arrived.
func (s *session) unansweredSince() (since, stalls time.Duration) {
	since, listens := time.Duration(s.unanswered.Load()), time.Duration(s.listens.Load())
	if since == 0 || listens == never {
		return 0, 0
	}
	return max(since, listens), max(detect.StallTimeout, time.Duration(s.late.Load()))
}

// queueTell queues a request that has no answer.
func (s *session) queueTell(request []byte) {
	if len(request) > MaxMessage || !s.out.put(kindTell, 0, request) {
		s.peers.dropped.Add(1)
	}
}

// readUntilEnd reads from s until the connection ends, and then calls over.
func (s *session) readUntilEnd(over func()) {
	err := s.read()
	if reason := violation(err); reason != "" {
		s.peers.refusals.add(reason, s.conn.RemoteAddr(), err)
	}
	s.hungUp.Store(!s.closed.Load() && (closedByPeer(err) || s.out.reset.Load()))
	s.shut()
	s.out.close()
	over()
}

// shut ends a session. No ask begins after that, and the waiting askers are notified. Further calls
// have no effect.
func (s *session) shut() {
	if !s.closed.CompareAndSwap(false, true) {
		return
	}
	sever(s.conn)
	s.way.handleEnd(s)
	err := ErrBroken
	if s.peers.ctx.Err() != nil {
		err = ErrClosed
	}
	s.finish(err)
}

// retire makes the waiting askers give up, because a new session has replaced s. No ask begins after
// that. s is still read: answers that arrive are late, and their units are refunded. The caller must
// call forget for missing answers, and shut s once it is idle.
//
// A wake may stay in a slot that is released meanwhile. It has no effect, because no ask takes a slot once
// the session is over.
func (s *session) retire() {
	for _, sl := range s.stop() {
		if sl.state.Load()&3 == slotWaiting {
			sl.wake <- retired
		}
	}
}

// isIdle reports whether no ask is under way and no late answer is awaited.
func (s *session) isIdle() bool {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return len(s.free) == len(s.slots)
}

// checkWaits calls look, unless the session is over. All asks of a session share a timer, because
// an ask with a timer takes up to 50 % more time.
func (s *session) checkWaits() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if !s.over {
		s.look(time.Since(s.start))
	}
}

// look checks the deadlines of all asks. If s.running.Check returns true, look wakes each asker whose
// deadline has passed. If an asker still waits, the next look is planned. The caller must hold out.mu.
func (s *session) look(now time.Duration) {
	ends, next := s.running.Check(now), never
	ran := s.running.Read(now)
	for _, sl := range s.slots {
		if sl.state.Load()&3 != slotWaiting || sl.until == never {
			continue
		}
		switch left := sl.until - ran; {
		case left > 0:
			next = min(next, left, lookAfter(sl.wait))
			if sl.wait-left >= detect.StallTimeout { // the other side may have stalled, although the asker still waits
				s.recordUnanswered(sl.sent)
			}
		case ends:
			sl.until = never
			sl.wake <- overdue
		default: // this process has just begun to run again
			next = min(next, lookAgain)
		}
	}
	if next == never {
		s.running.CancelCheck()
		return
	}
	s.planLook(now, next)
}

// planLook plans the next look for the time now + after. The caller must hold out.mu.
func (s *session) planLook(now, after time.Duration) {
	s.running.Plan(now + after)
	s.alarm.Reset(after)
}

// lookAfter returns the longest time between two looks at an ask.
func lookAfter(wait time.Duration) time.Duration {
	return min(wait, max(wait/looksPerWait, lookAgain))
}

// find returns the slot and the generation of an id, and nil if there is no such slot. The argument known is
// the copy of s.slots that the reader keeps.
func (s *session) find(known *[]*slot, id uint64) (*slot, uint64) {
	index, generation := uint32(id), id>>32
	if int(index) >= len(*known) {
		s.out.mu.Lock()
		*known = s.slots
		s.out.mu.Unlock()
		if int(index) >= len(*known) {
			return nil, 0
		}
	}
	return (*known)[index], generation
}

// end ends the ask of the slot. The results are when the ask was sent, until when an answer is in time,
// and whether the asker was still waiting.
func (sl *slot) end(generation uint64, body []byte, err error) (sent, proves time.Duration, ok bool) {
	if !sl.state.CompareAndSwap(generation<<2|slotWaiting, generation<<2) {
		return 0, 0, false
	}
	sent, proves = sl.sent, sl.proves // before the next asker writes them
	sl.answer = append(sl.answer, body...)
	sl.err = err
	sl.wake <- ended
	return sent, proves, true
}

// introduce sends the record of this node to the member.
func (s *session) introduce() {
	if own := s.peers.cfg.OwnRecord; own != nil {
		s.out.put(kindNews, 0, own())
	}
}

// read handles answers, pongs and records until the connection ends.
func (s *session) read() error {
	var (
		in    intake
		known []*slot
		trips detect.RoundTrips
	)
	for {
		if err := in.fill(s.conn); err != nil {
			return err
		}
		now := time.Since(s.start)
		any, proved, ponged := false, false, false
		took := time.Duration(0) // round-trip time of the frames that arrived together
		for {
			f, ok, err := in.nextFrame()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !any {
				s.listens.Store(int64(never))
			}
			any = true
			switch f.kind {
			case kindAnswer:
				since, inTime := s.deliver(&known, f, now)
				if since > 0 {
					took = since
				}
				proved = proved || inTime
			case kindPong:
				ponged = true
				s.out.relieve(1) // the ping was written
				since, inTime, err := s.way.handlePong(s, f)
				if err != nil {
					return err
				}
				took, proved = max(took, since), proved || inTime
			case kindNews:
				if err := s.way.handleRecord(f.body); err != nil {
					return err
				}
			default:
				if f.kind.isKnown() {
					return fmt.Errorf("%w: the answering side sent a frame of kind %d", errGarbage, f.kind)
				}
			}
		}
		in.makeRoom()
		if ponged {
			shrinkIdle(s.conn, &in)
		}
		if any {
			s.answered.Store(int64(now))
			if s.unanswered.Load() != 0 {
				s.unanswered.Store(0)
				s.way.handleResumed(s)
			}
		}
		if took > 0 {
			trips.Record(took)
			s.trip.Store(int64(trips.Mean()))
			s.late.Store(int64(trips.Timeout()))
		}
		if proved {
			s.way.recordProof()
		}
		if any {
			s.listens.Store(int64(time.Since(s.start)))
		}
	}
}

// deliver passes an answer to its asker, or to way.handleLate if the asker has given up. The results
// are how long the answer took, 0 if no ask has the id, and whether the answer arrived in time.
func (s *session) deliver(known *[]*slot, f frame, now time.Duration) (took time.Duration, inTime bool) {
	sl, generation := s.find(known, f.id)
	if sl == nil {
		return 0, false
	}
	if sent, proves, ended := sl.end(generation, f.body, nil); ended {
		return now - sent, now <= proves
	}
	if sl.state.CompareAndSwap(generation<<2|slotGivenUp, generation<<2) {
		took = now - sl.sent
		s.givenUp.Add(-1)
		s.peers.late.Add(1)
		s.way.handleLate(sl.request, f.body)
		s.release(sl)
	}
	return took, false
}

// silence returns how long the reader has waited for a frame. It is zero while this process handles
// frames that have arrived.
func (s *session) silence() time.Duration {
	return max(0, time.Since(s.start)-time.Duration(s.listens.Load()))
}

// forget frees the slots of asks that were given up at least lateFor ago.
func (s *session) forget(now time.Time) {
	if s.givenUp.Load() == 0 {
		return
	}
	s.out.mu.Lock()
	slots := s.slots
	s.out.mu.Unlock()
	for _, sl := range slots {
		state := sl.state.Load()
		if state&3 != slotGivenUp || now.Sub(s.start)-time.Duration(sl.gaveUp.Load()) < lateFor {
			continue
		}
		if sl.state.CompareAndSwap(state, state&^3) {
			s.givenUp.Add(-1)
			s.release(sl)
		}
	}
}

// stop marks the session as over, so that no ask gets a slot any more. It returns all
// slots, free or not.
func (s *session) stop() []*slot {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.over = true
	s.alarm.Stop()
	return s.slots
}

// finish ends all asks that wait, with the error err. No ask begins after that.
func (s *session) finish(err error) {
	for _, sl := range s.stop() {
		if state := sl.state.Load(); state&3 == slotWaiting {
			sl.end(state>>2, nil, err)
		}
	}
}

package cluster

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// A node has no connection to a member that it does not watch (see package detect) until the first ask
// or tell, which makes the link dial. An ask waits for the connection within its own wait, and a tell
// until an attempt to connect fails. A used connection, or a connection with an ask under way, carries
// a ping each second. A second after the last use the connection rests: it stays open, and carries no
// pings. The next ask or tell wakes the connection by a ping, and is sent after the pong. Without the
// ping, the other side would assume that a partition has delayed the request. A connection that has not
// been used for restAfter is closed.
const (
	restAfter = time.Minute
	// usedPace is the time between pings over a used connection, and how long a connection counts as
	// used after a request.
	usedPace = time.Second
	// maxHeld and maxHeldBytes bound the tells that wait for a connection.
	maxHeld      = 64
	maxHeldBytes = 256 << 10
)

// broadcast wakes all goroutines that wait for a change.
type broadcast struct {
	mu      sync.Mutex
	changed chan struct{}
}

// wait returns a channel that is closed at the next wake.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// held contains the tells that wait for a connection.
type held struct {
	mu    sync.Mutex
	tells [][]byte
	bytes int
}

// add holds a copy of request, and reports whether there is room.
func (h *held) add(request []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tells) == maxHeld || h.bytes+len(request) > maxHeldBytes {
		return false
	}
	h.tells, h.bytes = append(h.tells, append([]byte(nil), request...)), h.bytes+len(request)
	return true
}

// takeAll removes all tells and returns them.
func (h *held) takeAll() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	tells := h.tells
	h.tells, h.bytes = nil, 0
	return tells
}

// copyState copies the state of the member from the table. If the state has changed, the keeper or the
// waiting asks are woken. The caller must hold peers.mu.
func (l *link) copyState(t *detect.Connectivity) {
	s := t.ContactState(l.name)
	l.chosen.Store(s.Chosen)
	if !s.Watched && l.watched.Load() && l.session.Load() != nil {
		l.markUsed() // before a caller or the keeper can read watched, so that the keeper keeps the connection
	}
	if l.watched.Swap(s.Watched) != s.Watched {
		if delete(l.peers.watched, l); s.Watched {
			l.peers.watched[l] = true
		}
		l.post(eventArranged)
	}
	if wasStalled, wasConnected := l.stalled.Swap(s.Stalled), l.connected.Swap(s.Connected); wasStalled != s.Stalled || wasConnected != s.Connected {
		l.opened.wake()
	}
}

// markUsed records that the connection is used now.
func (l *link) markUsed() { l.used.Store(int64(time.Since(l.peers.began))) }

// use records that the connection is used, unless the member is watched. It returns the session, or nil
// if no requests may be sent now.
func (l *link) use() *session {
	if !l.watched.Load() {
		l.markUsed()
	}
	if l.rests.Load() {
		return nil
	}
	return l.session.Load()
}

// sinceUse returns the time since the last use of the connection, or restAfter if it was never used.
func (l *link) sinceUse() time.Duration {
	used := time.Duration(l.used.Load())
	if used == 0 {
		return restAfter
	}
	return time.Since(l.peers.began) - used
}

// isWanted reports whether the link needs a connection. An ask that is under way, or whose late answer is
// awaited, counts as a use.
func (u *upkeep) isWanted() bool {
	if u.watched.Load() {
		return true
	}
	if u.s != nil && !u.s.isIdle() {
		u.markUsed()
	}
	return u.sinceUse() < restAfter
}

// open waits until requests may be sent to the member. It returns the session and the remaining part of
// the time wait, or the error of Peer.Ask.
func (l *link) open(ctx context.Context, wait time.Duration) (*session, time.Duration, error) {
	began := time.Now()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := l.opened.wait()
		if !l.connected.Load() {
			return nil, 0, l.unreachableError()
		}
		if l.stalled.Load() {
			return nil, 0, ErrStalled
		}
		if s := l.use(); s != nil {
			return s, wait - time.Since(began), nil
		}
		l.post(eventWanted)
		select {
		case <-changed:
		case <-timer.C:
			l.peers.timeouts.Add(1)
			return nil, 0, ErrTimeout
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-l.peers.ctx.Done():
			return nil, 0, l.unreachableError()
		}
	}
}

// Send implements Peer.
func (l *link) Send(request []byte) {
	s := l.use()
	switch {
	case s != nil:
		s.queueTell(request)
	case !l.connected.Load():
	case len(request) > MaxMessage || !l.held.add(request):
		l.peers.dropped.Add(1)
	default:
		l.post(eventWanted)
	}
}

// makeReady marks the session as ready for requests.
func (u *upkeep) makeReady() {
	u.rests.Store(false)
	for _, request := range u.held.takeAll() {
		u.s.queueTell(request)
	}
	u.opened.wake()
}

// handleWanted is called when a request waits for the connection.
func (u *upkeep) handleWanted() {
	switch {
	case u.s == nil && u.dialed == nil:
		u.pace = dialPace
		u.dial.planIn(0)
	case u.s != nil && u.rests.Load():
		u.wakeConnection()
	case u.s != nil:
		u.makeReady()
	}
}

// wakeConnection pings over a resting connection, unless that ping has been sent.
func (u *upkeep) wakeConnection() {
	if u.waking.IsZero() {
		u.waking = time.Now()
		u.pingAt(u.waking)
	}
}

// wakeUp is called when a pong has arrived over a resting connection.
func (u *upkeep) wakeUp() {
	if u.s != nil && !u.waking.IsZero() {
		u.waking = time.Time{}
		u.makeReady()
	}
}

// judgeDial marks a member that is not watched as stalled if an attempt to connect to it takes
// detect.StallTimeout and the extra time for scheduling delays, because requests wait for the attempt.
func (u *upkeep) judgeDial(now time.Time) {
	if u.dialed == nil || u.watched.Load() {
		return
	}
	u.peers.step(u.link, func(c *detect.Connectivity) bool {
		return c.CheckStall(u.name, u.tried, detect.StallTimeout, u.look.due, now)
	})
	u.look.planAt(now.Add(lookPace))
}

// rearrange is called when this node begins or stops watching the member.
func (u *upkeep) rearrange() {
	switch {
	case !u.watched.Load():
		if u.s != nil {
			u.pingAt(time.Now()) // without flagWatches: otherwise the other side would close the connection when it rests
		}
	case u.s != nil:
		if u.rests.Load() {
			u.wakeConnection()
		} else {
			u.pingAt(time.Now())
		}
		u.sendRows()
	case u.dialed == nil:
		u.pace = dialPace
		u.dial.planIn(0)
	}
}

// judgeUnwatched checks a member that this node does not watch.
func (u *upkeep) judgeUnwatched(now time.Time) {
	if !u.isWanted() {
		u.closeUnused()
		return
	}
	isAwaited := false // an unanswered request is followed by a ping: see handleMissed
	u.peers.step(u.link, func(c *detect.Connectivity) bool {
		if isAwaited = c.IsAwaited(u.name); !isAwaited {
			return false
		}
		c.Examine(u.name, u.pinged)
		return !u.waking.IsZero() && c.CheckStall(u.name, u.waking, detect.StallTimeout, u.look.due, now)
	})
	if isAwaited && !u.checkMember(u.s, u.look.due, now) {
		u.pingAt(now)
		return
	}
	switch idle := u.sinceUse(); {
	case idle >= usedPace && u.waking.IsZero(): // otherwise the pong has just arrived, and wakeUp follows
		u.rests.Store(true)
		u.s.out.relieve(math.MaxInt)
		u.look.planIn(restAfter - idle)
	case now.Sub(u.pinged) >= usedPace:
		u.pingAt(now)
	default:
		u.look.planAt(u.pinged.Add(usedPace))
	}
}

// closeUnused closes a connection that has not been used for restAfter.
func (u *upkeep) closeUnused() {
	s := u.s
	u.s = nil
	u.look.cancel()
	if s != nil {
		u.session.CompareAndSwap(s, nil) // so that its end is not recorded as a failure
		s.shut()
	}
	u.peers.step(u.link, func(c *detect.Connectivity) bool { return c.RecordUnused(u.name) })
}

// sendRows sends the rows that the member lacks, to a member that this node watches. The first call for a session
// also sends the fresh records.
func (u *upkeep) sendRows() {
	if u.s == nil || !u.watched.Load() {
		return
	}
	if u.feed.IsNew() {
		u.sendFreshRecords()
	}
	for {
		now := time.Now()
		rows, upTo, wait := u.peers.dueRows(u.link, &u.feed, now)
		switch {
		case len(rows) == 0:
			if wait > 0 {
				u.feeding.planIn(wait)
			}
			return
		case !u.s.out.put(kindRows, 0, detect.AppendRows(nil, rows)):
			u.feeding.planIn(lookPace) // the queue is full
			return
		}
		u.feed.Sent(upTo, now)
	}
}

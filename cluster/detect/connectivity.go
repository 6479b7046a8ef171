package detect

import (
	"container/list"
	"slices"
	"time"
)

const (
	// MaxAnswerAge is the maximum age of an answer that is accepted as a sign of life.
	MaxAnswerAge = time.Second
	// SilenceTimeout is how long a connected member may be silent before it is disconnected, without
	// the extra time for scheduling delays (ExtraTime). It is longer than two retransmissions take: by
	// default, TCP retransmits a lost packet after 200 ms, and again 400 ms later.
	SilenceTimeout = 800 * time.Millisecond
	// StallTimeout is the least time for which a member with an unanswered request may
	// send nothing before it has stalled, without the extra time for scheduling delays.
	StallTimeout = 200 * time.Millisecond
	// maxPings is the maximum number of pings to a member that wait for a pong.
	maxPings = 16
)

// Connectivity is the connectivity table as known to a node. It combines the observations
// of the node with the rows of other members. Methods that handle an event report whether the
// result of Connections may have changed. A name that is not the name of another member is
// ignored. A Connectivity is not safe for concurrent use.
//
// A member that this node does not watch is presumed to be connected while the rows show the member on
// the side of this node, until a request to the member fails or stays unanswered.
//
// A slow member stays connected. The sides, shares and hand-overs of all members depend on
// connectivity, so only two events disconnect a watched member: the connection breaks or cannot be opened
// (RecordFailure), or SilenceTimeout and the extra time for scheduling delays pass without an answer on
// either connection while this process runs (CheckSilence). Afterwards, only the pong of a ping that
// was sent later proves a connection again. The pong of an earlier ping may have been delayed by the
// partition. If such a pong were accepted, the member would be connected although no message can be
// delivered.
//
// Each node increments only the number of its own row. It does so when the row changes, or when an
// earlier process with the same name has sent a row. Of two rows about a member, the row with the higher
// number is later. Merge relies on this: if another node incremented the number, the row of that node
// would hide the later rows of the member itself.
//
// Only this node knows that a member has stalled. A stalled member stays connected, but no
// requests are sent to the member until its next message arrives (RecordMessage, RecordPong).
type Connectivity struct {
	self    string
	id      uint64              // MemberID of self
	names   []string            // the names in the last call of SetMembers
	members map[string]*contact // all members except self
	ids     map[uint64]bool     // the MemberIDs of members
	rows    map[uint64]*heldRow // the rows by MemberID, including the row of self
	// byVersion has the same rows, oldest first. News is called under a lock, so it visits only the rows
	// that have changed.
	byVersion *list.List
	version   uint64 // incremented with each change of a row; at least 1
	own       schedulingDelay
	order     *order
	sparse    bool // this node does not watch all members
}

// contact is the state of the connections between this node and a member.
type contact struct {
	connected      bool // proven by a pong, and no failure since
	presumed       bool // neither proven nor disproven
	watched        bool
	chosen         bool          // watched as a neighbour on a cycle, or in a small cluster
	reached        bool          // the rows show that the member is on the side of this node
	examined       bool          // the member has left a ping unanswered while this node did not watch it; false after the next answer
	lingers        time.Time     // end of the time for which the member is watched as a former neighbour
	returns        time.Time     // end of the time for which the member is watched because it has chosen to watch this node
	stalled        bool          // the member is silent and has left requests unanswered, so requests are sent to other members
	answered       time.Time     // when the member last answered this node or, by its own report, last had an answer from this node
	silence        Silence       // time without an answer
	waits          Silence       // time without a message since the first unanswered request
	disconnectedAt time.Time     // when the member was last found to be disconnected
	delay          time.Duration // the last scheduling delay that the member has reported
	pings          []ping        // pings without a pong, oldest first
	refused        bool          // the kernel of the member has closed the connections and refuses new connections
}

type ping struct {
	id   uint64
	sent time.Time
}

// isConnected reports whether requests may be sent to the member.
func (m *contact) isConnected() bool {
	return m.watched && m.connected || m.reached && (m.connected || m.presumed)
}

// NewConnectivity returns the table of the node self, which knows no other members yet.
func NewConnectivity(self string) *Connectivity {
	id := MemberID(self)
	c := &Connectivity{
		self:      self,
		id:        id,
		members:   map[string]*contact{},
		rows:      map[uint64]*heldRow{},
		byVersion: list.New(),
		order:     &order{number: 1},
	}
	c.store(Row{About: id, Number: 1})
	return c
}

// SetMembers replaces the names of the other members. The state of members that stay is
// kept. It reports whether there is a new member.
func (c *Connectivity) SetMembers(names []string) (grown bool) {
	if slices.Equal(names, c.names) {
		return false
	}
	c.names = slices.Clone(names)
	next, ids := make(map[string]*contact, len(names)), make(map[uint64]bool, len(names))
	for _, name := range names {
		if name == c.self {
			continue
		}
		m := c.members[name]
		if m == nil {
			m, grown = &contact{watched: !c.sparse, chosen: !c.sparse}, true
		}
		next[name], ids[MemberID(name)] = m, true
	}
	c.members, c.ids, c.order.contacts = next, ids, nil
	c.updateRow()
	c.dropStrangers()
	return grown
}

// RecordPing records that a ping is sent to a member. The ids of the pings to a member must
// differ.
func (c *Connectivity) RecordPing(name string, id uint64, now time.Time) {
	m := c.members[name]
	if m == nil {
		return
	}
	if len(m.pings) == maxPings {
		m.pings = slices.Delete(m.pings, 0, 1)
	}
	m.pings = append(m.pings, ping{id, now})
}

// RecordPong records the pong of a member to the ping with the given id. It returns the
// round-trip time, and whether the pong arrived within MaxAnswerAge.
func (c *Connectivity) RecordPong(name string, id uint64, now time.Time) (took time.Duration, inTime, changed bool) {
	m := c.members[name]
	if m == nil {
		return 0, false, false
	}
	i := slices.IndexFunc(m.pings, func(p ping) bool { return p.id == id })
	if i < 0 {
		return 0, false, false
	}
	sent := m.pings[i].sent
	m.pings = slices.Delete(m.pings, 0, i+1)
	// A pong that took this long may have been sent long ago, and may have waited here
	// while this process was suspended.
	if took = now.Sub(sent); took > MaxAnswerAge {
		return took, false, false
	}
	m.recordAnswer(now)
	changed = m.stalled
	m.stalled = false
	if m.connected || sent.Before(m.disconnectedAt) {
		return took, true, changed
	}
	return took, true, c.setConnected(m, true) || changed
}

// RecordAnswer records that, at the given time, a member answered this node or, by its own
// report, had an answer from this node. It restarts the silence of the member, and does not connect
// a disconnected member.
func (c *Connectivity) RecordAnswer(name string, at time.Time) {
	if m := c.members[name]; m != nil {
		m.recordAnswer(at)
	}
}

func (m *contact) recordAnswer(at time.Time) {
	if at.After(m.answered) {
		m.answered = at
	}
	if at.After(m.silence.Start()) {
		m.silence.Restart(at)
		m.examined = false
	}
}

// LastAnswer returns the latest time that was passed to RecordAnswer, or to RecordPong for a pong
// in time. It is zero if there is none.
func (c *Connectivity) LastAnswer(name string) time.Time {
	if m := c.members[name]; m != nil {
		return m.answered
	}
	return time.Time{}
}

// RecordCheck records that a check of this process, which was planned for the time due, runs at the time now.
// The difference is the scheduling delay of this process.
func (c *Connectivity) RecordCheck(due, now time.Time) { c.own.record(due, now) }

// Delay returns the scheduling delay of this process. It is at most a second.
func (c *Connectivity) Delay() time.Duration { return c.own.delay }

// SetDelay records the scheduling delay that a member has reported.
func (c *Connectivity) SetDelay(name string, delay time.Duration) {
	if m := c.members[name]; m != nil {
		m.delay = delay
	}
}

// extraTime returns the additional time that a member has to answer.
func (c *Connectivity) extraTime(m *contact) time.Duration { return ExtraTime(c.own.delay, m.delay) }

// CheckSilence disconnects a member that has been silent for too long, if this node watches or
// examines the member. The check was planned for the time due, and is recorded as by RecordCheck.
func (c *Connectivity) CheckSilence(name string, due, now time.Time) (changed bool) {
	c.RecordCheck(due, now)
	m := c.members[name]
	if m == nil || !m.watched && !m.examined {
		return false
	}
	if !m.silence.Check(SilenceTimeout+c.extraTime(m), due, now) || !m.connected && !m.presumed {
		return false
	}
	m.disconnectedAt = now
	return c.setConnected(m, false)
}

// CheckStall marks a member as stalled if timeout and the extra time for scheduling delays have passed
// since the given time. Time in which this process did not run does not count. The caller
// ensures that the member has left a request unanswered since then, and has sent no message. The check
// was planned for the time due.
func (c *Connectivity) CheckStall(name string, since time.Time, timeout time.Duration, due, now time.Time) (changed bool) {
	m := c.members[name]
	if m == nil {
		return false
	}
	if since.After(m.waits.Start()) {
		m.waits.Restart(since)
	}
	if !m.waits.Check(timeout+c.extraTime(m), due, now) || m.stalled {
		return false
	}
	m.stalled = true
	return true
}

// RecordMessage records a message from a member. If the member was stalled, it is no longer
// stalled.
func (c *Connectivity) RecordMessage(name string) (changed bool) {
	m := c.members[name]
	if m == nil || !m.stalled {
		return false
	}
	m.stalled = false
	return true
}

// RecordFailure records that the connection to a member broke, or that this node could not connect.
func (c *Connectivity) RecordFailure(name string, now time.Time) (changed bool) {
	m := c.members[name]
	if m == nil {
		return false
	}
	m.disconnectedAt, m.stalled = now, false
	return c.setConnected(m, false)
}

// setConnected records that the connection to a member has been proven or disproven.
func (c *Connectivity) setConnected(m *contact, connected bool) (changed bool) {
	if m.connected == connected && !m.presumed {
		return false
	}
	was := m.isConnected()
	m.connected, m.presumed, m.refused, m.examined = connected, false, false, false
	return c.updateRow() || m.isConnected() != was
}

// SetRefused records whether the host of a member refuses connections. It has no effect if the member is
// connected, because the host then accepts connections.
func (c *Connectivity) SetRefused(name string, refused bool) (changed bool) {
	m := c.members[name]
	if m == nil || m.refused == refused || m.connected {
		return false
	}
	m.refused = refused
	return c.updateRow()
}

// updateRow replaces the row of this node if the state of a contact has changed the content of the row.
func (c *Connectivity) updateRow() (changed bool) {
	var next Row
	for name, m := range c.members {
		switch {
		case !m.watched:
		case m.connected:
			next.Connected = append(next.Connected, MemberID(name))
		case m.refused:
			next.Refused = append(next.Refused, MemberID(name))
		case c.sparse && !m.presumed:
			next.Silent = append(next.Silent, MemberID(name))
		}
	}
	slices.Sort(next.Connected)
	slices.Sort(next.Refused)
	slices.Sort(next.Silent)
	if c.rows[c.id].hasContent(&next) {
		return false
	}
	c.replaceOwnRow(next)
	return true
}

// IsConnected reports whether a member is connected, or presumed to be.
func (c *Connectivity) IsConnected(name string) bool { return c.ContactState(name).Connected }

// IsStalled reports whether a member is connected and has stalled.
func (c *Connectivity) IsStalled(name string) bool { return c.ContactState(name).Stalled }

// IsAwaited reports whether a ping to a member waits for a pong.
func (c *Connectivity) IsAwaited(name string) bool {
	m := c.members[name]
	return m != nil && len(m.pings) > 0
}

// Version returns the version of the table. It rises when a row changes, and is never 0.
func (c *Connectivity) Version() uint64 { return c.version }

package detect

import (
	"maps"
	"slices"
	"time"
)

const (
	// MaxAnswerAge is the maximum age of an answer that is accepted as a sign of life.
	MaxAnswerAge = time.Second
	// SilenceTimeout is how long a connected member may be silent before it is
	// disconnected. By default, TCP retransmits a lost packet after 200 ms, and again 400 ms
	// later.
	SilenceTimeout = 800 * time.Millisecond
	// StallTimeout is the least time for which a member with an unanswered request may
	// send nothing before it has stalled.
	StallTimeout = 200 * time.Millisecond
	// maxPings is the maximum number of pings to one member that wait for a pong.
	maxPings = 16
)

// Connectivity is the connectivity table as known to one node. It combines the observations
// of the node with the reports of other members about themselves and each other. Methods that
// handle an event report whether the table has changed. A name that is not the name of
// another member is ignored. A Connectivity is not safe for concurrent use.
//
// A slow member stays connected. The sides, shares and hand-overs of all members depend on
// connectivity, so only two events disconnect a member: the connection to it breaks
// (RecordFailure), or SilenceTimeout passes without an answer on either connection while this
// process runs (CheckSilence). Afterwards, only the pong of a ping that was sent later
// connects the member again. An earlier pong may have been delayed by the partition. If it
// were accepted, the member would be connected although no message can be delivered.
//
// A node increments the number of its own row only, and only when that row changes. Of two
// rows of one member, the row with the higher number is later. Merge relies on this: if
// another node incremented the number, it would hide the findings of the member itself.
//
// Only this node knows that a member has stalled. A stalled member stays connected, but no
// requests are sent to it until a message arrives from it (RecordMessage, RecordPong).
type Connectivity struct {
	self    string
	members map[string]*contact // all members except self
	rows    map[string]row      // the rows by member, including self, of all members that have sent one
	version uint64              // incremented when a row changes; never 0
	own     schedulingDelay
}

// contact is the state of the connections between this node and one member.
type contact struct {
	connected      bool
	stalled        bool          // it is silent and has unanswered requests, so requests are sent to other members
	answered       time.Time     // when it last answered this node or, by its own report, last had an answer from it
	silence        Silence       // since answered
	waits          Silence       // since the first of its unanswered requests was sent
	disconnectedAt time.Time     // when it was last found to be disconnected
	delay          time.Duration // scheduling delay of the member, as last reported
	pings          []ping        // pings without a pong, oldest first
	refused        bool          // its kernel has closed the connections and refuses new connections
}

type ping struct {
	id   uint64
	sent time.Time
}

// row is the report of one member. It has the members to which this member is connected, and the members
// whose hosts refuse its connections. A member numbers its own rows, so that a receiver can keep the latest row.
type row struct {
	number    uint64
	connected []string // sorted; does not include the member itself; never modified
	refused   []string // likewise
}

// NewConnectivity returns the table of the node self, which knows no other members yet.
func NewConnectivity(self string) *Connectivity {
	return &Connectivity{
		self:    self,
		members: map[string]*contact{},
		rows:    map[string]row{self: {number: 1}},
		version: 1,
	}
}

// SetMembers replaces the names of the other members. The state of members that stay is
// kept. It reports whether there is a new member.
func (c *Connectivity) SetMembers(names []string) (grown bool) {
	next := make(map[string]*contact, len(names))
	for _, name := range names {
		if name == c.self {
			continue
		}
		m := c.members[name]
		if m == nil {
			m, grown = new(contact), true
		}
		next[name] = m
	}
	c.members = next
	maps.DeleteFunc(c.rows, func(name string, _ row) bool {
		return name != c.self && next[name] == nil
	})
	c.updateRow()
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
// round-trip time, and whether the pong arrived in time.
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
	return took, true, c.setConnected(m, true)
}

// RecordAnswer records that, at the given time, a member answered this node or, by its own
// report, had an answer from this node. It restarts
// the silence of the member, and does not connect a disconnected member.
func (c *Connectivity) RecordAnswer(name string, at time.Time) {
	if m := c.members[name]; m != nil {
		m.recordAnswer(at)
	}
}

func (m *contact) recordAnswer(at time.Time) {
	if at.After(m.answered) {
		m.answered = at
		m.silence.Restart(at)
	}
}

// LastAnswer returns the latest time that was passed to RecordPong or RecordAnswer. It is
// zero if there is none.
func (c *Connectivity) LastAnswer(name string) time.Time {
	if m := c.members[name]; m != nil {
		return m.answered
	}
	return time.Time{}
}

// RecordCheck records that a check of this process which was planned for due runs at now.
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

// CheckSilence disconnects a member that has been silent for too long. The check was planned
// for due, and is recorded as by RecordCheck.
func (c *Connectivity) CheckSilence(name string, due, now time.Time) (changed bool) {
	c.RecordCheck(due, now)
	m := c.members[name]
	if m == nil || !m.silence.Check(SilenceTimeout+c.extraTime(m), due, now) || !m.connected {
		return false
	}
	m.disconnectedAt = now
	return c.setConnected(m, false)
}

// CheckStall marks a member as stalled if it has left requests unanswered since the given
// time, has not sent anything since then, and at least timeout has passed. The check was
// planned for due.
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

// RecordMessage records a message from a member that has left requests unanswered: the
// member is no longer stalled.
func (c *Connectivity) RecordMessage(name string) (changed bool) {
	m := c.members[name]
	if m == nil || !m.stalled {
		return false
	}
	m.stalled = false
	return true
}

// RecordFailure records that the connection to a member broke.
func (c *Connectivity) RecordFailure(name string, now time.Time) (changed bool) {
	m := c.members[name]
	if m == nil {
		return false
	}
	m.disconnectedAt, m.stalled = now, false
	return c.setConnected(m, false)
}

func (c *Connectivity) setConnected(m *contact, connected bool) (changed bool) {
	if m.connected == connected {
		return false
	}
	m.connected, m.refused = connected, false
	c.updateRow()
	return true
}

// SetRefused records whether the host of a member refuses connections. The host of a
// connected member does not.
func (c *Connectivity) SetRefused(name string, refused bool) (changed bool) {
	m := c.members[name]
	if m == nil || m.refused == refused || m.connected {
		return false
	}
	m.refused = refused
	c.updateRow()
	return true
}

// updateRow replaces the row of this node if its contacts have changed.
func (c *Connectivity) updateRow() {
	var connected, refused []string
	for name, m := range c.members {
		if m.connected {
			connected = append(connected, name)
		}
		if m.refused {
			refused = append(refused, name)
		}
	}
	slices.Sort(connected)
	slices.Sort(refused)
	own := c.rows[c.self]
	if slices.Equal(own.connected, connected) && slices.Equal(own.refused, refused) {
		return
	}
	c.rows[c.self] = row{number: own.number + 1, connected: connected, refused: refused}
	c.version++
}

// IsConnected reports whether a member is connected.
func (c *Connectivity) IsConnected(name string) bool {
	m := c.members[name]
	return m != nil && m.connected
}

// IsStalled reports whether a member is connected and has stalled.
func (c *Connectivity) IsStalled(name string) bool {
	m := c.members[name]
	return m != nil && m.connected && m.stalled
}

// IsAwaited reports whether a ping to a member waits for a pong.
func (c *Connectivity) IsAwaited(name string) bool {
	m := c.members[name]
	return m != nil && len(m.pings) > 0
}

// Version returns the version of the table. It rises when a row changes, and is never 0.
func (c *Connectivity) Version() uint64 { return c.version }

// Merge replaces the rows for which the table of another member has a higher row number. The
// caller must have validated t.
func (c *Connectivity) Merge(t Table) (changed bool) {
	for i, name := range t.About {
		if c.members[name] == nil || t.Numbers[i] <= c.rows[name].number {
			continue
		}
		r := row{number: t.Numbers[i], connected: t.names(i, t.Bits), refused: t.names(i, t.Refused)}
		changed = changed || !slices.Equal(r.connected, c.rows[name].connected) || !slices.Equal(r.refused, c.rows[name].refused)
		c.rows[name] = r
		c.version++
	}
	return changed
}

// Connections describes the connections between members, which are given by their indexes in
// a list of names. It must not be modified.
type Connections struct {
	Connected [][]int // Connected[i]: the members to which member i is connected, sorted, without i
	Direct    []bool  // Direct[j]: this node is connected to member j
	Stalled   []bool  // Stalled[j]: this node is connected to member j, which has stalled
	// Ended[j]: member j is not on the side of this node, and the host of j refuses the
	// connections of all members of this side.
	Ended []bool
}

// Connections returns the connections among the named members.
func (c *Connectivity) Connections(names []string) Connections {
	n := len(names)
	index := make(map[string]int, n)
	for i, name := range names {
		index[name] = i
	}
	result := Connections{make([][]int, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	for i, name := range names {
		result.Connected[i] = indexesOf(c.rows[name].connected, index)
		result.Direct[i] = name == c.self || c.IsConnected(name)
		result.Stalled[i] = c.IsStalled(name)
	}
	refusals, size := make([]int, n), 0
	for i, on := range Side(result.Direct, result.Connected) {
		if !on {
			continue
		}
		size++
		for _, j := range indexesOf(c.rows[names[i]].refused, index) {
			refusals[j]++
		}
	}
	for j := range refusals {
		result.Ended[j] = size > 0 && refusals[j] == size
	}
	return result
}

// indexesOf returns the sorted indexes of those of the names that have one.
func indexesOf(names []string, index map[string]int) []int {
	var found []int
	for _, name := range names {
		if i, ok := index[name]; ok {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found
}

// Side reports which members are reached from those in direct by connections between members,
// these included.
func Side(direct []bool, connected [][]int) []bool {
	side := slices.Clone(direct)
	var queue []int
	for i, on := range side {
		if on {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range connected[i] {
			if !side[j] {
				side[j] = true
				queue = append(queue, j)
			}
		}
	}
	return side
}

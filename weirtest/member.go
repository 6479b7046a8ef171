package weirtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/detect"
)

// The pace of simulated membership. A member sends changes of its own record at once, and
// other changes of its roster with the next ping. In a large cluster, a member also
// forwards received changes at once.
const (
	pingEvery  = 300 * time.Millisecond
	lookEvery  = 100 * time.Millisecond // interval at which a member checks the silence of other members, and repeats unanswered pings
	ageEvery   = time.Second            // interval at which a member forgets members that have been dead for long
	idleFor    = 3 * time.Second        // time without a message, after which the side that receives requests closes a connection
	idleAbroad = 10 * time.Second       // idleFor for a connection from another region
	heldPings  = 16                     // maximum number of pings to a member without a pong
	deadAfter  = 5 * time.Second        // time without a connection to any member of this side, after which a member is dead
	joinWithin = time.Second            // maximum time that Start and Leave wait for other members
	inboxBound = 1 << 14                // maximum number of queued requests; further requests are lost
	askBound   = 1 << 14                // maximum number of unanswered requests to a member, and of messages on their way there; Ask then fails with ErrBusy, and Send drops the request
	simPort    = 7946                   // part of Member.Addr
	dialWithin = 850 * time.Millisecond // maximum time to open a connection
	usedEvery  = time.Second            // time after a request to a member that is not watched, after which the next request opens a new connection
	restAfter  = time.Minute            // time after such a request, after which the connectivity of the member counts as unknown
	lookAgain  = 100 * time.Microsecond // time after a pause in which a process reads the messages that the pause has held
)

// Cluster returns a cluster.Cluster that sends whole messages over the links of the host,
// and simulates membership. Members ping the members that they watch every 300 ms, and
// rosters spread with the pings. A member is dead on a side if no member of the side has
// been connected to it for 5 s. Messages are ordered and reliable, like the data of a
// stream, and a cut or a freeze holds messages until it ends. As with NewGossip, a member
// closes a connection that brought no message for 3 s, or 10 s from another region.
// Requests on such a connection that arrive later, when a longer cut heals, are lost.
//
// The fields Name, Region, Regions, Seed, Join, Forget and ForgetRefused of c have the
// same meaning as for cluster.NewGossip, with two exceptions: the default Name is the
// name of the host with the number of its start, and the default Join is all hosts of the
// network that run a member of the same Region and Seed. A Logger receives the reason if
// another region is not reached, or if this member refuses a node of another region. The
// ports in Join and Regions and all other fields are ignored.
//
// A host runs one such cluster at a time, until its Close or the Kill of the host.
func (h *Host) Cluster(c cluster.Config) cluster.Cluster {
	if c.Forget <= 0 {
		c.Forget = 5 * time.Minute
	}
	m := &member{
		net: h.net, host: h, config: c, name: c.Name,
		addr:     fmt.Sprintf("%s:%d", h.ip, simPort),
		peers:    make(map[string]*peer),
		missing:  make(map[string]time.Time),
		answered: make(map[*Host]bool),
		work:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),

		regions:    make(map[string]*region),
		foreigners: make(map[string]*peer),
		refused:    make(map[string]uint64),
		warned:     make(map[string]time.Time),
	}
	for name, entries := range c.Regions {
		if name != c.Region {
			m.regions[name] = &region{member: m, name: name, entries: slices.Clone(entries), misses: make(map[*Host]int)}
		}
	}
	return m
}

// member is a simulated cluster.Cluster. Network.mu guards it.
type member struct {
	net     *Network
	host    *Host
	config  cluster.Config
	name    string
	addr    string
	process *process // nil before Start
	closed  bool
	handler cluster.Handler
	view    atomic.Pointer[cluster.View]
	rng     *rand.Rand
	ticks   *time.Timer
	looks   int64     // number of runs of checkMembers
	pings   uint64    // number of pings that this member has sent
	due     time.Time // when checkMembers is due
	aged    time.Time // when forgetDead last ran

	roster   *detect.Roster       // nil before Start
	table    *detect.Connectivity // connectivity of the members in peers; nil before Start
	snapshot *gossip              // copy of roster that is sent; nil after a change of roster
	spread   uint64               // version of table up to which rows were sent; 0 if they have to be sent again
	stale    bool                 // the view may be outdated
	peers    map[string]*peer
	missing  map[string]time.Time // when each missing member became missing, by name; no member of this side is connected to a missing member
	answered map[*Host]bool       // hosts on which a member has answered this member
	stats    cluster.Stats
	progress signal // wakes awaitProgress after each pong

	regions    map[string]*region // the other regions by name; never modified
	foreigners map[string]*peer   // contacts with members of other regions, by name
	refused    map[string]uint64  // number of refusals of members of other regions, by reason
	warned     map[string]time.Time

	inbox      []handlerItem
	changed    bool
	hasAnswers bool // a member has answered in time, and the handler was not notified
	resting    bool // serve waits for work
	work       chan struct{}
	asks       uint64
	stopped    chan struct{} // closed when serve has ended
}

// handlerItem is an item for the handler: a warning, a late answer if answer is not nil,
// or a request.
type handlerItem struct {
	from            *peer
	id              uint64 // zero if no answer is expected
	request, answer []byte
	warn            func() // logs a warning; if it is not nil, no other field is set
}

func (m *member) Start(ctx context.Context, h cluster.Handler) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n := m.net
	n.mu.Lock()
	p := m.host.process
	switch {
	case m.closed:
		n.mu.Unlock()
		return cluster.ErrClosed
	case m.process != nil:
		n.mu.Unlock()
		return errors.New("weirtest: the cluster has started already: call Host.Cluster for another one")
	case p.member != nil:
		n.mu.Unlock()
		return fmt.Errorf("weirtest: host %q runs a cluster already: close that cluster or kill the host first: %w", m.host.name, syscall.EADDRINUSE)
	}
	p.member, m.process, m.handler = m, p, h
	m.host.starts++
	if m.name == "" {
		m.name = fmt.Sprintf("%s-%d", m.host.name, m.host.starts)
	}
	m.rng = n.rand(m.name)
	n.members[m.name+" "+m.addr] = m
	m.roster = detect.NewRoster(detect.Record{Name: m.name, Addr: m.addr, Region: m.config.Region, Born: time.Now().UnixNano()}, m.config.Forget)
	m.table = detect.NewConnectivity(m.name)
	m.stale, m.aged = true, time.Now()
	alone := len(m.joinTargets()) == 0
	m.refresh()
	first := time.Duration(1 + m.rng.Int64N(int64(lookEvery)))
	m.due = time.Now().Add(first)
	m.ticks = time.AfterFunc(first, m.checkMembers)
	m.ping()
	for _, name := range slices.Sorted(maps.Keys(m.regions)) {
		m.regions[name].takeStep()
	}
	go m.serve()
	n.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	m.awaitProgress(ctx, func() bool { return alone || m.stats.JoinedCount > 0 })

	n.mu.Lock()
	defer n.mu.Unlock()
	if m.closed {
		return cluster.ErrClosed
	}
	return nil
}

// awaitProgress waits until the condition is true, m is closed, or ctx is done.
// awaitProgress checks the condition first, and again after each pong.
func (m *member) awaitProgress(ctx context.Context, condition func() bool) {
	for {
		m.net.mu.Lock()
		if m.closed || condition() {
			m.net.mu.Unlock()
			return
		}
		progress := m.progress.wait()
		m.net.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return
		}
	}
}

func (m *member) View() *cluster.View { return m.view.Load() }

func (m *member) Stats() cluster.Stats {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	s := m.stats
	s.Refused = maps.Clone(m.refused)
	s.Unanswered, s.RoundTrips = m.unansweredJoins(), make(map[string]time.Duration)
	if m.table != nil {
		s.SchedulingDelay = m.table.Delay()
	}
	for name, p := range m.peers {
		if trip := p.trips.Mean(); trip > 0 && p.isConnected() {
			s.RoundTrips[name] = trip
		}
	}
	return s
}

// unansweredJoins returns the entries of Join at which no other member has answered, and
// the reason for each. An entry that resolves only to this host is not among them. The
// caller must hold n.mu.
func (m *member) unansweredJoins() map[string]string {
	unanswered := make(map[string]string)
	for _, entry := range m.config.Join {
		hosts := m.net.hostsOf([]string{entry})
		others := slices.ContainsFunc(hosts, func(h *Host) bool { return h != m.host })
		switch {
		case slices.ContainsFunc(hosts, func(h *Host) bool { return m.answered[h] }):
		case len(hosts) == 0:
			unanswered[entry] = fmt.Sprintf("%q does not resolve", entry)
		case others:
			unanswered[entry] = "no member answers at this address"
		}
	}
	return unanswered
}

// Announce immediately sends the state to the connected members that this member watches.
// In a large cluster, these members forward the state.
func (m *member) Announce(s cluster.State) error {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.closed || m.process == nil {
		return cluster.ErrClosed
	}
	var err error
	m.applyEvent(func(r *detect.Roster) (c detect.Change) {
		c, err = r.Announce(s)
		return c
	})
	m.refresh()
	return err
}

func (m *member) Forget(name string) error {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.closed || m.process == nil {
		return cluster.ErrClosed
	}
	var err error
	m.applyEvent(func(r *detect.Roster) (c detect.Change) {
		c, err = r.Forget(name, time.Now())
		return c
	})
	m.refresh()
	m.ping()
	return err
}

// Leave waits until the connected members that this member watches have recorded the
// leave, for at most a second, or until ctx is done.
func (m *member) Leave(ctx context.Context) error {
	n := m.net
	n.mu.Lock()
	if m.closed || m.process == nil {
		n.mu.Unlock()
		return cluster.ErrClosed
	}
	if c := m.applyEvent(func(r *detect.Roster) detect.Change { return r.Leave(time.Now()) }); !c.Own {
		n.mu.Unlock()
		return nil
	}
	m.refresh()
	m.sendAway()
	said := time.Now()
	m.ping()
	n.mu.Unlock()

	bounded, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	m.awaitProgress(bounded, func() bool {
		for _, p := range m.peers {
			if watched, _ := m.table.IsWatched(p.to.name); watched && p.isConnected() && p.noted.Before(said) {
				return false
			}
		}
		return true
	})
	return ctx.Err()
}

func (m *member) Close() error {
	m.net.mu.Lock()
	started := m.process != nil
	m.end()
	m.net.mu.Unlock()
	if started {
		<-m.stopped
	}
	return nil
}

// end closes the member, and sends a reset to each member with which it had contact. The
// caller must hold n.mu.
func (m *member) end() {
	if m.closed {
		return
	}
	m.closed = true
	m.wake()
	if m.process == nil {
		return
	}
	m.process.member = nil
	m.ticks.Stop()
	m.inbox = nil
	m.progress.wake()
	for _, p := range slices.Concat(inOrder(m.peers), inOrder(m.foreigners)) {
		for _, id := range slices.Sorted(maps.Keys(p.asks)) {
			if a := p.asks[id]; !a.over {
				a.finish(nil, cluster.ErrClosed)
			}
		}
		if m.host.frozen {
			p.out.queue, p.out.due = nil, 0 // the process has not sent this
		}
		p.send(message{kind: reset})
	}
}

// breakConnections ends the connections with all members that run or ran on a host. The
// caller must hold n.mu.
func (m *member) breakConnections(with *Host) {
	for _, p := range slices.Concat(inOrder(m.peers), inOrder(m.foreigners)) {
		if p.to.host == with {
			p.handleBreak()
		}
	}
}

// inOrder returns the peers sorted by name. The order of the map would not replay.
func inOrder(peers map[string]*peer) []*peer {
	sorted := make([]*peer, 0, len(peers))
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		sorted = append(sorted, peers[name])
	}
	return sorted
}

// enqueue queues an item for the handler, unless the queue is full.
func (m *member) enqueue(h handlerItem) {
	if len(m.inbox) < inboxBound {
		m.inbox = append(m.inbox, h)
		m.wake()
	}
}

// wake notifies serve that there may be work. The caller must hold n.mu.
func (m *member) wake() {
	if m.resting {
		m.resting = false
		m.work <- struct{}{}
	}
}

// serve calls the handler until the member is closed.
func (m *member) serve() {
	defer close(m.stopped)
	n := m.net
	var inbox []handlerItem
	var requests [][]byte
	var together batch
	for {
		n.mu.Lock()
		if m.closed {
			n.mu.Unlock()
			return
		}
		if m.resting = len(m.inbox) == 0 && !m.changed && !m.hasAnswers; m.resting {
			n.mu.Unlock()
			<-m.work
			continue
		}
		clear(inbox)
		changed, heard := m.changed, m.hasAnswers
		inbox, m.inbox, m.changed, m.hasAnswers = m.inbox, inbox[:0], false, false
		n.mu.Unlock()
		if changed {
			m.handler.Changed()
		}
		if heard {
			m.handler.Answered()
		}
		for rest := inbox; len(rest) > 0; {
			from := rest[0].from
			if say := rest[0].warn; say != nil {
				say()
				rest = rest[1:]
				continue
			}
			if late := rest[0]; late.answer != nil {
				m.handler.HandleLate(from, late.request, late.answer)
				rest = rest[1:]
				continue
			}
			together.from, together.ids, requests = from, together.ids[:0], requests[:0]
			for len(rest) > 0 && rest[0].from == from && rest[0].answer == nil {
				requests = append(requests, rest[0].request)
				together.ids = append(together.ids, rest[0].id)
				rest = rest[1:]
			}
			b := cluster.NewBatch(from.to.name, &together)
			b.Region, b.Requests, b.Read, b.Protocol = from.to.config.Region, requests, time.Now(), spoken
			m.handler.Serve(b)
		}
	}
}

// joinTargets returns the members on the hosts to join. The caller must hold n.mu.
func (m *member) joinTargets() []*member {
	hosts := m.net.hosts
	if len(m.config.Join) > 0 {
		hosts = m.net.hostsOf(m.config.Join)
	}
	var at []*member
	for _, h := range hosts {
		if there := h.process.member; there != nil && there != m && m.belongsWith(there) {
			at = append(at, there)
		}
	}
	return at
}

// belongsWith reports whether two members belong to the same cluster.
func (m *member) belongsWith(other *member) bool {
	return m.config.Region == other.config.Region && m.config.Seed == other.config.Seed
}

// isPaused reports whether the host is paused. A paused process handles present events
// later.
func (m *member) isPaused() bool { return m.host.resumeTime(time.Now()).After(time.Now()) }

// catchUpTime returns the time at which the process has read the messages that a present
// pause has held.
func (m *member) catchUpTime() time.Time { return m.host.resumeTime(time.Now()).Add(lookAgain) }

// checkMembers updates the connectivity of all members, and sends pings. It runs every
// lookEvery. A run that is due during a pause of the host happens after the pause.
func (m *member) checkMembers() {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.closed {
		return
	}
	now := time.Now()
	if m.isPaused() {
		m.ticks.Reset(m.catchUpTime().Sub(now))
		return
	}
	m.table.RecordCheck(m.due, now)
	m.looks++
	for _, p := range inOrder(m.peers) {
		m.recordChange(m.table.CheckSilence(p.to.name, m.due, now))
		if p.pings > 0 && now.Sub(p.waits) > detect.MaxAnswerAge {
			p.setRefused(false) // the host of the peer is silent
		}
		if p.pings > 0 && m.inRoster(p.to.name) {
			p.ping()
		}
		if now.Sub(p.used) > restAfter {
			m.recordChange(m.table.RecordUnused(p.to.name))
		}
	}
	if m.looks%int64(ageEvery/lookEvery) == 0 {
		m.forgetDead(now)
	}
	m.stale = m.stale || len(m.missing) > 0 // the missing members depend on the time
	m.refresh()
	if m.looks%int64(pingEvery/lookEvery) == 0 {
		m.ping()
	}
	m.due = now.Add(lookEvery)
	m.ticks.Reset(lookEvery)
}

// isKept reports whether this member watches the peer, or has recently used and lost the
// connection to the peer.
func (m *member) isKept(p *peer) bool {
	watched, _ := m.table.IsWatched(p.to.name)
	return watched || time.Since(p.used) <= restAfter && !p.isConnected()
}

// ping sends a ping to each kept member of the view, and to members on the hosts to join
// that are kept or not in the roster.
func (m *member) ping() {
	for _, known := range m.view.Load().Members {
		if known.Name != m.name && m.isKept(m.peers[known.Name]) {
			m.peers[known.Name].ping()
		}
	}
	for _, at := range m.joinTargets() {
		if p := m.peer(at); m.isKept(p) || !m.inRoster(at.name) {
			p.ping()
		}
	}
}

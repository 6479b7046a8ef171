package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/internal/conns"
)

// maxIncoming bounds the served connections. Each member needs a connection, and a second connection
// for some seconds when it reconnects. All together use at most half of the file descriptors, because
// without Secrets any host that connects is served.
const maxIncoming = 8192

// maxIncomingOfOne is the maximum number of connections of a single node. This is more than a member
// needs, even if it is connecting again or sending probes. The number is a small part of maxIncoming,
// so that no member displaces other members. If a member opens a further connection, its oldest
// connection is closed, because a connection that the member has lost is older than connections that it
// opened since.
const maxIncomingOfOne = 16

// peersConfig configures peers.
type peersConfig struct {
	Self    hello
	Secrets [][]byte            // the first is preferred, all are accepted; if empty, members do not authenticate
	Regions map[string][][]byte // the secrets of other regions; if nil, they have the same Secrets
	TLS     *tls.Config         // wraps dialled connections; if nil, these are plain TCP
	Names   certificateNames    // if nil, the names in certificates have no effect
	// Dial opens a plain connection, or an in-memory one.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	Log  *slog.Logger // no log if nil
	// Changed is called when the connectivity has changed. Calls do not overlap, and no lock is held.
	// Several changes may cause a single call.
	Changed func()
	// OwnRecord returns the record of this node. The record is sent to each member that this node
	// connects to, and by sendOwnRecord. If the field is nil, this node has no record.
	OwnRecord func() []byte
	// FreshRecords returns the encoded records that are sent with the first rows over a connection to the
	// named member. If the field is nil, there are none.
	FreshRecords func(to string) [][]byte
	// HandleRecord handles a record that a member has sent. The answer is sent to the member,
	// unless the answer is nil or the record is itself an answer. HandleRecord must not block. If
	// the field is nil, records are ignored.
	HandleRecord func(from string, b []byte) (answer []byte)
	// Replaced is called when this node has dialled the named member, and a different member, which
	// advertises the same address, has answered. It is not called if both members were alive at the
	// same time. Replaced must not block.
	Replaced func(name string)
}

// peers has all connections to and from other members, and the connectivity table. The methods are safe
// for concurrent use.
//
// mu guards the fields below it, and is never held while waiting. l.connected, l.stalled, l.watched and
// l.chosen are copies of the state of l in table, for callers that read without the lock. The copies
// are written only while mu is held: with an outdated copy, asks would wait for a missing member. A
// link that is no longer in links must not change table, because the member may have a new link.
type peers struct {
	cfg      peersConfig
	identity identity
	handler  Handler
	refusals *refusals
	trouble  *trouble    // failures of connections to members
	abroad   *trouble    // failures of connections to other regions
	pending  *pending    // accepted connections that have not identified themselves yet; shared with the mux
	unmet    turns       // limits the attempts to connect to members that this node has never met
	left     atomic.Bool // this node has left the cluster
	sparse   atomic.Bool // a copy of table.IsSparse

	timeouts, late, dropped atomic.Uint64

	began   time.Time
	ctx     context.Context // done when closed
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	changed chan struct{}
	most    int // maximum number of served connections

	keeper keeper

	mu      sync.Mutex // never held while waiting
	members []Member   // the argument of the last call of set
	names   []string   // the sorted names of members and of this node
	living  int        // number of members that are not dead, including this node
	links   map[string]*link
	watched map[*link]bool        // links to the members that this node watches
	conns   map[net.Conn]caller   // accepted connections
	calls   map[caller][]net.Conn // accepted connections after their handshake, oldest first
	table   *detect.Connectivity
}

func newPeers(cfg peersConfig, h Handler) *peers {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &peers{
		cfg:      cfg,
		handler:  h,
		refusals: newRefusals(cfg.Log),
		trouble:  troubleWithMembers(cfg.Log),
		abroad:   troubleAbroad(cfg.Log),
		pending:  newPending(pendingSize, conns.OpenFiles()),
		unmet:    make(turns, maxUnmetDials),
		changed:  make(chan struct{}, 1),
		most:     int(min(maxIncoming, conns.OpenFiles()/2)),
		links:    map[string]*link{},
		watched:  map[*link]bool{},
		keeper:   keeper{wake: make(chan struct{}, 1)},
		conns:    map[net.Conn]caller{},
		calls:    map[caller][]net.Conn{},
		table:    detect.NewConnectivity(cfg.Self.Name),
		began:    time.Now(),
	}
	p.identity = identity{
		self: cfg.Self, secrets: cfg.Secrets, regions: cfg.Regions, names: cfg.Names, left: &p.left,
	}
	p.identity.pairs = p.identity.keyPairs()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.notify)
	p.wg.Go(func() { p.keeper.run(p.ctx) })
	return p
}

// notify calls cfg.Changed after changes until p is closed.
func (p *peers) notify() {
	for {
		select {
		case <-p.changed:
			if p.cfg.Changed != nil {
				p.cfg.Changed()
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// step applies an event of the member of l to the table, and signals a change. When step returns,
// l.connected and l.stalled are up to date.
func (p *peers) step(l *link, event func(*detect.Connectivity) bool) {
	p.mu.Lock()
	if p.links[l.name] != l {
		p.mu.Unlock()
		return
	}
	version := p.table.Version()
	changed := event(p.table)
	p.spreadSince(version)
	l.copyState(p.table)
	p.mu.Unlock()
	if changed {
		signal(p.changed)
	}
}

// spreadSince makes the links send the rows that are newer than the given version of the table. The
// caller must hold p.mu.
func (p *peers) spreadSince(version uint64) {
	if p.table.Version() == version {
		return
	}
	for l := range p.watched {
		l.post(eventRows)
	}
}

// merge merges rows that a member has sent.
func (p *peers) merge(from string, rows []detect.Row) {
	p.mu.Lock()
	version := p.table.Version()
	changed := p.table.Merge(from, rows)
	p.spreadSince(version)
	p.mu.Unlock()
	if changed {
		signal(p.changed)
	}
}

// dueRows returns the rows that are due to the member of l.
func (p *peers) dueRows(l *link, f *detect.Feed, now time.Time) (rows []detect.Row, upTo uint64, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.News(f, l.name, now)
}

// set replaces the members. New members get links. The connections to members that are gone, or have a
// new address, are closed. set keeps the slice, so the caller must not modify it later, apart from the field Peer.
func (p *peers) set(members []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	version := p.table.Version()
	if !slices.EqualFunc(members, p.members, needSameLink) {
		p.replaceMembers(members)
	}
	p.table.Arrange(p.names, p.living, time.Now())
	p.sparse.Store(p.table.IsSparse())
	for _, l := range p.links {
		l.copyState(p.table)
	}
	p.spreadSince(version)
}

// needSameLink reports whether the links to two members are equal.
func needSameLink(a, b Member) bool {
	return a.Name == b.Name && a.Addr == b.Addr && (a.State == Dead) == (b.State == Dead)
}

// replaceMembers is the part of set that a change of the members needs. The caller must hold p.mu.
func (p *peers) replaceMembers(members []Member) {
	names, addrs := make([]string, len(members), len(members)+1), make(map[string]string, len(members))
	p.members, p.living = members, 1
	for i, m := range members {
		names[i], addrs[m.Name] = m.Name, m.Addr
		if m.State != Dead && m.Name != p.cfg.Self.Name {
			p.living++
		}
	}
	for name, l := range p.links {
		addr, stays := addrs[name]
		if stays && addr == l.addr {
			continue
		}
		if stays {
			p.table.RecordFailure(name, time.Now())
		}
		delete(p.links, name)
		l.connected.Store(false)
		delete(p.watched, l)
		l.post(eventGone)
		l.opened.wake()
	}
	p.table.SetMembers(names)
	names = append(names, p.cfg.Self.Name)
	slices.Sort(names)
	p.names = slices.Compact(names)
	for _, m := range members {
		l, dead := p.links[m.Name], m.State == Dead
		switch {
		case m.Name == p.cfg.Self.Name:
		case l == nil:
			l = newLink(p, m.Name, m.Addr)
			l.dead.Store(dead)
			p.links[m.Name] = l
		case l.dead.Swap(dead) && !dead:
			l.post(eventAlive)
		}
	}
}

// sendOwnRecord sends the record of this node over the connections of all links that do not rest.
func (p *peers) sendOwnRecord() {
	if p.cfg.OwnRecord != nil {
		p.sendRecord(p.cfg.OwnRecord())
	}
}

// sendRecord sends a record over the connections of all links that do not rest.
func (p *peers) sendRecord(body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if s := l.session.Load(); s != nil && !l.rests.Load() {
			s.out.put(kindNews, 0, body)
		}
	}
}

// isSparse reports whether this node does not watch all members.
func (p *peers) isSparse() bool { return p.sparse.Load() }

// recordCaller records that a member has connected to this node, which proves that the member is alive.
// A node that dials itself, at the address of a different member, has met no member.
func (p *peers) recordCaller(peer hello) {
	if peer.Name == p.cfg.Self.Name {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[peer.Name]; l != nil {
		l.met.record()
		l.redial()
	}
	p.redialFormer(peer)
}

// recordAnswerer records that a member has answered at the dialled address.
func (p *peers) recordAnswerer(l *link, peer hello) {
	l.met.record()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redialFormer(peer)
}

// redialFormer dials the disconnected members that advertise the address of peer, because peer may have
// replaced them. The caller must hold p.mu.
func (p *peers) redialFormer(peer hello) {
	for name, l := range p.links {
		if l.addr == peer.Addr && name != peer.Name {
			l.redial()
		}
	}
}

// wereAliveTogether reports whether two members that advertise the same address were alive at the same
// time: the last answer of the first member arrived more than idleWait after this node met the second
// member, or began if the second member is this node. A balancer or a translated address then leads to
// both, and an answer of the second member does not prove that the first has ended.
func (p *peers) wereAliveTogether(name, other string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	met := p.began
	if l := p.links[other]; l != nil {
		met = l.met.time()
	} else if other != p.cfg.Self.Name {
		return false
	}
	return !met.IsZero() && p.table.LastAnswer(name).Sub(met) > idleWait
}

// isCalling reports whether a member has an open connection to this node, and so is alive.
func (p *peers) isCalling(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls[caller{region: p.cfg.Self.Region, name: name}]) > 0
}

// recordPing records the ping of a member. By its own report, the member had an answer from this node
// the given time ago, so both directions work. chosen reports whether the member itself has chosen
// to watch this node. recordPing returns the scheduling delay of this process.
func (p *peers) recordPing(name string, ago time.Duration, chosen bool) (delay time.Duration) {
	p.mu.Lock()
	now := time.Now()
	p.table.RecordAnswer(name, now.Add(-ago))
	changed := chosen && p.table.RecordWatcher(name, now)
	delay = p.table.Delay()
	p.mu.Unlock()
	if changed {
		signal(p.changed)
	}
	return delay
}

// peer returns the Peer of a member, or nil if the member is unknown.
func (p *peers) peer(name string) Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[name]; l != nil {
		return l
	}
	return nil
}

// connections returns the connections between the named members.
func (p *peers) connections(names []string) detect.Connections {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Connections(names)
}

// dial connects to addr to reach a node of region, and performs the handshake. The errors are those of
// openStream and identity.dial. With some errors, the result contains the hello of the node.
func (p *peers) dial(ctx context.Context, addr, region string) (net.Conn, hello, error) {
	conn, err := openStream(ctx, p.cfg.Dial, p.cfg.TLS, addr, firstByteCheck)
	if err != nil {
		return nil, hello{}, err
	}
	stop := context.AfterFunc(ctx, func() { sever(conn) })
	secured, peer, err := p.identity.dial(conn, region)
	if !stop() && err == nil {
		err = errSilent
	}
	if err != nil {
		sever(conn)
		return nil, peer, err
	}
	return secured, peer, nil
}

// probe returns the hello of the node that answers at addr, or an error of dial. It returns both if the
// node has identified itself but the handshake failed. A probe takes at most handshakeWait.
func (p *peers) probe(ctx context.Context, addr string) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWait)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	conn, peer, err := p.dial(ctx, addr, p.cfg.Self.Region)
	if err != nil {
		return peer, err
	}
	sever(conn)
	return peer, nil
}

// serve handles an accepted connection on which firstByteCheck has been read and TLS, if configured, is
// established. The argument in is the entry of conn in pending. serve returns at once.
func (p *peers) serve(conn net.Conn, in *pendingConn) {
	p.mu.Lock()
	if p.ctx.Err() != nil || len(p.conns) >= p.most {
		crowded := p.ctx.Err() == nil
		p.mu.Unlock()
		p.pending.leave(in)
		sever(conn)
		if crowded {
			p.refusals.add(reasonCrowded, conn.RemoteAddr(), errors.New("cluster: too many connections"))
		}
		return
	}
	p.conns[conn] = caller{}
	p.wg.Go(func() {
		c := p.receive(conn, in)
		p.wg.Go(func() { // a new goroutine, because the handshake has grown the stack of this one
			if c != nil {
				p.answer(conn, c)
			}
			sever(conn)
			p.removeConn(conn)
		})
	})
	p.mu.Unlock()
}

// receive performs the handshake, after which the connection leaves pending. It returns nil if this node
// does not serve the connection.
func (p *peers) receive(conn net.Conn, in *pendingConn) *incoming {
	conn.SetDeadline(time.Now().Add(handshakeWait))
	secured, peer, reason, err := p.identity.accept(conn)
	if !p.pending.leave(in) || p.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		p.refusals.add(reason, conn.RemoteAddr(), err)
		return nil
	}
	conn.SetDeadline(time.Time{})
	c := newIncoming(p, secured, peer)
	serves, oldest := p.registerCaller(conn, peer)
	if oldest != nil {
		sever(oldest)
		p.refusals.add(reasonCrowded, oldest.RemoteAddr(), errors.New("cluster: too many connections of one member"))
	}
	if !serves {
		return nil
	}
	if !c.abroad {
		p.recordCaller(peer)
	}
	return c
}

// answer serves the requests of a connection until it ends.
func (p *peers) answer(conn net.Conn, c *incoming) {
	err := c.read()
	sever(conn)
	c.out.close()
	if p.ctx.Err() == nil {
		p.refusals.add(violation(err), conn.RemoteAddr(), err)
	}
}

// caller is the node that has opened a connection. It is zero until the node has identified itself.
type caller struct {
	region, name string
	abroad       bool
}

// registerCaller records that peer has opened conn, and returns whether this node serves conn. A node
// that has left does not serve nodes of other regions, so that these ask a different member. If peer has
// too many connections, oldest is the oldest of them, which must be closed. Otherwise oldest is nil.
func (p *peers) registerCaller(conn net.Conn, peer hello) (serves bool, oldest net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := caller{peer.Region, peer.Name, peer.isAbroad()}
	open := p.calls[c]
	if len(open) >= maxIncomingOfOne {
		oldest, open = open[0], open[1:]
	}
	p.calls[c] = append(open, conn)
	p.conns[conn] = c
	return !c.abroad || !p.left.Load(), oldest
}

// removeConn removes a connection.
func (p *peers) removeConn(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[conn]
	delete(p.conns, conn)
	open := slices.DeleteFunc(p.calls[c], func(other net.Conn) bool { return other == conn })
	if p.calls[c] = open; len(open) == 0 {
		delete(p.calls, c)
	}
}

// leave closes the connections from other regions, and makes this node refuse new connections from them,
// so that their nodes ask a different member.
func (p *peers) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left.Store(true)
	for conn, c := range p.conns {
		if c.abroad {
			sever(conn)
		}
	}
}

// reportOverlong reports an answer that cannot be sent: a mistake of the Handler.
func (p *peers) reportOverlong(to string, size int) {
	p.dropped.Add(1)
	p.trouble.add(to, "", ErrTooLarge)
}

// stats returns the Stats that peers counts.
func (p *peers) stats() Stats {
	trips := make(map[string]time.Duration)
	p.mu.Lock()
	late := p.table.Delay()
	for name, l := range p.links {
		if s := l.session.Load(); s != nil && s.trip.Load() > 0 {
			trips[name] = time.Duration(s.trip.Load())
		}
	}
	p.mu.Unlock()
	return Stats{
		RoundTrips: trips, SchedulingDelay: late,
		Refused:  p.refusals.snapshot(),
		Timeouts: p.timeouts.Load(),
		Late:     p.late.Load(),
		Dropped:  p.dropped.Load(),
	}
}

// close closes every connection at once and waits for the goroutines of p. It may be called repeatedly,
// but not by Changed or a Handler.
func (p *peers) close() {
	p.mu.Lock()
	p.cancel()
	conns := slices.Collect(maps.Keys(p.conns))
	for _, l := range p.links {
		l.connected.Store(false)
		l.opened.wake()
	}
	p.mu.Unlock()
	for _, conn := range conns {
		sever(conn)
	}
	p.wg.Wait()
}

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

// maxIncoming bounds the connections that are served. Members need one each,
// and one more for some seconds when they reconnect. They have half of the file
// descriptors at most: where there are no Secrets, anybody has himself served.
const maxIncoming = 8192

// maxIncomingOfOne bounds those of one member: more than it has while it reconnects and
// is probed, and a small part of all, so that no member takes the others' places. Where
// one more comes the oldest goes, which is the one that its member has lost, if any.
const maxIncomingOfOne = 16

// peersConfig is what peers need to know.
type peersConfig struct {
	Self    hello
	Secrets [][]byte            // the first is preferred, all are accepted; none: no authentication
	Regions map[string][][]byte // the secrets of other regions; nil: Secrets are
	TLS     *tls.Config         // wraps what is dialled; nil: plain TCP
	Names   certificateNames    // nil: what certificates say has no part
	// Dial opens a plain connection, or an in-memory one.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	Log  *slog.Logger // nil: none
	// Changed is told that hears would answer differently. Calls come one at
	// a time, with no lock held; changes that come together are told once.
	Changed func()
	// Own is what this node says of itself to a member whenever it connects to
	// it, and when tell is called; nil: nothing.
	Own func() []byte
	// News takes in what a member says of itself, and what to answer, if not nil;
	// and what it answers to this node. nil: nobody wants it. It must not block.
	News func(from string, b []byte) (answer []byte)
	// Replaced is called when this node has dialled a member that it is not connected to, and another
	// member, which advertises the same address, has answered. It must not block.
	Replaced func(name string)
}

// peers has every connection to and from the other members, and the table of
// connectivity. Its methods are safe for concurrent use.
//
// mu guards table and is never held while waiting. l.heard, l.stalled and l.watched are copies of
// what table has of l, for callers that ask without the lock. They are written under mu
// alone: a copy that lags behind would have asks wait for a member that is missing. A link that is not in links any more changes nothing, since its member may
// have another by then.
type peers struct {
	cfg      peersConfig
	identity identity
	handler  Handler
	refusals *refusals
	trouble  *trouble    // with members
	abroad   *trouble    // with regions
	pending  *pending    // connections that came in and have not identified themselves yet; the mux's, too
	unmet    turns       // to dial members that this node has never met
	left     atomic.Bool // this node is no member any more

	timeouts, late, dropped atomic.Uint64

	began   time.Time
	ctx     context.Context // done when closed
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	changed chan struct{}
	most    int // connections that are served

	keeper keeper

	mu      sync.Mutex // never held while waiting
	links   map[string]*link
	watched map[*link]bool        // those of links to members that this node watches
	conns   map[net.Conn]caller   // that came in
	calls   map[caller][]net.Conn // of those that have said whose they are, oldest first
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

// notify passes changes on.
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

// step lets an event about l's member happen to the table, and passes on what
// changed. l.heard and l.stalled are right when it returns.
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

// spreadSince has the links send the rows that are newer than a version of the table. The caller
// must hold p.mu.
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

// news returns the rows that are due to the member of l.
func (p *peers) news(l *link, f *detect.Feed, now time.Time) (rows []detect.Row, upTo uint64, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.News(f, l.name, now)
}

// set takes in the members. It opens connections to new ones and closes those to members
// that are gone. It does not change members.
func (p *peers) set(members []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	version := p.table.Version()
	names, addrs, living := make([]string, len(members)), make(map[string]string, len(members)), 1
	for i, m := range members {
		names[i], addrs[m.Name] = m.Name, m.Addr
		if m.State != Dead && m.Name != p.cfg.Self.Name {
			living++
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
		l.heard.Store(false)
		delete(p.watched, l)
		l.post(eventGone)
		l.opened.wake()
	}
	p.table.SetMembers(names)
	names = append(names, p.cfg.Self.Name)
	slices.Sort(names)
	p.table.Arrange(slices.Compact(names), living, time.Now())
	for _, m := range members {
		l, dead := p.links[m.Name], m.State == Dead
		switch {
		case m.Name == p.cfg.Self.Name:
		case l == nil:
			l = newLink(p, m.Name, m.Addr)
			l.dead.Store(dead)
			p.links[m.Name] = l
			l.copyState(p.table)
		case l.dead.Swap(dead) && !dead:
			l.post(eventAlive)
		}
	}
	for _, l := range p.links {
		l.copyState(p.table)
	}
	p.spreadSince(version)
}

// tell sends the record of this node over all connections that do not rest.
func (p *peers) tell() {
	if p.cfg.Own != nil {
		p.spread(p.cfg.Own(), func(*link) bool { return true })
	}
}

// isSparse reports whether this node does not watch all members.
func (p *peers) isSparse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.IsSparse()
}

// passOn sends a record that a member has sent to the other members that this node watches. In a
// small cluster that member has sent it to all.
func (p *peers) passOn(record []byte, from string) {
	if !p.isSparse() {
		return
	}
	p.spread(record, func(l *link) bool { return l.watched.Load() && l.name != from })
}

// spread sends a record to the members of some links, over connections that do not rest.
func (p *peers) spread(record []byte, to func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if s := l.session.Load(); s != nil && !l.rests.Load() && to(l) {
			s.out.put(kindNews, 0, record)
		}
	}
}

// came records that a member has connected to this node, which proves that it is alive. A node
// that dials itself, at the address of another member, has met no member.
func (p *peers) came(of hello) {
	if of.Name == p.cfg.Self.Name {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[of.Name]; l != nil {
		l.met.now()
		l.redial()
	}
	p.redialFormer(of)
}

// met records that a member has answered where this node dialled it.
func (p *peers) met(l *link, of hello) {
	l.met.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redialFormer(of)
}

// redialFormer dials at once the members that had the address of a member before, as it may have
// replaced them. The caller must hold p.mu.
func (p *peers) redialFormer(of hello) {
	for name, l := range p.links {
		if l.addr == of.Addr && name != of.Name {
			l.redial()
		}
	}
}

// overlapped reports whether a member and another one that advertises its address were alive at
// one time: this node last heard from the member after it met the other one. A balancer or a
// translated address leads to both then, and the answer of one proves nothing about the other.
func (p *peers) overlapped(name, other string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	met := p.began
	if l := p.links[other]; l != nil {
		met = l.met.when()
	} else if other != p.cfg.Self.Name {
		return false
	}
	return !met.IsZero() && p.table.LastAnswer(name).Sub(met) > idleWait
}

// calling reports whether a member has a connection to this node open: it lives.
func (p *peers) calling(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls[caller{region: p.cfg.Self.Region, name: name}]) > 0
}

// pinged records the ping of a member that had an answer from this node a while ago by its own
// account, so that both ways are open. chosen reports whether the member watches this node of itself.
// It returns the scheduling delay of this process.
func (p *peers) pinged(name string, ago time.Duration, chosen bool) (delay time.Duration) {
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

// peer is the way to ask a member, nil if set did not name it.
func (p *peers) peer(name string) Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[name]; l != nil {
		return l
	}
	return nil
}

// connections returns the table's connections between the named members.
func (p *peers) connections(names []string) detect.Connections {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Connections(names)
}

// dial connects to addr, to reach a node of region, and shakes hands. The errors
// are those of handshake.go.
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

// probe returns the hello of what answers at addr, or why this node cannot talk to it: one
// of the sentinels of handshake.go. Where the other has identified itself and is
// refused nevertheless, there are both. It takes at most handshakeWait.
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

// serve takes over a connection that came in, whose first byte, already read,
// was firstByteCheck, and on which TLS is established. in is the connection among those
// that have not identified themselves. It returns at once.
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
		p.pending.leave(in)
		p.wg.Go(func() { // whose stack has not grown by a handshake
			if c != nil {
				p.answer(conn, c)
			}
			sever(conn)
			p.ended(conn)
		})
	})
	p.mu.Unlock()
}

// receive shakes hands. It returns nil if this node does not serve the connection.
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
	serves, oldest := p.greet(conn, peer)
	if oldest != nil {
		sever(oldest)
		p.refusals.add(reasonCrowded, oldest.RemoteAddr(), errors.New("cluster: too many connections of one member"))
	}
	if !serves {
		return nil
	}
	if !c.abroad {
		p.came(peer)
	}
	return c
}

// answer answers the requests of a connection until it ends.
func (p *peers) answer(conn net.Conn, c *incoming) {
	err := c.read()
	sever(conn)
	c.out.close()
	if p.ctx.Err() == nil {
		p.refusals.add(violation(err), conn.RemoteAddr(), err)
	}
}

// caller is the node that has opened a connection. The zero caller has not identified
// itself yet.
type caller struct {
	region, name string
	abroad       bool
}

// greet takes note of whose connection it is, and returns whether this node still serves
// it: one that leaves has nodes of other regions ask another member. Where its member
// has too many, oldest is one that is to be closed.
func (p *peers) greet(conn net.Conn, of hello) (serves bool, oldest net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := caller{of.Region, of.Name, of.abroad()}
	open := p.calls[c]
	if len(open) >= maxIncomingOfOne {
		oldest, open = open[0], open[1:]
	}
	p.calls[c] = append(open, conn)
	p.conns[conn] = c
	return !c.abroad || !p.left.Load(), oldest
}

// ended forgets a connection.
func (p *peers) ended(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[conn]
	delete(p.conns, conn)
	open := slices.DeleteFunc(p.calls[c], func(other net.Conn) bool { return other == conn })
	if p.calls[c] = open; len(open) == 0 {
		delete(p.calls, c)
	}
}

// leave makes nodes of other regions ask another member from now on.
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

// overlong reports an answer that cannot be sent: a mistake of the Handler.
func (p *peers) overlong(to string, size int) {
	p.dropped.Add(1)
	p.trouble.add(to, "", ErrTooLarge)
}

// stats fills in what is counted here.
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

// close ends every connection at once and waits for what it started. It may be
// called more than once, but not by Changed or a Handler.
func (p *peers) close() {
	p.mu.Lock()
	p.cancel()
	conns := slices.Collect(maps.Keys(p.conns))
	for _, l := range p.links {
		l.heard.Store(false)
		l.opened.wake()
	}
	p.mu.Unlock()
	for _, conn := range conns {
		sever(conn)
	}
	p.wg.Wait()
}

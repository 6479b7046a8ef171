package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
)

// NewGossip returns a Cluster whose members find each other by gossip. No port is opened before Start.
// Close does not wait for a probe of memberlist that is under way, because memberlist can neither stop
// the probe nor wait for its end. The probe sends no more packets and gives up within some seconds.
func NewGossip(cfg Config) Cluster {
	g := &gossipCluster{
		cfg:      cfg,
		speaks:   ownVersions,
		answered: make(map[string]bool),
		own:      make(map[string]bool),
		wake:     make(chan struct{}, 1),
		announce: make(chan struct{}, 1),
		hurry:    make(chan struct{}, 1),
		passing:  passing{wake: make(chan struct{}, 1)},
		started:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.regions = make(map[string]*region, len(cfg.Regions))
	for name, entries := range cfg.Regions {
		if name != cfg.Region {
			g.regions[name] = newRegion(g.ctx, name, entries)
		}
	}
	return g
}

type gossipCluster struct {
	cfg    Config
	speaks versions
	log    *slog.Logger

	advertise string         // the Addr that other nodes dial
	reachable netip.AddrPort // the resolved advertise, for gossip
	port      string         // the bound port

	regions map[string]*region // the other regions; never modified
	peers   *peers
	mux     *mux
	gossip  *gossip.Gossip

	// mu guards the fields below it. It is never held while waiting or while memberlist is called.
	mu      sync.Mutex
	roster  *detect.Roster
	version uint64 // incremented when the members of the roster change
	joined  joinOutcome

	answered map[string]bool // the entries of Join that have led to a member; owned by keepJoining
	own      map[string]bool // the addresses that logOwnAddress has logged; owned by keepJoining

	viewing  sync.Mutex  // serializes refresh; no lock is held when it is taken
	shown    shownRoster // guarded by viewing
	view     atomic.Pointer[View]
	wake     chan struct{} // signals that the view may have changed
	announce chan struct{} // signals that the record of this node has changed
	hurry    chan struct{} // signals that a member of this side is dead in the roster: join now
	passing  passing

	ctx     context.Context // done once Close is called
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	phase   atomic.Int32
	opened  atomic.Bool   // the roster, peers, the mux and gossip exist
	started chan struct{} // closed when Start has returned
	closed  chan struct{} // closed when everything has stopped

	leaving sync.Mutex // guards left and stop; never held while waiting
	left    bool
	stop    bool
	leaves  sync.WaitGroup
}

// The phases of a Cluster's life.
const (
	phaseNew int32 = iota
	phaseRunning
	phaseClosed
)

func (g *gossipCluster) Start(ctx context.Context, h Handler) (err error) {
	if !g.phase.CompareAndSwap(phaseNew, phaseRunning) {
		if g.ctx.Err() != nil {
			return ErrClosed
		}
		return errStartedTwice
	}
	defer close(g.started)
	if err := g.cfg.validate(); err != nil {
		return errors.Join(err, g.teardown())
	}
	g.cfg = g.cfg.withDefaults()
	g.log = g.cfg.Logger
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()

	if err := g.open(ctx, h); err != nil {
		return errors.Join(err, g.teardown())
	}
	g.joined.unanswered = untriedEntries(g.cfg.Join)
	g.opened.Store(true)
	g.wg.Go(g.keepAnnouncing)
	g.wg.Go(g.keepPassing)
	// The weir.Node that uses this Cluster answers requests from here on. It must know each member as
	// soon as the member is found, and not only after all addresses of Config.Join were tried.
	g.wg.Go(func() { g.watch(h) })
	for _, r := range g.regions {
		g.peers.reach(r, g.cfg.Network)
	}
	if err := g.firstJoin(ctx); err != nil {
		return errors.Join(err, g.teardown())
	}
	g.refresh() // the caller of Start sees the members that were joined
	signal(g.wake)
	return nil
}

// open listens, and starts peers, the mux and gossip on the port.
func (g *gossipCluster) open(ctx context.Context, h Handler) error {
	listener, udp, err := g.cfg.Network.Listen(ctx, g.cfg.Bind)
	if err != nil {
		return fmt.Errorf("cluster: Bind %q: %w", g.cfg.Bind, err)
	}
	if err := g.prepare(ctx, listener.Addr()); err != nil {
		return errors.Join(err, listener.Close(), udp.Close())
	}
	names := certificateNames(g.cfg.CertificateNames)
	clientTLS := names.clientTLS(g.cfg.TLS)
	g.peers = newPeers(peersConfig{
		Self:         hello{Name: g.cfg.Name, Addr: g.advertise, Region: g.cfg.Region, Seed: g.cfg.Seed}.withVersions(g.speaks),
		Secrets:      g.cfg.Secrets,
		Regions:      g.cfg.RegionSecrets,
		TLS:          clientTLS,
		Names:        names,
		Dial:         g.cfg.Network.Dial,
		Log:          g.log,
		Changed:      g.signalChange,
		OwnRecord:    g.ownRecord,
		FreshRecords: g.passing.freshRecords,
		HandleRecord: g.handleRecord,
		Replaced:     g.handleReplaced,
	}, h)
	g.refresh() // from here on h is called, and may call View
	ofMember := func(conn net.Conn) error { return names.checkCertificate(conn, g.cfg.Region, "") }
	g.mux = newMux(listener, g.cfg.TLS, ofMember, g.gossip.ReadMessage, g.log, g.peers.pending, g.peers.serve)
	return g.gossip.Start(gossip.Port{
		Context: g.mux.ctx,
		UDP:     udp,
		Streams: g.mux.streams,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return g.mux.dial(ctx, g.cfg.Network, clientTLS, addr)
		},
		Close: g.mux.close,
	})
}

// prepare finds the address of the node, and creates its roster and its gossip. prepare opens no port.
func (g *gossipCluster) prepare(ctx context.Context, bound net.Addr) (err error) {
	if err := g.findAddress(ctx, bound); err != nil {
		return err
	}
	g.roster = detect.NewRoster(detect.Record{
		Name: g.cfg.Name, Addr: g.advertise, Region: g.cfg.Region, Born: time.Now().UnixNano(),
	}, g.cfg.Forget)
	g.gossip, err = gossip.New(g.ctx, gossip.Config{
		Name: g.cfg.Name, Region: g.cfg.Region, Seed: g.cfg.Seed, Keys: gossipKeys(g.cfg.Secrets), Addr: g.reachable,
		Step:    g.step,
		Refused: func(reason string, from net.Addr, err error) { g.mux.gossiped.add(reason, from, err) },
		Size:    g.size,
		OnSide:  func(name string) bool { return g.view.Load().OnSide(name) },
		Log:     g.log,
	})
	return err
}

// step passes an event to the roster, and spreads and signals the change.
func (g *gossipCluster) step(event func(*detect.Roster) detect.Change) { g.stepFrom("", event) }

// stepFrom is step for an event that a member has sent over a connection.
func (g *gossipCluster) stepFrom(sender string, event func(*detect.Roster) detect.Change) {
	c := g.change(sender, event)
	if c.Rejected > 0 {
		g.mux.gossiped.addAll(gossip.ReasonMembers, c.Rejected, nil, gossip.ErrFull)
	}
	if c.Members {
		signal(g.wake)
	}
	if c.Own {
		signal(g.announce)
	}
	for _, r := range c.Spread {
		g.gossip.Spread(r)
	}
}

// change passes an event to the roster. In a large cluster, a record that is new to the roster is passed on,
// whether it has arrived over a connection or by gossip. A member sends its own record only to the few members
// that it is connected to, and gossip may have a queue of many seconds.
func (g *gossipCluster) change(sender string, event func(*detect.Roster) detect.Change) detect.Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := event(g.roster)
	if c.Members {
		g.version++
	}
	if len(c.Learned) > 0 && g.peers.isSparse() {
		g.passing.add(sender, time.Now(), c.Learned...) // while mu is held: a later record must not be added first
	}
	return c
}

func (g *gossipCluster) signalChange() { signal(g.wake) }

// handleReplaced is called when a different member has answered at the address of the named member. The
// roster then marks the named member as gone, unless it is on this side and not dead.
func (g *gossipCluster) handleReplaced(name string) {
	if !g.view.Load().OnSide(name) {
		g.step(func(r *detect.Roster) detect.Change { return r.Replace(name, time.Now()) })
	}
}

// size returns an upper bound of the number of members that a broadcast must reach.
func (g *gossipCluster) size() int {
	if v := g.view.Load(); v != nil {
		return len(v.Members) + 1
	}
	return 1
}

const (
	// tickEvery is the pace at which the roster ages.
	tickEvery = time.Second
	// tickRested is the pace once neither the roster nor the connectivity has changed for tickRested, and
	// all members are reached.
	// Then only tombstones age.
	tickRested = 10 * time.Second
	// refreshPace is the least time, for each member, between two refreshes in a large cluster. With
	// the view of the node above, a refresh takes 1 to 3 µs for each member. There may be events of
	// hundreds of members within milliseconds, and their rows arrive at the same pace. An ask does not
	// wait for a refresh: its link finds the failure itself.
	refreshPace = 200 * time.Microsecond
)

// watch refreshes the view and lets the roster age. No other goroutine calls h.Changed.
func (g *gossipCluster) watch(h Handler) {
	before := time.Now()
	changed, due := before, before.Add(tickEvery)
	tick := time.NewTimer(tickEvery)
	defer tick.Stop()
	var told *View
	for {
		if v := g.refresh(); v != told {
			told = v
			h.Changed()
		}
		refreshed := time.Now()
		select {
		case <-g.ctx.Done():
			return
		case <-g.wake:
			if g.peers.isSparse() {
				sleep(g.ctx, time.Until(refreshed.Add(time.Duration(len(told.Members))*refreshPace)))
				unsignal(g.wake) // the next refresh serves all of these
			}
			changed = time.Now()
			if next := changed.Add(tickEvery); next.Before(due) {
				due = next
				tick.Reset(tickEvery)
			}
		case <-tick.C:
			now, view := time.Now(), g.view.Load()
			g.step(func(r *detect.Roster) detect.Change {
				if pause := now.Sub(due) - tickEvery; pause > 0 {
					r.SkipPause(pause, now)
				}
				return r.Tick(before, now, view.OnSide)
			})
			before = now
			g.revive()
			next := tickEvery
			if now.Sub(changed) >= tickRested && isWhole(view) {
				next = tickRested
			}
			due = now.Add(next)
			tick.Reset(next)
		}
	}
}

// isWhole reports whether all members are on the side of this node and not dead.
func isWhole(v *View) bool {
	return !slices.ContainsFunc(v.Members, func(m Member) bool { return m.State == Missing || m.State == Dead })
}

// revive makes gossip report again that members are alive: the members that are dead in the roster, but
// connected to this node and alive according to gossip. memberlist reports each change once, and after
// that report the roster may have recorded the death of the member by mistake.
func (g *gossipCluster) revive() {
	v := g.view.Load()
	connected := make(map[string]bool)
	for i, m := range v.Members {
		if m.State == Dead && v.Direct[i] {
			connected[m.Name] = true
		}
	}
	if len(connected) == 0 {
		return
	}
	g.gossip.Report(connected)
}

// shownRoster is the part of a view that depends on the roster alone. Most views differ from the view before in
// connections only, so that refresh builds a shownRoster only when the roster has changed.
type shownRoster struct {
	members []Member  // the result of RosterMembers, with Peers
	version uint64    // of the roster
	until   time.Time // when the next unconfirmed member counts as dead; zero if there is none
}

// refresh builds a new view, and stores the new view if it differs from the current view. The result is
// the current view.
func (g *gossipCluster) refresh() *View {
	g.viewing.Lock()
	defer g.viewing.Unlock()
	changed := g.showRoster(time.Now())
	g.peers.set(g.shown.members)
	if changed {
		for i, m := range g.shown.members {
			g.shown.members[i].Peer = g.peers.peer(m.Name)
		}
	}
	v := NewView(g.cfg.Name, g.shown.members, g.peers.connections)
	if !g.cfg.ForgetRefused {
		v.Ended = nil
	}
	for i, on := range v.Side() {
		if on && v.Self >= 0 && v.Members[i].State == Dead {
			signal(g.hurry)
		}
	}
	old := g.view.Load()
	if old != nil && old.Equal(v) {
		return old
	}
	g.view.Store(v)
	return v
}

// showRoster replaces g.shown if the roster has changed, without the Peers, and reports whether it has.
func (g *gossipCluster) showRoster(now time.Time) (changed bool) {
	g.mu.Lock()
	version := g.version
	if g.shown.members != nil && g.shown.version == version && (g.shown.until.IsZero() || now.Before(g.shown.until)) {
		g.mu.Unlock()
		return false
	}
	roster := g.roster.Members()
	g.mu.Unlock()
	g.shown = shownRoster{members: RosterMembers(roster, now), version: version}
	for _, e := range roster {
		if dies := e.DiesAt(now); !dies.IsZero() && (g.shown.until.IsZero() || dies.Before(g.shown.until)) {
			g.shown.until = dies
		}
	}
	return true
}

// members returns the roster.
func (g *gossipCluster) members() []detect.Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roster.Members()
}

func (g *gossipCluster) View() *View { return g.view.Load() }

func (g *gossipCluster) Announce(s State) (err error) {
	switch {
	case g.ctx.Err() != nil:
		return ErrClosed
	case !g.opened.Load():
		return errNotStarted
	}
	g.step(func(r *detect.Roster) (c detect.Change) {
		c, err = r.Announce(s)
		return c
	})
	g.refresh()
	return err
}

// ownRecord returns the encoded record of this node, for the members that this node connects to.
func (g *gossipCluster) ownRecord() []byte {
	g.mu.Lock()
	self := g.roster.Self()
	g.mu.Unlock()
	return gossip.EncodeRecords([]detect.Record{self}, time.Now())
}

// handleRecord merges a record that the member from has sent over a connection with this node. In a large
// cluster, the record may be about a third member. The answer, if any, is the tombstone of the member from, which
// does not know about its tombstone.
func (g *gossipCluster) handleRecord(from string, b []byte) (answer []byte) {
	now := time.Now()
	records, err := gossip.DecodeRecords(b, now)
	if err != nil || len(records) != 1 {
		g.log.Debug("cannot use a record of a member", "member", from, "error", err)
		return nil
	}
	record, changed := records[0], false
	g.stepFrom(from, func(r *detect.Roster) detect.Change {
		if tombstone, ok := r.Tombstone(record); ok && record.Name == from {
			answer = gossip.EncodeRecords([]detect.Record{tombstone}, now)
		}
		c := r.Merge(records, now)
		changed = c.Members
		return c
	})
	// View must show the tombstone of this node before the next pong. In a large cluster the records of hundreds
	// of members may arrive together, each from several members.
	if changed && (record.Name == g.cfg.Name || !g.peers.isSparse()) {
		g.refresh()
	}
	return answer
}

// In a small cluster, each announcement is gossiped announceTimes times, at intervals of announceAgain: at the
// pace of gossip, because a later announcement replaces an earlier one that waits for the next round. Gossip goes
// to random members: in a cluster of five, an announcement that was gossiped a single time did not reach a member
// in 2 of 100 cases. Without another path, that member would receive the announcement half a minute late. In a
// large cluster, connections are another path.
const (
	announceTimes = 3
	announceAgain = 500 * time.Millisecond
)

// keepAnnouncing sends the record of this node after each change: over the connections to members,
// which takes a network latency, and by gossip, which reaches all other members.
func (g *gossipCluster) keepAnnouncing() {
	again := time.NewTimer(announceAgain)
	defer again.Stop()
	for times := 0; ; times-- {
		select {
		case <-g.ctx.Done():
			return
		case <-g.announce:
			if times = announceTimes; g.peers.isSparse() {
				times = 1
			}
			g.peers.sendOwnRecord()
		case <-again.C:
		}
		if g.hasLeft() || times <= 0 {
			continue
		}
		g.gossip.Update()
		again.Reset(announceAgain)
	}
}

func (g *gossipCluster) Region(name string) Peer {
	if r := g.regions[name]; r != nil {
		return r
	}
	return nil
}

func (g *gossipCluster) Forget(name string) error {
	err := g.checkRunning()
	if err != nil {
		return err
	}
	g.step(func(r *detect.Roster) (c detect.Change) {
		c, err = r.Forget(name, time.Now())
		return c
	})
	return err
}

// Leave sends two goodbyes: a tombstone for the rosters, and the goodbye of memberlist, so that
// no member probes this node.
func (g *gossipCluster) Leave(ctx context.Context) error {
	if err := g.checkRunning(); err != nil {
		return err
	}
	g.leaving.Lock()
	if g.stop {
		g.leaving.Unlock()
		return ErrClosed
	}
	first := !g.left
	g.left = true
	g.leaves.Add(1)
	g.leaving.Unlock()
	defer g.leaves.Done()
	if !first {
		return nil
	}
	c := g.change("", func(r *detect.Roster) detect.Change { return r.Leave(time.Now()) })
	signal(g.wake)
	signal(g.announce)
	g.peers.leave()
	for _, r := range c.Spread {
		g.gossip.Spread(r)
	}
	g.gossip.Leave()
	for times := goodbyeTimes; !g.isAlone(); {
		g.gossip.SendNews(c.Spread...)
		if times--; times == 0 {
			break
		}
		select {
		case <-time.After(goodbyeAgain):
		case <-g.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("cluster: Leave: the goodbye may not have reached all members: %w", ctx.Err())
		}
	}
	return nil
}

// isAlone reports whether all other members have left or are dead, so that no member needs the goodbye.
func (g *gossipCluster) isAlone() bool {
	return !slices.ContainsFunc(g.view.Load().Members, func(m Member) bool { return m.Name != g.cfg.Name && m.State != Dead })
}

// Leave sends the goodbye goodbyeTimes times to random members, at intervals of goodbyeAgain. It does not wait for
// rounds of gossip: in a cluster of 1,000 to which 50 members had just been added, the goodbye waited behind the
// news about these members for more than five seconds. The members with a connection to this node receive
// the goodbye at once, and pass it on.
const (
	goodbyeTimes = 2
	goodbyeAgain = 250 * time.Millisecond
)

func (g *gossipCluster) hasLeft() bool {
	g.leaving.Lock()
	defer g.leaving.Unlock()
	return g.left
}

// checkRunning returns an error before Start has returned, and after Close.
func (g *gossipCluster) checkRunning() error {
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	select {
	case <-g.started:
		return nil
	default:
		return errNotStarted
	}
}

func (g *gossipCluster) Close() error {
	g.cancel()
	if !g.phase.CompareAndSwap(phaseNew, phaseClosed) && g.phase.Load() == phaseRunning {
		<-g.started
		return g.teardown()
	}
	return nil
}

// teardown stops the goroutines and closes the connections of Start, and waits for them. A second
// call waits for the first.
func (g *gossipCluster) teardown() error {
	g.cancel()
	g.leaving.Lock()
	first := !g.stop
	g.stop = true
	g.leaving.Unlock()
	if !first {
		<-g.closed
		return nil
	}
	defer close(g.closed)
	g.leaves.Wait() // memberlist panics if it leaves after it has stopped
	var err error
	if g.gossip != nil {
		err = g.gossip.Stop()
	}
	if g.peers != nil {
		g.peers.close()
	}
	g.wg.Wait()
	return err
}

func (g *gossipCluster) Stats() Stats {
	select {
	case <-g.started:
	default:
		return Stats{}
	}
	if !g.opened.Load() {
		return Stats{} // Start has failed
	}
	s := g.peers.stats()
	for _, refused := range []*refusals{g.mux.refused, g.mux.gossiped} {
		for reason, n := range refused.snapshot() {
			s.Refused[reason] += n
		}
	}
	g.mu.Lock()
	s.JoinError, s.JoinedCount, s.Unanswered = g.joined.problem, g.joined.reached, maps.Clone(g.joined.unanswered)
	g.mu.Unlock()
	return s
}

package weirtest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	countsync "github.com/weir-go/weir/sync"
)

// Options configures a Cluster. The zero Options has three nodes "a", "b" and "c" with
// simulated membership, and a round trip of a fifth of a millisecond.
type Options struct {
	// Nodes are the hosts that run a node from the beginning. The default is "a", "b" and
	// "c".
	Nodes []string
	// Regions is the region of each host, including hosts that start later. The region of
	// other hosts is "". Nodes share a ring only with nodes of the same region. A node of
	// a region with a name can ask the nodes of every other region with a name.
	Regions map[string]string
	// Seed determines all randomness: the fate of each packet, and the names of the
	// nodes. The names determine which node owns a key. The default is 1.
	Seed uint64
	// WAN describes a link between hosts of different regions, in place of Link. By
	// default the latency is 40 ms in one direction and up to 35 ms more, so a round trip
	// takes 80 to 150 ms.
	WAN Link
	// Link is the initial state of every other link, which Network().SetLink can change.
	// The default is a latency of 100 µs and no fault.
	Link Link
	// With Gossip, nodes use the same membership protocol and frames as in production.
	// This takes several times as much real time, and two runs with the same Seed differ.
	// Without Gossip, membership is simulated as by Host.Cluster.
	Gossip bool
	// Viewed, if not nil, is called with the view of a host's node whenever the view has
	// changed, even if the change ends before a caller reads Members. Changes that follow
	// each other at once may be one call, with the last view. Viewed must not block, or call
	// methods of the Cluster.
	Viewed func(name string, v *cluster.View)
	// Spent, if not nil, is called when a host's node spends units of a count. The
	// argument id is the ID of the key, as from weir.Limiter.ID. A negative number of
	// units means that the node returns units. Spent is called even if the answer about
	// these units reaches no member. The argument reset is the number of the last
	// weir.Limiter.Reset of the count that this node has received, or 0. A later reset
	// deletes the units that were spent with a lower number. When the node receives a
	// reset, Spent is called with 0 units. Spent must not block, or call methods of the
	// Cluster or of a node.
	Spent func(name string, id [16]byte, reset uint64, units int64)
	// Wrote, if not nil, receives the number of bytes of each segment and each datagram
	// that a node sends, if Gossip is set. Wrote must not block, or call methods of the
	// Cluster.
	Wrote func(bytes int)
	// Caps bounds the data that nodes send each other. A small number of counts never
	// reaches the default caps. With lower caps, nodes send their data in parts, and send
	// some of it again.
	Caps countsync.Caps
	// Configure, if not nil, changes the Config of a host's node whenever a node starts
	// there, for example if each host has its own Snapshots. Configure must not call
	// methods of the Cluster. Of the fields that membership uses, such as Secrets, TLS and
	// Forget, only the values in Options.Config apply to membership.
	Configure func(name string, cfg *weir.Config)
	// Config is the Config of every node. The Cluster sets the fields Cluster, Name,
	// Bind, Advertise, Join, Region, Regions, Now and Rand for each node. RegionSecrets and
	// CertificateNames have no effect.
	Config weir.Config
}

const (
	settleWithin = time.Minute           // how long NewCluster waits
	awaitEvery   = 10 * time.Millisecond // how often Await checks its condition
	lastProbes   = time.Minute           // maximum time that goroutines of memberlist continue after its Shutdown
)

// Cluster is a set of nodes in a process, on their own Network. A test can simulate the
// faults of production: broken links, crashed and frozen machines, and clock steps.
//
// In a testing/synctest bubble, a Cluster runs in virtual time. Waiting takes no real
// time, so a test may run for virtual hours and compare answers with exact times. Close
// must be called before the bubble ends. Outside a bubble, a Cluster runs in real time,
// and on a busy machine, checks may take longer than a Config.Timeout for production.
//
// A host has the name that Options.Nodes or Start gives to it. A node on the host is
// called HOST-INCARNATION, for example in Members: the incarnation has 16 hexadecimal
// digits, and depends on the seed, the host and the number of starts on the host. If a
// host runs no node, a fault of the host applies to the next node that starts on the host.
// Methods are safe for concurrent use.
type Cluster struct {
	options Options
	network *Network

	mu     sync.Mutex // guards the fields below; never held while waiting
	closed bool
	hosts  map[string]*machine
}

// machine is the state of a host.
type machine struct {
	starts int // number of starts, including those that failed
	kills  int
	abort  context.CancelFunc // ends the last Start of a node, so that a killed process loads no snapshots; nil before the first Start
	up     bool               // the name of the region resolves to the host
	node   *weir.Node
	clock  clock
}

// NewCluster starts all nodes, and returns when each node is Ready and sees the other
// nodes of its region. NewCluster returns an error if Options.Nodes has a name twice, if
// a node does not start, if ctx is done, or if the nodes are not Ready and do not see each
// other within a minute.
func NewCluster(ctx context.Context, o Options) (*Cluster, error) {
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"a", "b", "c"}
	}
	o.Seed = cmp.Or(o.Seed, 1)
	if o.Link == (Link{}) {
		o.Link.Latency = 100 * time.Microsecond
	}
	if o.WAN == (Link{}) {
		o.WAN = Link{Latency: 40 * time.Millisecond, Jitter: 35 * time.Millisecond}
	}
	o.Nodes, o.Regions = slices.Clone(o.Nodes), maps.Clone(o.Regions)
	c := &Cluster{options: o, network: NewNetwork(o.Seed, o.Link), hosts: make(map[string]*machine)}
	c.network.wrote = o.Wrote
	c.network.standard = func(from, to string) Link {
		if o.Regions[from] != o.Regions[to] {
			return o.WAN
		}
		return o.Link
	}
	for i, name := range o.Nodes {
		if slices.Contains(o.Nodes[:i], name) {
			return nil, fmt.Errorf("weirtest: Options.Nodes has %q twice: give each node a name of its own", name)
		}
		c.machine(name).up = true
	}
	for _, name := range o.Nodes {
		c.publish(o.Regions[name])
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleWithin, fmt.Errorf("weirtest: the nodes of the new cluster did not see each other within %v", settleWithin))
	defer cancel()
	var err error
	for _, name := range o.Nodes {
		if _, err = c.Start(ctx, name); err != nil {
			break
		}
	}
	if err == nil {
		err = c.Await(ctx, c.Settled)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Network returns the network of the nodes, for the faults that Cluster has no method
// for: for example links that are cut in one direction (Cut) or have other values (SetLink).
func (c *Cluster) Network() *Network { return c.network }

// Names returns the hosts that run a node, sorted.
func (c *Cluster) Names() []string {
	return slices.Sorted(maps.Keys(c.runningNodes()))
}

// Node returns the node that a host runs, or nil if the host runs no node.
func (c *Cluster) Node(name string) *weir.Node { return c.runningNodes()[name] }

func (c *Cluster) runningNodes() map[string]*weir.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := make(map[string]*weir.Node)
	for name, m := range c.hosts {
		if m.node != nil {
			nodes[name] = m.node
		}
	}
	return nodes
}

// machine returns the state of a host. The caller must hold c.mu, unless c is not shared
// yet.
func (c *Cluster) machine(name string) *machine {
	m := c.hosts[name]
	if m == nil {
		m = &machine{clock: clock{start: time.Now()}}
		c.hosts[name] = m
		c.network.Host(name)
	}
	return m
}

// Start starts a node on a host. The host must be new, or its last node must have left or
// been killed. The new node knows only what Config.Snapshots has kept of the last node. Start returns when
// weir.Start returns, and does not wait until the node is Ready. Start returns an error
// if the name is empty, if the host runs a node, after Close, if weir.Start fails, or if
// Kill or Close is called meanwhile.
func (c *Cluster) Start(ctx context.Context, name string) (*weir.Node, error) {
	c.mu.Lock()
	m := c.machine(name)
	switch {
	case name == "":
		c.mu.Unlock()
		return nil, errors.New("weirtest: the name of the host is empty: pass a name to Start")
	case c.closed:
		c.mu.Unlock()
		return nil, fmt.Errorf("weirtest: no node can start on host %q, because the Cluster is closed: %w", name, net.ErrClosed)
	case m.node != nil:
		c.mu.Unlock()
		return nil, fmt.Errorf("weirtest: host %q runs a node already: call Kill or Leave first", name)
	}
	m.starts++
	m.up = true
	ctx, m.abort = context.WithCancel(ctx)
	defer m.abort()
	cfg := c.config(name, m)
	kills := m.kills
	c.mu.Unlock()

	node, err := weir.Start(ctx, cfg)

	c.mu.Lock()
	killed := m.kills != kills || c.closed
	switch {
	case killed:
	case err != nil:
		c.takeDown(name, m)
	default:
		m.node = node
	}
	c.mu.Unlock()
	if err == nil && killed {
		_ = node.Close()
		err = fmt.Errorf("the node was killed during its start: %w", weir.ErrClosed)
	}
	if err != nil {
		return nil, fmt.Errorf("weirtest: starting a node on host %q: %w", name, err)
	}
	return node, nil
}

// config returns the Config of a node that starts on a host. The caller must hold c.mu.
func (c *Cluster) config(name string, m *machine) weir.Config {
	cfg := c.options.Config
	host, region := c.network.Host(name), c.options.Regions[name]
	random := c.network.rand("node", name, strconv.Itoa(m.starts))
	member := cluster.Config{
		Name:    fmt.Sprintf("%s-%016x", name, random.Uint64()),
		Region:  region,
		Regions: c.otherRegions(region),
		Secrets: cfg.Secrets,
		TLS:     cfg.TLS,
		Forget:  cfg.Forget,
		Logger:  cfg.Logger,

		ForgetRefused: cfg.ForgetRefused,
	}
	service := c.publish(region)
	if c.options.Gossip {
		member.Bind, member.Join, member.Network = name+":"+strconv.Itoa(simPort), []string{service}, host.Network()
		cfg.Cluster = cluster.NewGossip(member)
	} else {
		cfg.Cluster = host.Cluster(member)
	}
	cfg.Cluster = &observed{Cluster: cfg.Cluster, name: name, options: &c.options, resets: make(map[[16]byte]uint64)}
	cfg.Name, cfg.Bind, cfg.Advertise, cfg.Join, cfg.Region, cfg.Regions = name, "", "", nil, region, member.Regions
	cfg.Now, cfg.Rand = m.clock.currentTime, words{random}
	if c.options.Configure != nil {
		c.options.Configure(name, &cfg)
	}
	return cfg
}

// service returns the DNS name of the nodes of a region.
func service(region string) string {
	if region == "" {
		return "weir.internal"
	}
	return region + ".weir.internal"
}

// otherRegions returns the Config.Regions of a node of a region: the address of each other
// region that has a name.
func (c *Cluster) otherRegions(region string) map[string][]string {
	if region == "" {
		return nil
	}
	others := make(map[string][]string)
	for _, other := range c.options.Regions {
		if other != "" && other != region {
			others[other] = []string{service(other) + ":" + strconv.Itoa(simPort)}
		}
	}
	return others
}

// publish updates the DNS name of a region, so that the name resolves to the hosts that
// run or start a node, like the name of a headless service. publish returns the name. The
// caller must hold c.mu, unless c is not shared yet.
func (c *Cluster) publish(region string) (name string) {
	var up []string
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		if c.hosts[name].up && c.options.Regions[name] == region {
			up = append(up, name)
		}
	}
	name = service(region)
	c.network.SetName(name, up...)
	return name
}

// Leave asks a node to hand over and leave, and then stops it, as a deploy should. Leave
// returns an error if the host runs no node, or if Node.Leave or Node.Close fails. It
// stops the node even if Node.Leave fails.
func (c *Cluster) Leave(ctx context.Context, name string) error {
	node := c.Node(name)
	if node == nil {
		return fmt.Errorf("weirtest: host %q runs no node that could leave: call Start first", name)
	}
	err := node.Leave(ctx)
	c.recordStop(name, node)
	return errors.Join(err, node.Close())
}

// Kill ends a node like the signal SIGKILL: the node notifies no member, and its
// unreplicated data is lost. Kill also ends a Freeze of the host. If no node runs or
// starts on the host, Kill has no other effect.
func (c *Cluster) Kill(name string) {
	c.mu.Lock()
	m := c.machine(name)
	node := m.node
	m.node = nil
	m.kills++
	if m.abort != nil {
		m.abort()
	}
	c.takeDown(name, m)
	c.mu.Unlock()
	c.network.Host(name).Kill()
	if node != nil {
		_ = node.Close() // the process has ended: only its goroutines are left
	}
}

// recordStop records that a node will be closed.
func (c *Cluster) recordStop(name string, node *weir.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.hosts[name]; m.node == node {
		m.node = nil
		c.takeDown(name, m)
	}
}

// takeDown removes a host from the DNS name of its region. The caller must hold c.mu.
func (c *Cluster) takeDown(name string, m *machine) {
	m.up = false
	c.publish(c.options.Regions[name])
}

// Freeze holds all messages of a host until Thaw, as if its process were stopped
// (SIGSTOP) or its machine hung. For other hosts there is no difference, and the messages
// arrive after the thaw. The goroutines and timers of the host continue. So a test should
// not call a frozen node, because a stopped process makes no calls.
func (c *Cluster) Freeze(name string) { c.network.Host(name).Freeze() }

// Thaw ends Freeze.
func (c *Cluster) Thaw(name string) { c.network.Host(name).Thaw() }

// Throttle pauses a host once in each period, as a CPU quota does. The arguments are the
// length of a pause and the length of a period. If the pause is 0, the pauses end. Hosts
// that are throttled together are out of step. See [Host.Throttle].
func (c *Cluster) Throttle(name string, pause, every time.Duration) {
	c.network.Host(name).Throttle(pause, every)
}

// Cut disconnects hosts of different sides, in both directions. Cut does not change links
// within a side, or links of a host that is on no side. Network().Cut cuts one direction
// only.
func (c *Cluster) Cut(sides ...[]string) { c.network.Split(sides...) }

// Heal restores all links: no link is cut or rejects connections, and each has the values
// of Options.Link or WAN.
func (c *Cluster) Heal() { c.network.reset() }

// Skew steps the clock of a host forward, or backward if the step is negative. The checks
// of the node read this clock through Config.Now. This clock determines when windows
// begin and how many units have drained. Timeouts and pings do not depend on this clock.
// Steps add up, and remain after a Kill.
func (c *Cluster) Skew(name string, by time.Duration) {
	c.mu.Lock()
	m := c.machine(name)
	c.mu.Unlock()
	m.clock.skew.Add(int64(by))
}

// Settled reports whether every node is Ready and sees exactly the running nodes of its
// region, all of them serving. If so, all nodes have noticed each start, leave, kill and
// heal. After a Cut or a Freeze, Settled stays true until a node notices the fault.
func (c *Cluster) Settled() bool {
	nodes := c.runningNodes()
	of := make(map[string]int) // number of running nodes in each region
	self := make(map[string]bool)
	rosters := make(map[string][]weir.Member)
	for name, node := range nodes {
		if !node.Ready() {
			return false
		}
		of[c.options.Regions[name]]++
		rosters[name] = node.Members()
		for _, m := range rosters[name] {
			if m.Self {
				self[m.Name] = true
			}
		}
	}
	for name, roster := range rosters {
		if len(roster) != of[c.options.Regions[name]] {
			return false
		}
		for _, m := range roster {
			if m.State != weir.Serving || !self[m.Name] {
				return false
			}
		}
	}
	return true
}

// Await calls condition every 10 ms, and returns nil when condition returns true. When
// ctx is done, Await returns the cause of ctx. Without a deadline, Await may wait
// forever, even in a bubble.
func (c *Cluster) Await(ctx context.Context, condition func() bool) error {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close stops all nodes at once. In a bubble with Options.Gossip, Close waits for another
// minute of virtual time, until the last probes of memberlist have ended.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var errs []error
	nodes := c.runningNodes()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		c.recordStop(name, nodes[name])
		errs = append(errs, nodes[name].Close())
	}
	if c.options.Gossip && inBubble() {
		time.Sleep(lastProbes)
	}
	return errors.Join(errs...)
}

// observed applies the caps of the options to its node, and reports the views and the
// spends of the node.
type observed struct {
	cluster.Cluster
	name    string // name of the host
	options *Options

	mu     sync.Mutex
	resets map[[16]byte]uint64 // number of the last reset of each count
}

var (
	_ env.Capper  = (*observed)(nil)
	_ env.Spender = (*observed)(nil)
)

func (o *observed) Caps() countsync.Caps { return o.options.Caps }

func (o *observed) Start(ctx context.Context, h cluster.Handler) error {
	return o.Cluster.Start(ctx, watcher{h, o})
}

// watcher passes the present view to the function Options.Viewed when the view has changed,
// and then notifies the node.
type watcher struct {
	cluster.Handler
	observed *observed
}

func (w watcher) Changed() {
	if viewed := w.observed.options.Viewed; viewed != nil {
		viewed(w.observed.name, w.observed.View())
	}
	w.Handler.Changed()
}

func (o *observed) Spent(id [16]byte, units int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if spent := o.options.Spent; spent != nil {
		spent(o.name, id, o.resets[id], units)
	}
}

func (o *observed) Reset(id [16]byte, number uint64) {
	o.mu.Lock()
	o.resets[id] = number
	o.mu.Unlock()
	o.Spent(id, 0)
}

// inBubble reports whether time is virtual.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait() // panics outside a bubble
	return
}

// clock is the clock of the checks on a host.
type clock struct {
	start time.Time
	skew  atomic.Int64 // nanoseconds
}

func (c *clock) currentTime() time.Time {
	return c.start.Add(time.Since(c.start) + time.Duration(c.skew.Load()))
}

// words is an io.Reader of random bytes.
type words struct{ *rand.Rand }

func (w words) Read(b []byte) (int, error) {
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], w.Uint64())
		copy(b[i:], word[:])
	}
	return len(b), nil
}

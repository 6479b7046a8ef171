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

// Options say what a Cluster is made of. The zero Options are three nodes, "a",
// "b" and "c", a fifth of a millisecond's round trip apart, with simulated
// membership.
type Options struct {
	// Nodes are the hosts that run a node from the beginning. "a", "b" and "c"
	// if empty.
	Nodes []string
	// Regions is the region of each host, also of those that start later; the
	// region "" if it has none here. Only nodes of one region share a ring. Those of a
	// region with a name can ask the nodes of every other one with a name.
	Regions map[string]string
	// Seed is what all randomness comes from: what happens to packets, the
	// names of the nodes and with them who owns what. 1 if zero.
	Seed uint64
	// WAN is what a link between hosts of different regions is like, instead of
	// Link. 40 ms and up to 35 ms more, one way, if zero: the round trip takes 80
	// to 150 ms.
	WAN Link
	// Link is what every link is like until Network().SetLink says otherwise.
	// A latency of 100 µs and nothing else if zero.
	Link Link
	// Gossip runs the membership and the frames that a node runs in production.
	// It costs several times as much real time, and its runs differ from
	// one to the next. Without it membership is simulated, as Host.Cluster has it.
	Gossip bool
	// Viewed, if not nil, is told what a host's node sees of the cluster whenever that
	// differs from before: also what has passed before anybody looks at Members. It
	// must not block, and calls no method of the Cluster.
	Viewed func(name string, v *cluster.View)
	// Spent, if not nil, is told of the units of each count that a host's node spends, by
	// the id that weir.Limiter's ID gives, or below zero gives back, as it does: also of
	// what no member hears the answer to. reset is the number of the last weir.Limiter.Reset
	// that this node knows of, 0 of none: of two nodes that know different ones, the lower
	// one's units are forgotten. It is told of no units as the node hears of a reset. It
	// must not block, and calls no method of the Cluster or of a node.
	Spent func(name string, id [16]byte, reset uint64, units int64)
	// Wrote, if not nil, receives the number of bytes of each segment and each datagram that a node
	// sends. It must not block, and calls no method of the Cluster. Without Gossip it is not called.
	Wrote func(bytes int)
	// Caps bound what nodes have to send each other; lower ones than the defaults, which
	// few counts never meet, have them send in parts, and again.
	Caps countsync.Caps
	// Configure, if not nil, changes the Config of a host's node whenever one starts there,
	// as where each host has Snapshots of its own. It must not call methods of the Cluster.
	Configure func(name string, cfg *weir.Config)
	// Config is every node's. Cluster, Name, Bind, Advertise, Join, Region, Regions,
	// Now and Rand are set for each.
	Config weir.Config
}

const (
	settleWithin = time.Minute           // that NewCluster waits
	awaitEvery   = 10 * time.Millisecond // that Await looks
	lastProbes   = time.Minute           // that memberlist's goroutines outlive its Shutdown at most
)

// Cluster is nodes in one process, on a Network of their own, to which a test
// does what happens in production: links fail, machines crash and hang, clocks
// step.
//
// Made within a testing/synctest bubble it lives in virtual time: what waits
// costs nothing, so that a test may let hours pass and hold answers to exact
// times. Close must be called before the bubble ends. Outside a bubble it lives
// in real time, where a busy machine may be slower than a Config.Timeout made
// for production.
//
// A host is known by the name that Options.Nodes or Start gives it; a node on
// it is called host-incarnation, in Members for one, with another incarnation
// at each start. What happens to a host that runs nothing happens to the node that
// starts there later. Methods are safe for concurrent use.
type Cluster struct {
	options Options
	network *Network

	mu     sync.Mutex // guards what follows; never held while waiting
	closed bool
	hosts  map[string]*machine
}

// machine is what the Cluster knows of a host.
type machine struct {
	starts int // also those that failed
	kills  int
	up     bool // as the names of its region say
	node   *weir.Node
	clock  clock
}

// NewCluster starts all nodes, and returns once every one is Ready and sees the
// others of its region. The error is a node's, that it does not start; the
// context's; or, after a minute, that they do not see each other.
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
	ctx, cancel := context.WithTimeoutCause(ctx, settleWithin, errors.New("weirtest: the nodes of the new cluster do not see each other"))
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

// Network is what the nodes stand on, for what the Cluster has no method for:
// links in one direction (Cut) or of another kind (SetLink).
func (c *Cluster) Network() *Network { return c.network }

// Names is the hosts that run a node, ascending.
func (c *Cluster) Names() []string {
	return slices.Sorted(maps.Keys(c.running()))
}

// Node is the node that a host runs, nil if it runs none.
func (c *Cluster) Node(name string) *weir.Node { return c.running()[name] }

func (c *Cluster) running() map[string]*weir.Node {
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

// machine is the host of that name. c.mu is held, or c is not shared yet.
func (c *Cluster) machine(name string) *machine {
	m := c.hosts[name]
	if m == nil {
		m = &machine{clock: clock{start: time.Now()}}
		c.hosts[name] = m
		c.network.Host(name)
	}
	return m
}

// Start starts a node on a host: a new host, or one whose last node has left or
// was killed, which knows nothing of what that one knew. It returns as
// weir.Start does, and does not wait until the node is Ready.
func (c *Cluster) Start(ctx context.Context, name string) (*weir.Node, error) {
	c.mu.Lock()
	m := c.machine(name)
	switch {
	case name == "":
		c.mu.Unlock()
		return nil, errors.New("weirtest: a host needs a name")
	case c.closed:
		c.mu.Unlock()
		return nil, fmt.Errorf("weirtest: starting %q after Close: %w", name, net.ErrClosed)
	case m.node != nil:
		c.mu.Unlock()
		return nil, fmt.Errorf("weirtest: %q runs a node already: Kill it or let it Leave first", name)
	}
	m.starts++
	m.up = true
	cfg := c.config(name, m)
	kills := m.kills
	c.mu.Unlock()

	node, err := weir.Start(ctx, cfg)

	c.mu.Lock()
	killed := m.kills != kills || c.closed
	switch {
	case killed:
	case err != nil:
		c.down(name, m)
	default:
		m.node = node
	}
	c.mu.Unlock()
	if err == nil && killed {
		_ = node.Close()
		err = fmt.Errorf("it was killed meanwhile: %w", weir.ErrClosed)
	}
	if err != nil {
		return nil, fmt.Errorf("weirtest: starting %q: %w", name, err)
	}
	return node, nil
}

// config is that of a node that is to start on a host. c.mu is held.
func (c *Cluster) config(name string, m *machine) weir.Config {
	cfg := c.options.Config
	host, region := c.network.Host(name), c.options.Regions[name]
	random := c.network.rand("node", name, strconv.Itoa(m.starts))
	member := cluster.Config{
		Name:    fmt.Sprintf("%s-%016x", name, random.Uint64()),
		Region:  region,
		Regions: c.others(region),
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
	cfg.Now, cfg.Rand = m.clock.now, words{random}
	if c.options.Configure != nil {
		c.options.Configure(name, &cfg)
	}
	return cfg
}

// service is the name of a region's nodes.
func service(region string) string {
	if region == "" {
		return "weir.internal"
	}
	return region + ".weir.internal"
}

// others is what a node of a region knows of the other ones.
func (c *Cluster) others(region string) map[string][]string {
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

// publish says in the network's names which hosts of a region run a node, as a
// headless service does. c.mu is held, or c is not shared yet.
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

// Leave has a node hand over and say goodbye, and then stops it, as a deploy
// should. The error is that no node runs there, or Node.Leave's; the node is
// stopped all the same.
func (c *Cluster) Leave(ctx context.Context, name string) error {
	node := c.Node(name)
	if node == nil {
		return fmt.Errorf("weirtest: %q runs no node that could leave", name)
	}
	err := node.Leave(ctx)
	c.stopped(name, node)
	return errors.Join(err, node.Close())
}

// Kill ends a node as kill -9 does: it says nothing to anybody, and what it
// alone knew is gone. It does nothing where no node runs.
func (c *Cluster) Kill(name string) {
	c.mu.Lock()
	m := c.machine(name)
	node := m.node
	m.node = nil
	m.kills++
	c.down(name, m)
	c.mu.Unlock()
	c.network.Host(name).Kill()
	if node != nil {
		_ = node.Close() // of a process that is no more: only its goroutines are left
	}
}

// stopped takes note that a node is to be closed.
func (c *Cluster) stopped(name string, node *weir.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.hosts[name]; m.node == node {
		m.node = nil
		c.down(name, m)
	}
}

// down takes a host off the names of its region. c.mu is held.
func (c *Cluster) down(name string, m *machine) {
	m.up = false
	c.publish(c.options.Regions[name])
}

// Freeze holds all that a host sends and is sent, until Thaw, as if its process
// had been stopped (SIGSTOP) or its machine hung: to the others that is the
// same, and what it had sent or been sent arrives after the thaw. To itself it
// is not: its goroutines and timers run on. So ask a frozen node nothing; a
// stopped process would not.
func (c *Cluster) Freeze(name string) { c.network.Host(name).Freeze() }

// Thaw ends Freeze.
func (c *Cluster) Thaw(name string) { c.network.Host(name).Thaw() }

// Throttle pauses a host for the length of pause once in every, as a CPU quota does,
// until it is told so with a pause of 0. Hosts that are throttled together are out of
// step. See [Host.Throttle].
func (c *Cluster) Throttle(name string, pause, every time.Duration) {
	c.network.Host(name).Throttle(pause, every)
}

// Cut cuts every link between hosts of different sides, both ways. Links within
// a side, and those of hosts on no side, stay as they are. For one direction
// only there is Network().Cut.
func (c *Cluster) Cut(sides ...[]string) { c.network.Split(sides...) }

// Heal mends all links: none is cut, and each is as Options.Link, or WAN, again.
func (c *Cluster) Heal() { c.network.reset() }

// Skew steps a host's clock, forward or, if by is negative, back. It steps what
// the node's checks read there, Config.Now: when windows begin, and what has
// drained by now. Timeouts and pings do not go by it. Steps add up, and
// outlive a Kill.
func (c *Cluster) Skew(name string, by time.Duration) {
	c.mu.Lock()
	m := c.machine(name)
	c.mu.Unlock()
	m.clock.skew.Add(int64(by))
}

// Settled reports whether every node is Ready and sees exactly those that run in its
// region, all of them serving: nothing of a fault is left to notice.
func (c *Cluster) Settled() bool {
	nodes := c.running()
	of := make(map[string]int) // how many run in each region
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

// Await returns once what is true, of which it looks every 10 ms, or ctx is
// done: then the error is its cause. Without a deadline it may look forever, in a
// bubble too.
func (c *Cluster) Await(ctx context.Context, what func() bool) error {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for !what() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close stops all nodes at once. In a bubble with Options.Gossip it lets another
// minute of virtual time pass, in which memberlist's last probes end.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var errs []error
	nodes := c.running()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		c.stopped(name, nodes[name])
		errs = append(errs, nodes[name].Close())
	}
	if c.options.Gossip && inBubble() {
		time.Sleep(lastProbes)
	}
	return errors.Join(errs...)
}

// observed has its node keep to the options' caps, and tells of what it sees and spends.
type observed struct {
	cluster.Cluster
	name    string // of its host
	options *Options

	mu     sync.Mutex
	resets map[[16]byte]uint64 // the number of the last, by count
}

var (
	_ env.Capper  = (*observed)(nil)
	_ env.Spender = (*observed)(nil)
)

func (o *observed) Caps() countsync.Caps { return o.options.Caps }

func (o *observed) Start(ctx context.Context, h cluster.Handler) error {
	return o.Cluster.Start(ctx, watcher{h, o})
}

// watcher tells of each view before the node hears of it.
type watcher struct {
	cluster.Handler
	of *observed
}

func (w watcher) Changed() {
	if viewed := w.of.options.Viewed; viewed != nil {
		viewed(w.of.name, w.of.View())
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
	synctest.Wait() // panics outside
	return
}

// clock is what the checks of a host's nodes read.
type clock struct {
	start time.Time
	skew  atomic.Int64 // nanoseconds
}

func (c *clock) now() time.Time {
	return c.start.Add(time.Since(c.start) + time.Duration(c.skew.Load()))
}

// words makes an io.Reader of a source of randomness.
type words struct{ *rand.Rand }

func (w words) Read(b []byte) (int, error) {
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], w.Uint64())
		copy(b[i:], word[:])
	}
	return len(b), nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

const (
	witnessKeys    = 24                     // number of keys of the witness limit in each region
	witnessRate    = 40                     // checks per second, over all nodes
	witnessRests   = 3 * time.Second        // time at the end of a run without checks of the witness limit
	witnessUnits   = 3                      // maximum units of a check
	witnessResets  = 0.4                    // resets per second, of the keys that are reset
	witnessForgets = 4                      // number of keys of each region that are reset now and then
	settleWithin   = 2 * time.Minute        // maximum time for the start of a cluster, and for settle
	quietFor       = 2 * time.Second        // time without unsent counts, before the counts are read
	forgetAfter    = 10 * time.Second       // time after a heal, before members are forgotten: by then counts have been exchanged
	stoodInWithin  = 2 * time.Second        // time after a crash until the stand-in decides
	acquaintedIn   = 15 * time.Second       // time after which regions that have started know each other, if they are connected
	defaultTimeout = 100 * time.Millisecond // default of weir.Config
	defaultForget  = 5 * time.Minute
)

const roomier = 8 // a node's store has room for this many times the keys that it needs, so that no count is evicted. The number is small, because the store is scanned all the time

const collectAbove = 1 << 30 // memory in bytes; below this size, the garbage of a run is not collected

// mostHolds is how many holds of a key a side may grant and a node has room for.
const mostHolds = 1000

const witnessName = "witness"

// witnessLimit returns a limit that denies nothing, and whose units do not recover during
// a run. The algorithm is random, but not a bucket, because a bucket would drain by parts
// of a unit.
func (s *stage) witnessLimit() weir.Limit {
	algorithms := []weir.Algorithm{weir.SlidingWindow, weir.FixedWindow, weir.SlidingLog}
	return weir.Limit{
		Name: witnessName, Algorithm: algorithms[s.rand(witnessName).IntN(len(algorithms))],
		Rate: 100_000, Per: 366 * 24 * time.Hour, Partition: weir.FailOpen,
	}
}

// run plays a scenario in its own bubble, in virtual time. With simulated membership, the
// seed of the scenario determines the run, as long as the process does nothing else
// meanwhile. run returns an error if the scenario cannot be played; faults of the cluster
// are in the journal.
func run(t *testing.T, s *Scenario) (j *Journal, err error) {
	begun := time.Now()
	if !s.Gossip {
		defer inOrder()()
	}
	synctest.Test(t, func(*testing.T) { j, err = play(s) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	j.Took = time.Since(begun)
	return j, nil
}

// inOrder lets one goroutine run at a time, and keeps the garbage collector from
// interrupting it. The order of two goroutines within an instant then depends on the run
// alone.
func inOrder() (undo func()) {
	runtime.GC()
	procs, percent, limit := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1), debug.SetMemoryLimit(collectAbove)
	return func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// stage is a scenario that is being played.
type stage struct {
	*Scenario
	cluster *weirtest.Cluster
	began   time.Time
	limits  []weir.Limit // the limits of the scenario, and the witness limit
	keys    [][]string   // the keys of each limit
	regions []string
	hosts   []*host // the hosts in the order of Scenario.Nodes
	named   map[string]*host
	asking  sync.WaitGroup // checks, and their callers
	moving  sync.WaitGroup // nodes that start or leave

	mu       sync.Mutex // guards the fields below and the changing fields of hosts; never held while waiting
	checks   []Check
	holds    []Held
	reserved []Reserved
	witness  ledger
	ended    WAN                      // sum of the WAN counters of nodes that have ended
	courses  []*course                // the course of each region; nil until all checks have ended
	views    map[string]*cluster.View // the last view of each member
	current  map[[2]int]*absence      // the current absence of the second host from the view of the first
	absences []*absence
	starts   []time.Duration
	outages  []outage
	disks    *disks // nil without Snapshots
}

// host is a host of the scenario. A node that starts on the host again is another process.
type host struct {
	name    string
	index   int
	machine *weirtest.Host
	region  int      // index in stage.regions
	runs    *process // the process that receives requests, or nil
	up      bool     // a process is running or starting on the host
	frozen  bool
	kills   int
	busy    chan struct{} // closed when the last action on the host has ended
}

// process is a node, from its start to its end.
type process struct {
	node     *weir.Node
	name     string // name of the member
	since    time.Duration
	limiters []*weir.Limiter // a limiter for each limit, in the order of stage.limits
	killed   bool            // killed together with the callers of the node
	leaves   bool            // leaving, or has left
	over     chan struct{}   // closed when its callers have ended
	ended    time.Duration   // the time at which its callers ended, or 0 if they are still running
}

// elapsed returns the virtual time since the beginning.
func (s *stage) elapsed() time.Duration { return time.Since(s.began) }

func play(scenario *Scenario) (*Journal, error) {
	s, err := newStage(scenario)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s.asking.Go(func() { s.sendLoads(ctx) })
	for _, f := range s.Faults {
		time.Sleep(f.At - s.elapsed())
		s.strike(ctx, f)
	}
	time.Sleep(s.Lasts - s.elapsed())
	s.asking.Wait()
	absences := s.endAbsences()
	j := &Journal{Scenario: scenario, WAN: s.wanUse()}
	j.Absences = absences
	j.Unsettled = s.settle(ctx)
	j.Spends, j.Holds, j.Probes = s.listSpends(ctx), s.holds, s.probe(ctx)
	for _, region := range s.regions {
		s.courses = append(s.courses, courseOf(s.Scenario, region, s.elapsed()))
	}
	j.Ends = s.listEndings(ctx)
	j.Reserved = s.reserved
	for _, v := range s.reserved {
		c := v.Check
		c.Units = v.minUnits() // returned units may be granted again
		s.checks = append(s.checks, c)
	}
	j.Checks = s.checks
	slices.SortFunc(j.Checks, func(a, b Check) int {
		return cmp.Or(cmp.Compare(a.Asked, b.Asked), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
	})
	slices.SortFunc(j.Holds, func(a, b Held) int { // many holds end with the run, at the same time
		return cmp.Or(cmp.Compare(a.Asked, b.Asked), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Key, b.Key))
	})
	stop()
	s.moving.Wait()
	j.Starts = s.starts
	return j, s.cluster.Close()
}

// newStage starts the nodes that run from the beginning.
func newStage(scenario *Scenario) (*stage, error) {
	s := &stage{
		Scenario: scenario,
		regions:  scenario.regions(),
		limits:   slices.Clone(scenario.Limits),
		named:    make(map[string]*host),
		views:    make(map[string]*cluster.View),
		current:  make(map[[2]int]*absence),
	}
	s.limits = append(s.limits, s.witnessLimit())
	o := weirtest.Options{
		Seed: scenario.Seed, Link: scenario.Network, WAN: scenario.WAN, Gossip: scenario.Gossip,
		Regions: make(map[string]string),
		Viewed:  s.recordView,
		Caps:    scenario.Caps,
		Spent: func(host string, id [16]byte, reset uint64, units int64) {
			s.witness.observe(id, reset, units, s.elapsed(), s.named[host].index)
		},
		Config: weir.Config{
			Replicas: scenario.Replicas, Expect: scenario.Expect, Timeout: scenario.Timeout, Forget: scenario.Forget,
			RegionShares: scenario.RegionShares,
			Logger:       slog.New(slog.DiscardHandler),
			Observer:     lastDecision{},
		},
	}
	if slices.ContainsFunc(scenario.Loads, func(l Load) bool { return l.Settles > 0 || l.TTL > 0 }) {
		o.Config.Seed = []byte("it seals what is reserved") // with the same Seed, every node can open reservations and the holds of clients
	}
	if scenario.Snapshots > 0 {
		s.disks = &disks{stage: s, snapshots: make(map[string][]keptSnapshot)}
		o.Configure = func(name string, cfg *weir.Config) {
			cfg.Snapshots, cfg.SnapshotEvery = disk{s.disks, name}, scenario.Snapshots
		}
	}
	for i, n := range scenario.Nodes {
		h := &host{name: n.Name, index: i, region: slices.Index(s.regions, n.Region), up: !n.Later, busy: make(chan struct{})}
		close(h.busy)
		s.hosts = append(s.hosts, h)
		s.named[n.Name] = h
		o.Regions[n.Name] = n.Region
		if !n.Later {
			o.Nodes = append(o.Nodes, n.Name)
		}
	}
	for i := range s.limits {
		if scenario.MaxKeys > 0 {
			o.Config.MaxKeys = scenario.MaxKeys
			break
		}
		o.Config.MaxKeys += roomier * s.keysOf(i)
		if s.limits[i].Scope == weir.Global { // spends of other regions are counted separately
			o.Config.MaxKeys += roomier * s.keysOf(i)
		}
		if s.limits[i].Ban != (weir.Ban{}) { // a key has three more counts
			o.Config.MaxKeys += 3 * roomier * s.keysOf(i)
		}
		if s.limits[i].Pauses {
			o.Config.MaxKeys += roomier * s.keysOf(i)
		}
		if inFlightLimit(s.limits[i]) { // each node may be a side
			o.Config.MaxKeys += roomier * len(scenario.Nodes) * int(min(s.limits[i].Rate, mostHolds)) * s.keysOf(i)
		}
	}
	for _, l := range s.Loads {
		if scenario.MaxKeys == 0 && l.TTL > 0 { // a released hold leaves a tombstone until the end of its TTL
			o.Config.MaxKeys += roomier * int(l.Rate*min(l.TTL+l.Keeps, s.Lasts).Seconds()+float64(l.Burst))
		}
		if scenario.MaxKeys == 0 && l.Settles > 0 { // a reservation that is carried has a count of its own
			o.Config.MaxKeys += roomier * int(l.Rate*s.Lasts.Seconds()+float64(l.Burst)) / carriedOf
		}
	}
	s.witness = newLedger(witnessKeys * len(s.regions))
	for i := range s.limits {
		s.keys = append(s.keys, make([]string, s.keysOf(i)))
		for k := range s.keys[i] {
			s.keys[i][k] = fmt.Sprint("key ", k)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	started := time.Now()
	var err error
	if s.cluster, err = weirtest.NewCluster(ctx, o); err != nil {
		return nil, err
	}
	if s.hasGlobal() {
		time.Sleep(acquaintedIn)
	}
	s.began = time.Now()
	s.starts = []time.Duration{started.Sub(s.began)}
	s.witness.keys = make(map[[16]byte]int)
	for _, h := range s.hosts {
		h.machine = s.cluster.Network().Host(h.name)
		if n := s.cluster.Node(h.name); n != nil {
			if h.runs, err = s.newProcess(n); err != nil {
				_ = s.cluster.Close()
				return nil, err
			}
		}
	}
	for _, h := range s.hosts {
		if h.runs != nil {
			for k, key := range s.keys[len(s.Limits)] {
				s.witness.keys[h.runs.limiters[len(s.Limits)].ID(key)] = k
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trackAbsences()
	return s, nil
}

// keysOf returns the number of keys of a limit from which the loads draw.
func (s *stage) keysOf(limit int) int {
	if limit == len(s.Limits) {
		return witnessKeys * len(s.regions)
	}
	most := 1
	for _, l := range s.Loads {
		if l.Limit == s.limits[limit].Name {
			most = max(most, l.Keys)
		}
	}
	return most
}

func (s *stage) newProcess(n *weir.Node) (*process, error) {
	p := &process{node: n, since: s.elapsed(), over: make(chan struct{})}
	for _, m := range n.Members() {
		if m.Self {
			p.name = m.Name
		}
	}
	for _, l := range s.limits {
		limiter, err := n.Limiter(l)
		if err != nil {
			return nil, err
		}
		p.limiters = append(p.limiters, limiter)
	}
	return p, nil
}

// settle heals and thaws everything, and waits until each node sees exactly the running
// nodes of its region and has sent them all counts, and each key of the witness limit has
// an owner. Dead members are forgotten, as by an operator that knows that they will not
// return. settle returns the state that is still wrong after two minutes.
func (s *stage) settle(ctx context.Context) string {
	s.cluster.Heal()
	for _, h := range s.hosts {
		s.cluster.Thaw(h.name)
		s.cluster.Throttle(h.name, 0, 0)
	}
	s.moving.Wait()
	quiet, healed := s.elapsed(), s.elapsed()
	for end := s.elapsed() + settleWithin; s.elapsed() < end; time.Sleep(100 * time.Millisecond) {
		if !s.cluster.Settled() || s.findUnsent() != "" {
			if quiet = s.elapsed(); quiet-healed >= forgetAfter {
				s.forget()
			}
		}
		if s.elapsed()-quiet < quietFor {
			continue
		}
		if s.allOwned(ctx) {
			return ""
		}
		quiet = s.elapsed()
	}
	if u := s.findUnsent(); u != "" {
		return u
	}
	views := "not every node sees all running nodes"
	for _, name := range s.cluster.Names() {
		views += fmt.Sprintf("; %s sees %v", name, s.cluster.Node(name).Members())
	}
	return views
}

// allOwned reports whether each key of the witness limit has a node that answers for the
// key itself. The keys of a region without a running node do not count. After a node was
// forgotten, other nodes wait some seconds before they take its ranges, because a
// disconnected member may have these ranges.
func (s *stage) allOwned(ctx context.Context) bool {
	for k := range s.witness.spends {
		if s.running(k/witnessKeys, nil) != nil && !slices.ContainsFunc(s.hosts, func(h *host) bool {
			_, owner := s.usedUnits(ctx, h, k)
			return owner
		}) {
			return false
		}
	}
	return true
}

// findUnsent describes a node that has unsent counts. If there is none, the text is
// empty.
func (s *stage) findUnsent() string {
	for _, name := range s.cluster.Names() {
		if n := s.cluster.Node(name).Stats().Stream.Unsent; n > 0 {
			return fmt.Sprintf("%s has %d counts to send", name, n)
		}
	}
	return ""
}

// forget removes dead members from the rosters if their nodes do not run.
func (s *stage) forget() {
	for _, name := range s.cluster.Names() {
		n := s.cluster.Node(name)
		for _, m := range n.Members() {
			runs := func(h *host) bool { return h.runs != nil && h.runs.name == m.Name }
			if m.State == weir.Dead && !slices.ContainsFunc(s.hosts, runs) {
				_ = n.Forget(m.Name) // on an error, another member has just forgotten it
			}
		}
	}
}

// listEndings returns the counts of the witness limit on all nodes. It then kills a node,
// and adds the counts of the stand-in.
func (s *stage) listEndings(ctx context.Context) []Ending {
	var ends []Ending
	gone := s.lostSpends()
	var disturbed [][]span // the disturbed spans of each region
	for _, c := range s.courses {
		spans := c.disturbedSpans()
		if s.MaxKeys > 0 { // leases end when their counts are evicted
			spans = []span{{0, never}}
		}
		disturbed = append(disturbed, spans)
	}
	for k := range gone {
		if s.running(k/witnessKeys, nil) == nil {
			continue // no node is left to ask
		}
		e := Ending{Key: int32(k), Replica: -1}
		for _, h := range s.hosts {
			if used, owner := s.usedUnits(ctx, h, k); owner {
				e.Owners = append(e.Owners, int16(h.index))
				e.Used = max(e.Used, used)
				e.Reset = max(e.Reset, s.witness.knows[knower{h.index, k}])
			}
		}
		s.witness.close(&e, gone[k], disturbed[k/witnessKeys])
		ends = append(ends, e)
	}
	s.killAnOwner(ctx, ends)
	return ends
}

// usedUnits returns the used units of a key of the witness limit, as a node reports them.
// The result owner reports whether the node answers for the key itself.
func (s *stage) usedUnits(ctx context.Context, h *host, key int) (units int64, owner bool) {
	if key/witnessKeys != h.region {
		return 0, false
	}
	return s.peek(ctx, h, len(s.Limits), key)
}

func (s *stage) peek(ctx context.Context, h *host, limit, key int) (units int64, owner bool) {
	n := s.cluster.Node(h.name)
	if n == nil {
		return 0, false
	}
	l, err := n.Limiter(s.limits[limit])
	if err != nil {
		return 0, false
	}
	d, err := l.Peek(ctx, s.keys[limit][key])
	if err != nil {
		return 0, false
	}
	// Below Config.Expect, every answer is FailedOpen.
	owner = d.Source == weir.Owner || d.Source == weir.FailedOpen && l.Owner(s.keys[limit][key]).Self
	return d.Limit - d.Remaining, owner
}

// killAnOwner kills a node in a region that has another node, and records the counts of
// the other node.
func (s *stage) killAnOwner(ctx context.Context, ends []Ending) {
	candidates := slices.DeleteFunc(slices.Clone(s.hosts), func(h *host) bool {
		return s.cluster.Node(h.name) == nil || s.running(h.region, h) == nil
	})
	if s.Replicas < 0 || len(candidates) == 0 {
		return
	}
	// A request that is lost or late would be answered from the copy of another member.
	s.changeLinks(&Fault{Kind: FaultLink, Link: weirtest.Link{Latency: min(s.Network.Latency, 100*time.Microsecond)}})
	victim := candidates[s.rand("victim").IntN(len(candidates))]
	s.cluster.Kill(victim.name)
	time.Sleep(stoodInWithin)
	other := s.running(victim.region, nil)
	for i := range ends {
		if e := &ends[i]; slices.Contains(e.Owners, int16(victim.index)) {
			e.Replica, _ = s.usedUnits(ctx, other, int(e.Key))
		}
	}
}

// running returns the first host of a region on which a node runs, except the given host.
// The result is nil if there is no such host.
func (s *stage) running(region int, but *host) *host {
	for _, h := range s.hosts {
		if h != but && h.region == region && s.cluster.Node(h.name) != nil {
			return h
		}
	}
	return nil
}

// wanUse returns the traffic of all nodes to other regions, also of nodes that have ended.
func (s *stage) wanUse() WAN {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.ended
	for _, h := range s.hosts {
		if h.runs != nil {
			use.add(h.runs.node)
		}
	}
	return use
}

func (w *WAN) add(n *weir.Node) {
	for _, r := range n.Stats().Regions {
		w.Statements += r.Statements
		w.Disputed += r.Disputed
		w.Bytes += r.Sent
	}
}

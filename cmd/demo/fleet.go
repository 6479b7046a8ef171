package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/rpc"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// happening is a step that was executed.
type happening struct {
	step
	from   int64 // time at which it began, in Unix nanoseconds
	seenBy int64 // time at which all gateways that are up had seen it; the constant never if they have not
}

// fleet is the set of gateways. Its methods are safe for concurrent use, unless their
// comment states otherwise.
type fleet struct {
	story
	nodes    int      // number of gateways, without the gateway that joins and leaves
	each     int      // number of gateways in each region; their indices are consecutive
	regions  []string // none if empty
	replicas int
	limit    int64
	per      time.Duration
	token    string        // token for the admin API of the gateways
	timeout  time.Duration // maximum time that a check waits for other gateways
	served   bool          // the demo runs until Ctrl-C, and its page has buttons that cut links and slow them

	// The fields below are zero except in a soak.
	Endurance               // additional settings of each gateway
	aftermath time.Duration // time for which a step loosens the bounds of windows after the end of the step

	polls sync.WaitGroup

	mu       sync.Mutex
	current  []*incarnation // the incarnation of each gateway, nil if it has not started; the last gateway exists only for a while
	all      []*incarnation
	happened []happening
	lag      time.Duration // maximum lag of a replica
	broken   []string      // broken promises, in words
	version  uint64        // version of the rules
	away     []bool        // whether each gateway is on the other side of the cut
	slowed   []bool        // whether messages between each gateway and other gateways take longer
	asks     []int         // regions from which the region of each request is drawn; if empty, all requests go to the first region
	cut      int           // number of connections that were ended
	saved    int64         // time until which all admissions are in the snapshots that the gateways left when they stopped

	// The method open uses the fields below first. Later, a single step at a time uses them.
	sites    []Site // indexed by gateway
	releases []func()
	rules    rulesFile
}

func newFleet(o options, per time.Duration, told *screen) *fleet {
	nodes := o.nodes * max(1, o.regions)
	f := &fleet{
		story: story{told: told, begun: time.Now()},
		nodes: nodes, each: o.nodes, regions: regionNames[:o.regions], replicas: o.replicas, limit: o.limit, per: per,
		current: make([]*incarnation, nodes+1), sites: make([]Site, nodes+1), served: o.serve,
		away: make([]bool, nodes+1), slowed: make([]bool, nodes+1),
		token: rand.Text(), timeout: timeout, rules: rulesFile{name: "rules.yaml", limit: o.limit, per: per},
	}
	switch {
	case o.regions > 0:
		f.timeout, f.rules.name = patience, "regions.yaml"
	case o.soak > 0:
		f.Endurance, f.aftermath = Endurance{Secrets: [][]byte{newSecret()}, Forget: forget, MaxKeys: maxKeys}, soakAftermath
		f.rules.name, f.rules.kept = "soak.yaml", keptRate(o.rate)
	}
	return f
}

func (f *fleet) isSoak() bool { return f.aftermath > 0 }

// region returns the index of a gateway's region, or 0 if there are no regions.
func (f *fleet) region(gateway int) int { return gateway / f.each % max(1, len(f.regions)) }

// regionName returns the name of a gateway's region, or "" if there are no regions.
func (f *fleet) regionName(gateway int) string {
	if len(f.regions) == 0 {
		return ""
	}
	return f.regions[f.region(gateway)]
}

// hold chooses the sites of all gateways, and holds their addresses, so that no other
// process gets an address while its gateway restarts. hold is called once.
func (f *fleet) hold() (err error) {
	for i := range f.sites {
		for _, addr := range []*string{&f.sites[i].Bind, &f.sites[i].HTTP, &f.sites[i].Admin} {
			var release func()
			if *addr, release, err = lab.HoldAddr(); err != nil {
				return err
			}
			f.releases = append(f.releases, release)
		}
	}
	return nil
}

// place creates a new incarnation of a gateway. The caller must hold f.mu.
func (f *fleet) place(gateway int) *incarnation {
	inc := &incarnation{gateway: gateway, site: f.sites[gateway], over: make(chan struct{}), client: &http.Client{
		Timeout:   giveUp,
		Transport: &http.Transport{MaxIdleConns: workers, MaxIdleConnsPerHost: workers, DisableCompression: true},
	}}
	f.current[gateway], f.all = inc, append(f.all, inc)
	return inc
}

// enter creates an incarnation of a gateway, and launches it.
func (f *fleet) enter(gateway int) error {
	f.mu.Lock()
	inc := f.place(gateway)
	f.mu.Unlock()
	return f.launch(inc)
}

// launch starts the process of an incarnation. Like lab.StartService, it must run on the
// main thread of the demo.
func (f *fleet) launch(inc *incarnation) error {
	f.mu.Lock()
	gateway := inc.gateway
	s := Settings{
		Label: label(gateway), Site: inc.site, Expect: f.each, Replicas: f.replicas, Rules: f.rules.path, Token: f.token,
		Region: f.regionName(gateway), Regions: make(map[string][]string), Timeout: f.timeout, Shown: f.served, Links: f.links(gateway),
		Endurance: f.Endurance,
	}
	if f.isSoak() {
		s.Snapshots = filepath.Join(f.rules.dir, s.Label)
	}
	for i, other := range f.current[:f.nodes] {
		switch name := f.regionName(i); {
		case name != s.Region:
			s.Regions[name] = append(s.Regions[name], f.sites[i].Bind)
		case i != gateway && other != nil:
			s.Join = append(s.Join, other.site.Bind)
		}
	}
	f.mu.Unlock()

	cmd, err := lab.Self(gatewayEnv + "=1")
	if err != nil {
		return err
	}
	p, err := lab.StartService(cmd)
	if err != nil {
		return fmt.Errorf("gateway %d does not start: %w", gateway+1, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	inc.process = p
	go f.follow(inc, s)
	return nil
}

// follow starts the service of a gateway, polls the gateway and handles its reports until
// the gateway no longer serves, and waits for the end of its process. An error that the
// gateway returns is a broken promise. An error because the process has ended is not. The
// calls have no timeout, because a gateway may be frozen. They end when the method stop
// ends the process.
func (f *fleet) follow(inc *incarnation, s Settings) {
	err := inc.process.Call("Gateway.Start", s, new(int))
	if err == nil {
		f.polls.Go(func() { f.poll(inc) })
	}
	links := s.Links
	for left := false; err == nil && !left; time.Sleep(lookInterval) {
		var r Report
		if err = inc.process.Call("Gateway.Report", links, &r); err == nil {
			links = f.record(inc, r)
		}
		left = r.Left
	}
	if refusal := rpc.ServerError(""); errors.As(err, &refusal) {
		f.mu.Lock()
		f.recordBroken("gateway %d: %v", inc.gateway+1, err)
		f.mu.Unlock()
	}
	_ = inc.process.Close() // the process ends, if it has not ended
	<-inc.process.Ended()
	f.recordEnd(inc)
}

// record adds a report of a gateway to the results of the fleet, and returns the current
// links of the gateway.
func (f *fleet) record(inc *incarnation, r Report) map[string]link {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.served { // a served fleet is not judged by latencies
		inc.still = append(inc.still, r.Still...)
	}
	r.Still = nil
	if r.Page == nil {
		r.Page = inc.report.Page
	}
	inc.report = r
	if f.isSettledSince(healed+statsInterval, r.At) { // a gateway that comes back has no counts
		f.lag = max(f.lag, r.Stream.Lag)
	}
	if inc.condition == starting {
		inc.condition = joining
	}
	f.settle(r.At)
	return f.links(inc.gateway)
}

// drain is how long a leaving gateway continues to serve after it receives no new
// requests, like the preStop hook in Kubernetes.
const drain = 200 * time.Millisecond

// pollInterval is the interval of readiness checks of a gateway.
const pollInterval = 50 * time.Millisecond

// poll checks whether a gateway is ready until the gateway has ended, as a load balancer
// does.
func (f *fleet) poll(inc *incarnation) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		response, err := inc.get(readyPath, nil)
		f.recordReadiness(inc, err == nil && response.StatusCode == http.StatusOK)
		select {
		case <-tick.C:
		case <-inc.over:
			return
		}
	}
}

func (f *fleet) recordReadiness(inc *incarnation, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inc.ready = ready && inc.hasCondition(joining, up)
	switch {
	case inc.condition == joining && ready:
		inc.condition = up
	case inc.condition == up && !ready:
		inc.condition = joining
	}
	f.settle(time.Now().UnixNano())
}

// settle records whether all gateways have seen the last steps. The caller must hold
// f.mu.
func (f *fleet) settle(at int64) {
	if f.isSettled() || !f.haveAgreed() {
		return
	}
	for i := len(f.happened) - 1; i >= 0 && f.happened[i].seenBy == never; i-- {
		f.happened[i].seenBy = max(at, f.happened[i].from)
	}
	h := f.happened[len(f.happened)-1]
	if what := kinds[h.kind].seen; what != "" {
		f.say("", "after %s %s", short(time.Duration(h.seenBy-h.from)), what)
	}
}

// isSettled reports whether all gateways have seen the last step. The caller must hold
// f.mu.
func (f *fleet) isSettled() bool { return f.isSettledSince(0, never-1) }

// isSettledSince reports whether, at the time now, at least the duration a has passed since
// all gateways saw the last step. The caller must hold f.mu.
func (f *fleet) isSettledSince(a time.Duration, now int64) bool {
	last := len(f.happened) - 1
	return last < 0 || f.happened[last].seenBy <= now-int64(a)
}

// haveAgreed reports whether a gateway is up, no gateway starts or leaves, the running
// gateways of each region are connected to each other and to no other gateway, and all
// gateways that are up decide by the current rules. The caller must hold f.mu.
func (f *fleet) haveAgreed() bool {
	isUp := func(inc *incarnation) bool { return inc.hasCondition(up) }
	isMoving := func(inc *incarnation) bool {
		return inc.hasCondition(starting, joining, leaving) || inc.hasCondition(up) && inc.report.Rules < f.version
	}
	return slices.ContainsFunc(f.current, isUp) && !slices.ContainsFunc(f.current, isMoving) && f.areConnected()
}

// areConnected reports whether the running gateways of each region are all connected to
// each other, and to no other gateway. The caller must hold f.mu.
func (f *fleet) areConnected() bool {
	for _, inc := range f.current {
		for _, other := range f.current {
			if inc.hasCondition(joining, up) && other != nil && f.region(inc.gateway) == f.region(other.gateway) &&
				slices.Contains(inc.report.Members, seen{other.report.Name, weir.Serving}) != other.hasCondition(joining, up) {
				return false
			}
		}
	}
	return true
}

func (f *fleet) recordEnd(inc *incarnation) {
	p := inc.process
	f.mu.Lock()
	defer f.mu.Unlock()
	close(inc.over)
	inc.client.CloseIdleConnections()
	inc.ready = false
	now := time.Now().UnixNano()
	switch inc.condition {
	case killed:
	case stopped:
		if p.Cmd.ProcessState.Exited() && !p.Succeeded() {
			f.recordBroken("gateway %d failed while it stopped: %s", inc.gateway+1, p.Outcome())
		}
	case leaving:
		inc.condition, inc.down = gone, append(inc.down, lab.Between(now, never))
		if !p.Succeeded() {
			f.recordBroken("gateway %d failed while it left: %s", inc.gateway+1, p.Outcome())
		}
		f.settle(now)
	default:
		inc.condition, inc.down = failed, append(inc.down, lab.Between(now, never))
		f.recordBroken("gateway %d ended by itself: %s", inc.gateway+1, p.Outcome())
		f.say("failed", "gateway %d ended by itself: %v", inc.gateway+1, p.Cmd.ProcessState)
	}
}

// recordBroken records a broken promise. The caller must hold f.mu.
func (f *fleet) recordBroken(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// failures returns the promises that gateways have broken, in words.
func (f *fleet) failures() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.broken)
}

// await waits until the given function returns true. It locks f.mu for each call. It
// returns an error if gateways have broken a promise or the wait takes too long, and the
// cause of ctx if ctx is done.
func (f *fleet) await(ctx context.Context, until func() bool) error {
	within := seenWithin
	if f.isSoak() {
		within = soakSeenWithin
	}
	var broken error
	over := lab.Await(ctx, within, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.broken) > 0 {
			broken = errors.New(strings.Join(f.broken, "\n"))
		}
		return until() || broken != nil
	})
	switch {
	case broken != nil || over:
		return broken
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var views []string
	for i, inc := range f.current {
		if inc != nil {
			views = append(views, fmt.Sprintf("gateway %d is %v, decides by rules %d and sees %v", i+1, inc.condition, inc.report.Rules, inc.report.Members))
		}
	}
	return fmt.Errorf("the gateways did not find each other within %v: %s", within, strings.Join(views, "; "))
}

// open starts all gateways in turn, and waits until they are connected to
// each other and the regions reach each other. Like launch, it must run on the main
// thread of the demo.
func (f *fleet) open(ctx context.Context) error {
	if f.releases == nil {
		if err := f.hold(); err != nil {
			return err
		}
	}
	f.version = 1
	if err := f.rules.write(f.version, hourly); err != nil {
		return err
	}
	for i := range f.nodes {
		if err := f.enter(i); err != nil {
			return err
		}
		if err := f.await(ctx, func() bool { return f.current[i].condition == up }); err != nil {
			return err
		}
	}
	return f.await(ctx, func() bool { return f.haveAgreed() && f.regionsReached() })
}

// regionsReached reports whether each region has heard from every other region. One
// gateway of a region is enough: a gateway that receives authority also receives the
// state of other regions, and does not ask them before it needs to. The caller must hold
// f.mu.
func (f *fleet) regionsReached() bool {
	for from := range f.regions {
		for to, name := range f.regions {
			if from != to && !slices.ContainsFunc(f.current[:f.nodes], func(inc *incarnation) bool {
				r := inc.report.Regions[name]
				return f.region(inc.gateway) == from && (r.Reached || r.Received > 0)
			}) {
				return false
			}
		}
	}
	return true
}

// stopWithin is the maximum time that a gateway may take to stop.
const stopWithin = 3 * time.Second

// stop ends every process, and returns when all have ended. It may be called again.
func (f *fleet) stop() {
	f.mu.Lock()
	all := slices.Clone(f.all)
	var wait sync.WaitGroup
	for _, inc := range all {
		if inc.process == nil || inc.hasCondition(killed, failed, gone) {
			continue
		}
		if inc.condition == frozen {
			inc.process.Kill()
		}
		inc.condition = stopped
		wait.Go(func() {
			if errors.Is(inc.process.End(stopWithin), lab.ErrLate) {
				f.mu.Lock()
				f.recordBroken("gateway %d did not stop within %v", inc.gateway+1, stopWithin)
				f.mu.Unlock()
			}
		})
	}
	f.mu.Unlock()
	wait.Wait()
	for _, inc := range all {
		if inc.process != nil {
			<-inc.over
		}
	}
	f.polls.Wait()
	f.rules.remove()
	for _, release := range f.releases {
		release()
	}
	f.releases = nil
}

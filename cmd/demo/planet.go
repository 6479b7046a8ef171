package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// What a path between two regions takes each way: oneWay, and up to jitter more
// or less.
const (
	oneWay = 50 * time.Millisecond
	jitter = 10 * time.Millisecond
)

// planet is fleets of gateways, one for each region, and what lies between them.
// Its methods are safe for concurrent use but where they say otherwise.
type planet struct {
	story
	regions []string
	fleets  []*fleet // by region
	limit   int64
	per     time.Duration
	rules   rulesFile

	options  options
	tallies  []*tally // by region
	lateness lab.Lateness
	small    visit
	begun    time.Time
	now      atomic.Pointer[phase]

	// What follows belongs to the demo's own goroutine.
	coming, done []phase
}

// visit is what the user of the small limit got.
type visit struct {
	over      bool
	got, more int
	took      time.Duration // until all that it got had been granted
}

// planetStall is the longest that a request may take in a run with regions: a
// check's Timeout, and what a busy machine may keep processes waiting.
const planetStall = patience + 480*time.Millisecond

func newPlanet(o options, told *screen) (*planet, error) {
	p := &planet{
		story: story{told: told}, regions: regionNames[:o.regions], limit: o.limit, per: planetPer,
		rules: rulesFile{limit: o.limit, per: planetPer}, options: o,
	}
	p.coming = journey(p.regions, o.duration)
	p.now.Store(&phase{})
	if err := p.rules.write("regions.yaml", 1, 0); err != nil {
		return p, err
	}
	for i, region := range p.regions {
		f := newFleet(o, p.per, nil)
		f.rules.path, f.region, f.timeout, f.abroad = p.rules.path, region, patience, make(map[string][]string)
		f.links = func(int) map[string]link { return p.links(i) }
		p.fleets, p.tallies = append(p.fleets, f), append(p.tallies, newTally(f, planetStall, &p.lateness))
		if err := f.hold(); err != nil {
			return p, err
		}
	}
	for i, f := range p.fleets {
		for j, other := range p.fleets {
			for _, there := range other.sites[:other.nodes] {
				if i != j {
					f.abroad[p.regions[j]] = append(f.abroad[p.regions[j]], there.Bind)
				}
			}
		}
	}
	return p, nil
}

// links is what is between a region's gateways and all others.
func (p *planet) links(region int) map[string]link {
	links, cut := make(map[string]link), p.now.Load().cut
	for i, other := range p.fleets {
		for _, there := range other.sites {
			if i != region {
				links[there.Bind] = link{Cut: cut && (i == thenBusy || region == thenBusy), Delay: oneWay, Jitter: jitter}
			}
		}
	}
	return links
}

var errNotMet = errors.New("the regions did not reach each other in time")

// open starts all gateways, and waits until all regions reach each other. Like
// launch, it belongs on the demo's own thread.
func (p *planet) open(ctx context.Context) error {
	for i, f := range p.fleets {
		if err := f.open(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.regions[i], err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, seenWithin, errNotMet)
	defer cancel()
	for i, f := range p.fleets {
		if err := f.await(ctx, f.reached); err != nil {
			return fmt.Errorf("%s: %w", p.regions[i], err)
		}
	}
	return nil
}

// reached reports whether the fleet has heard from every other region. One gateway is
// enough: one that is handed authority is handed what the others know of a region, and asks
// that region nothing before it has to. f.mu is held.
func (f *fleet) reached() bool {
	for region := range f.abroad {
		if !slices.ContainsFunc(f.current[:f.nodes], func(inc *incarnation) bool {
			r := inc.report.Regions[region]
			return r.Reached || r.Received > 0
		}) {
			return false
		}
	}
	return true
}

// broken is what gateways have broken, in words.
func (p *planet) broken() (all []string) {
	for i, f := range p.fleets {
		for _, what := range f.failures() {
			all = append(all, p.regions[i]+": "+what)
		}
	}
	return all
}

// begin implements run.
func (p *planet) begin(now time.Time) *lab.Lateness {
	p.begun = now
	p.from(now)
	return &p.lateness
}

// introduction implements run.
func (p *planet) introduction() (texts []string) {
	for i, f := range p.fleets {
		texts = append(texts, f.introduce(p.regions[i]+": ", clientHeader+": you", "/")...)
	}
	return texts
}

// traffic implements run.
func (p *planet) traffic(ctx context.Context) {
	var visited sync.WaitGroup
	defer visited.Wait()
	if at, ok := smallAt(p.options.duration); ok {
		visited.Go(func() { p.visit(ctx, at) })
	}
	p.drive(ctx, p.options.rate, p.options.seed)
}

// act implements run. It is over as well when a gateway has failed.
func (p *planet) act(now time.Time) (over bool, err error) {
	elapsed := now.Sub(p.begun)
	if len(p.coming) > 0 && elapsed >= p.coming[0].after {
		next := p.coming[0]
		p.now.Store(&p.coming[0])
		for _, f := range p.fleets {
			f.relink()
		}
		next.began = time.Now().UnixNano()
		p.say("phase", "%s", next.name)
		p.done, p.coming = append(p.done, next), p.coming[1:]
	}
	return elapsed >= p.options.duration || len(p.broken()) > 0, nil
}

var regionColumns = []column{
	{"region", 7, 0},
	{"asks/s", 8, 0},
	{"granted/s", 9, 0},
	{"check p50", 9, 2},
	{"check p99", 9, 0},
	{"request p99", 11, 1},
	{"of the Global limit", 30, 0},
}

// regionBar is how wide the bar of what a region was granted is.
const regionBar = 20

// view implements run.
func (p *planet) view(now time.Time) *view {
	v := &view{
		title: fmt.Sprintf("%d regions of %d gateways, %v from each other each way: each of %d customers gets %d in %v over all of them together",
			len(p.regions), p.fleets[0].nodes, oneWay, customers, p.limit, p.per),
		elapsed: now.Sub(p.begun), duration: p.options.duration, next: "then the verdict",
		columns: regionColumns, story: p.lines(),
		legend: []string{fmt.Sprintf("asks/s and granted/s: of the Global limit, granted within the last %v   request: over HTTP", p.per)},
	}
	if len(p.coming) > 0 {
		v.next = fmt.Sprintf("%s: in %.0f s", p.coming[0].name, max(0, p.coming[0].after-v.elapsed).Seconds())
	}
	over := min(time.Second, v.elapsed)
	rate := func(granted int) string { return fmt.Sprintf("%.0f", float64(granted)/p.per.Seconds()) }
	all, limit := 0, customers*int(p.limit)
	for i, name := range p.regions {
		answers := p.tallies[i].since(now.Add(-over).UnixNano())
		asks := sum(answers, func(a *answer) bool { return a.path == "/" }).answered()
		s := sum(answers, func(*answer) bool { return true })
		granted := 0
		for _, a := range p.tallies[i].since(now.Add(-p.per).UnixNano()) {
			if a.allowed && a.path == "/" {
				granted++
			}
		}
		all += granted
		filled := min(regionBar, (granted*regionBar+limit/2)/limit)
		row := []painted{
			{bold, name}, {plain, number(perSecond(asks, over))}, {bold, rate(granted)},
			{plain, short(s.checks.Quantile(0.5))}, {plain, short(s.checks.Quantile(0.99))}, {plain, short(s.took.Quantile(0.99))},
			{cyan, strings.Repeat("█", filled)}, {dim, strings.Repeat("░", regionBar-filled)},
		}
		if p.now.Load().cut && i == thenBusy {
			row[0].colour = red
			row = append(row, painted{red, " cut off"})
		}
		v.rows = append(v.rows, row)
		at := p.tallies[i].standing()
		v.standing = standing{v.standing.requests + at.requests, v.standing.errors + at.errors, v.standing.stalls + at.stalls}
	}
	v.rows = append(v.rows, []painted{
		{plain, "all"}, {}, {bold, rate(all)}, {}, {}, {}, {plain, "of " + rate(limit)},
	})
	return v
}

// stop ends every process, and returns when all have ended.
func (p *planet) stop() {
	var wait sync.WaitGroup
	for _, f := range p.fleets {
		wait.Go(f.stop)
	}
	wait.Wait()
	p.rules.remove()
}

// choose is the region of the next request.
func (p *planet) choose(random *rand.Rand) int {
	asks, sum := p.now.Load().asks, 0
	for _, n := range asks {
		sum += n
	}
	n := random.IntN(sum)
	return slices.IndexFunc(asks, func(part int) bool { n -= part; return n < 0 })
}

// drive sends rate requests a second to the regions, as the phase has it, until ctx
// is done.
func (p *planet) drive(ctx context.Context, rate int, seed uint64) {
	pace(ctx, rate, seed, p.tallies[0].miss, func(random *rand.Rand) func() {
		return func() {
			region := p.choose(random)
			to := p.fleets[region].pick(random)
			if to == nil {
				return
			}
			customer, path := random.IntN(customers), "/"
			if random.IntN(localPart) == 0 {
				path = localPath
			}
			p.tallies[region].add(ask(to, path, customer, clientName(customer)))
		}
	})
}

// visitor is the user of the small limit.
const visitor = "visitor"

// askAgain is how long a user waits after a denial.
const askAgain = 50 * time.Millisecond

// visit has the user of the small limit come to the lonely region, for all of it at
// once: each request is made again until it is admitted. Then one more is made in
// every region.
func (p *planet) visit(ctx context.Context, after time.Duration) {
	if !lab.Sleep(ctx, after) {
		return
	}
	region := min(lonely, len(p.regions)-1)
	p.say("", "one user asks %s for all %d of a limit of %d a minute at once", p.regions[region], smallRate, smallRate)
	knock := func(region int, seed uint64) (allowed bool) {
		to := p.fleets[region].pick(rand.New(rand.NewPCG(seed, uint64(after))))
		if to == nil {
			return false
		}
		a := ask(to, smallPath, 0, visitor)
		p.tallies[region].add(a)
		return a.err == nil && a.allowed
	}
	begun, took := time.Now(), make(chan time.Duration, smallRate)
	var wait sync.WaitGroup
	for i := range smallRate {
		wait.Go(func() {
			for tried := uint64(i); !knock(region, tried); tried++ {
				if time.Since(begun) > 10*smallWithin || !lab.Sleep(ctx, askAgain) {
					return
				}
			}
			took <- time.Since(begun)
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return
	}
	got, last, more := len(took), time.Duration(0), 0
	for range got {
		last = max(last, <-took)
	}
	for region := range p.regions {
		if knock(region, 0) {
			more++
		}
	}
	p.small = visit{true, got, more, last - p.lateness.Within(begun, begun.Add(last))}
	p.say("", "after %s it has %d, and then %d more in all regions", short(last), got, more)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

	now atomic.Pointer[phase]

	mu    sync.Mutex
	began []int64 // each phase, in Unix nanoseconds
}

func newPlanet(o options, told *screen) (*planet, error) {
	p := &planet{
		story: story{told: told}, regions: regionNames[:o.regions], limit: o.limit, per: planetPer,
		rules: rulesFile{limit: o.limit, per: planetPer},
	}
	p.now.Store(&phase{})
	if err := p.rules.write("regions.yaml", 1, 0); err != nil {
		return p, err
	}
	for i, region := range p.regions {
		f := newFleet(o, p.per, nil)
		f.rules.path, f.region, f.timeout, f.abroad = p.rules.path, region, patience, make(map[string][]string)
		f.links = func(int) map[string]link { return p.links(i) }
		p.fleets = append(p.fleets, f)
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

// begin has a phase begin.
func (p *planet) begin(next phase) {
	p.now.Store(&next)
	for _, f := range p.fleets {
		f.relink()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = append(p.began, time.Now().UnixNano())
	p.say("phase", "%s", next.name)
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

func (p *planet) title() string {
	return fmt.Sprintf("weir  %d regions of %d gateways, %v from each other each way: each of %d customers gets %d in %v over all of them together",
		len(p.regions), p.fleets[0].nodes, oneWay, customers, p.limit, p.per)
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
func (p *planet) drive(ctx context.Context, l *ledger, rate int, seed uint64) {
	pace(ctx, rate, seed, l.miss, func(random *rand.Rand) func() {
		return func() {
			region := p.choose(random)
			to := p.fleets[region].pick(random)
			if to == nil {
				return
			}
			customer, path := random.IntN(customers), "/"
			local := random.IntN(localPart) == 0
			if local {
				path = localPath
			}
			l.add(region, local, ask(to, path, customer, clientName(customer)))
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
func (p *planet) visit(ctx context.Context, l *ledger, after time.Duration) {
	if !sleep(ctx, after) {
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
		l.check(region, false, &a)
		return a.err == nil && a.allowed
	}
	begun, took := time.Now(), make(chan time.Duration, smallRate)
	var wait sync.WaitGroup
	for i := range smallRate {
		wait.Go(func() {
			for tried := uint64(i); !knock(region, tried); tried++ {
				if time.Since(begun) > 10*smallWithin || !sleep(ctx, askAgain) {
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
	l.visited(got, more, last-l.lateness.Within(begun, begun.Add(last)))
	p.say("", "after %s it has %d, and then %d more in all regions", short(last), got, more)
}

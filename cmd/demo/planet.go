package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// planet is fleets of gateways, one for each region, and what lies between them.
// Its methods are safe for concurrent use but where they say otherwise.
type planet struct {
	regions []string
	fleets  []*fleet // by region
	wan     *wan
	limit   int64
	per     time.Duration
	rules   rulesFile
	far     [][]*far // by region and gateway

	asks atomic.Pointer[[]int] // of the phase
	now  atomic.Pointer[phase]

	mu        sync.Mutex
	began     []int64 // each phase, in Unix nanoseconds
	events    []event
	announced func(event)
}

func newPlanet(o options, announced func(event)) (*planet, error) {
	p := &planet{
		regions: regionNames[:o.regions], limit: o.limit, per: planetPer, announced: announced,
	}
	p.wan = newWAN(p.regions)
	p.rules = rulesFile{limit: p.limit, per: p.per}
	if err := p.rules.place(fmt.Sprintf(planetRules, p.limit, p.per, smallRate, smallPer, localRate(p.limit), p.per)); err != nil {
		return p, err
	}
	for range p.regions {
		nodes := make([]*far, o.nodes)
		for i := range nodes {
			nodes[i] = newFar()
		}
		p.far = append(p.far, nodes)
	}
	for i, region := range p.regions {
		f := newFleet(o, p.per, nil)
		f.rules.path, f.region, f.timeout = p.rules.path, region, patience
		f.port += i * portsOfFleet
		f.abroad = make(map[string][]string)
		for j, other := range p.regions {
			if i == j {
				continue
			}
			for _, node := range p.far[j] {
				addr, err := p.wan.reach(region, other, node)
				if err != nil {
					return p, err
				}
				f.abroad[other] = append(f.abroad[other], addr)
			}
		}
		p.fleets = append(p.fleets, f)
	}
	return p, nil
}

// open starts all gateways, and waits until all regions reach each other. Like
// launch, it belongs on the demo's own thread.
func (p *planet) open(ctx context.Context) error {
	for i, f := range p.fleets {
		if err := f.open(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.regions[i], err)
		}
		f.mu.Lock()
		for j, node := range p.far[i] {
			node.is(f.current[j].report.Addr)
		}
		f.mu.Unlock()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, seenWithin, errNotMet)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !p.met() {
		if broken := p.broken(); len(broken) > 0 {
			return errors.New(strings.Join(broken, "\n"))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

var errNotMet = errors.New("the regions did not reach each other in time")

// met says that every gateway has heard from every other region.
func (p *planet) met() bool {
	for _, f := range p.fleets {
		f.mu.Lock()
		reached := true
		for _, inc := range f.current[:f.nodes] {
			for region := range f.abroad {
				r := inc.report.Regions[region]
				reached = reached && (r.Reached || r.Received > 0)
			}
		}
		f.mu.Unlock()
		if !reached {
			return false
		}
	}
	return true
}

// broken is what gateways have broken, in words.
func (p *planet) broken() (all []string) {
	for i, f := range p.fleets {
		f.mu.Lock()
		for _, what := range f.broken {
			all = append(all, p.regions[i]+": "+what)
		}
		f.mu.Unlock()
	}
	return all
}

// begin has a phase begin.
func (p *planet) begin(next phase) {
	p.wan.cut(p.regions[thenBusy], next.cut)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks.Store(&next.asks)
	p.now.Store(&next)
	p.began = append(p.began, time.Now().UnixNano())
	p.tell("phase", next.name)
}

// say announces an event.
func (p *planet) say(what, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(what, fmt.Sprintf(format, args...))
}

// tell is say. p.mu is held.
func (p *planet) tell(what, text string) {
	e := event{time.Now(), what, text}
	p.events = append(p.events, e)
	if p.announced != nil {
		p.announced(e)
	}
}

// choose is the region of the next request.
func (p *planet) choose(random *rand.Rand) int {
	asks, sum := *p.asks.Load(), 0
	for _, n := range asks {
		sum += n
	}
	n := random.IntN(sum)
	for region, part := range asks {
		if n -= part; n < 0 {
			return region
		}
	}
	return 0
}

// stop ends every process, and returns when all have ended.
func (p *planet) stop() {
	var wait sync.WaitGroup
	for _, f := range p.fleets {
		wait.Go(f.stop)
	}
	wait.Wait()
	p.wan.close()
	p.rules.remove()
}

// travel is the demo with regions, and returns the exit status.
func travel(ctx context.Context, o options, s *screen, complain io.Writer) int {
	var begun atomic.Pointer[time.Time]
	p, err := newPlanet(o, func(e event) {
		if at := begun.Load(); at != nil && !s.terminal {
			s.say(e.line(*at).render(s.palette, 1000))
		}
	})
	defer p.stop()
	if err == nil {
		err = p.open(ctx)
	}
	if err != nil {
		fmt.Fprintf(complain, "demo: %v\n", err)
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return exitBroken
	}
	p.introduce(s)
	start := time.Now()
	begun.Store(&start)

	l := newLedger(p)
	m := &globe{planet: p, ledger: l, begun: start, length: o.duration, taken: []time.Time{start}, coming: journey(p.regions, o.duration)}
	m.step(start)
	traffic, end := context.WithCancel(ctx)
	defer end()
	var driven sync.WaitGroup
	driven.Go(func() { p.drive(traffic, l, o.rate, o.seed) })
	l.lateness.Start(stillInterval, stillSlack)
	if at, ok := smallAt(o.duration); ok {
		driven.Go(func() { p.visit(traffic, l, at) })
	}
	m.watch(traffic, s)
	over := time.Now().UnixNano()
	end()
	driven.Wait()
	l.lateness.Stop()
	p.stop()
	s.close()

	return conclude(ctx, s, p.judge(l, m.done, over))
}

// introduce says who is there and how to ask them.
func (p *planet) introduce(s *screen) {
	if !s.terminal {
		s.say(p.title())
		for i, f := range p.fleets {
			for j, inc := range f.current[:f.nodes] {
				s.say(fmt.Sprintf("%s: gateway %d is process %d at %s/", p.regions[i], j+1, inc.process.PID(), f.url(inc)))
			}
		}
		s.say("for each region: requests/s, and granted of the Global limit in the last " + p.per.String() + ", a second; their sum beside the limit; p99 of the checks of each")
	}
	last := p.fleets[len(p.fleets)-1]
	s.say(fmt.Sprintf("try it:     curl -i -H '%s: you' %s/", clientHeader, last.url(last.current[0])))
	s.say(fmt.Sprintf("its admin:  curl -s -H 'Authorization: Bearer %s' %s/v1/stats", last.token, last.adminURL(last.current[0])))
}

func (p *planet) title() string {
	return fmt.Sprintf("weir  %d regions of %d gateways, %v from each other each way: each of %d customers gets %d in %v over all of them together",
		len(p.regions), p.fleets[0].nodes, oneWay, customers, p.limit, p.per)
}

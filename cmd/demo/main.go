// Demo starts a cluster of gateways as processes on this machine, sends real HTTP
// traffic through all of them, adds one and takes it away, restarts all, changes
// their rules, kills one, freezes another, keeps all of them busy, and holds what the
// clients saw against what Weir promises. With -regions it starts some in each of several regions
// instead, which share limits, moves the traffic from one to another and cuts one
// off.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitFine        = 0
	exitBroken      = 1 // a promise was broken, or the gateways did not start
	exitUsage       = 2
	exitInterrupted = 130
)

func init() {
	// The gateways die with the thread that starts them, see spawn: it is this
	// one, which lives as long as the process.
	runtime.LockOSThread()
}

func main() {
	os.Exit(entry(os.Args[1:], os.Stdout, os.Stderr))
}

// entry is the demo, or one of its gateways, and returns the exit status.
func entry(args []string, out *os.File, complain io.Writer) int {
	if told := os.Getenv(gatewayEnv); told != "" {
		return runGateway(told)
	}
	o, err := parse(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		fmt.Fprintf(complain, "demo: %v\n", err)
		return exitUsage
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, restore) // the next one ends the demo at once
	defer restore()

	s := newScreen(out)
	defer s.close()
	told := s
	if s.terminal && !o.serve {
		told = nil // the table has it
	}
	if o.regions > 0 {
		p, err := newPlanet(o, told)
		return perform(ctx, s, complain, err, p, func() int { return travel(ctx, o, p, s) })
	}
	per := window(o.duration)
	if o.serve {
		per = servedPer
	}
	f := newFleet(o, per, told)
	return perform(ctx, s, complain, nil, f, func() int {
		if o.serve {
			return serve(ctx, o, f, s)
		}
		return run(ctx, o, f, s)
	})
}

// perform opens the gateways, unless there is an error already, plays a demo with them, and
// stops them. It returns the exit status.
func perform(ctx context.Context, s *screen, complain io.Writer, err error, gateways interface {
	open(context.Context) error
	stop()
}, play func() int) int {
	defer gateways.stop()
	if err == nil {
		err = gateways.open(ctx)
	}
	if err == nil {
		return play()
	}
	fmt.Fprintf(complain, "demo: %v\n", err)
	if ctx.Err() != nil {
		return exitInterrupted
	}
	return exitBroken
}

// run is the demo of one region: it sends the traffic, makes the faults happen and judges. It
// returns the exit status.
func run(ctx context.Context, o options, f *fleet, s *screen) int {
	begun := time.Now()
	f.from(begun)
	if !s.terminal {
		s.say(fmt.Sprintf("weir  %d gateways, one limit: each of %[4]d clients gets %[2]d in %[3]v, whichever it asks", o.nodes, f.limit, f.per, clients))
		for i, inc := range f.current[:f.nodes] {
			s.say(fmt.Sprintf("gateway %d is process %d at %s/", i+1, inc.process.PID(), inc.url()))
		}
		s.say(key)
	}
	f.introduce(s, 0, userHeader+": alice", "/v1/search")
	t := newTally(f)
	m := &monitor{fleet: f, tally: t, begun: begun, length: o.duration, coming: plan(o.nodes, o.duration, rand.New(rand.NewPCG(o.seed, 0)))}
	m.last.taken = []time.Time{begun}
	_, err := t.witness(ctx, s, m, f.stop, func(ctx context.Context) { drive(ctx, f, t, o.rate, o.seed) })
	v := judge(f, t)
	if err != nil {
		v.broken = append(v.broken, err.Error())
	}
	return conclude(ctx, s, v.findings())
}

// travel is the demo with regions. It returns the exit status.
func travel(ctx context.Context, o options, p *planet, s *screen) int {
	begun := time.Now()
	p.from(begun)
	if !s.terminal {
		s.say(p.title())
		for i, f := range p.fleets {
			for j, inc := range f.current[:f.nodes] {
				s.say(fmt.Sprintf("%s: gateway %d is process %d at %s/", p.regions[i], j+1, inc.process.PID(), inc.url()))
			}
		}
		s.say("for each region: requests/s, and granted of the Global limit in the last " + p.per.String() + ", a second; their sum beside the limit; p99 of the checks of each")
	}
	p.fleets[len(p.fleets)-1].introduce(s, 0, clientHeader+": you", "/")
	l := newLedger(p)
	g := &globe{planet: p, ledger: l, begun: begun, length: o.duration, coming: journey(p.regions, o.duration)}
	g.last.taken = []time.Time{begun}
	over, _ := l.witness(ctx, s, g, p.stop,
		func(ctx context.Context) { p.drive(ctx, l, o.rate, o.seed) },
		func(ctx context.Context) {
			if at, ok := smallAt(o.duration); ok {
				p.visit(ctx, l, at)
			}
		})
	return conclude(ctx, s, p.judge(l, g.done, over))
}

// introduce says how to ask a gateway.
func (f *fleet) introduce(s *screen, gateway int, header, path string) {
	inc := f.current[gateway]
	s.say(fmt.Sprintf("try it:     curl -i -H '%s' %s%s", header, inc.url(), path))
	s.say(fmt.Sprintf("its admin:  curl -s -H 'Authorization: Bearer %s' %s/v1/stats", f.token, inc.adminURL()))
}

// director shows a run, and has things happen in it.
type director interface {
	act(now time.Time) (over bool, err error) // has the next thing happen, if it is time for it
	take(now time.Time)                       // notes what happened since it was called last
	frame(now time.Time) drawing
}

// witness measures how late the demo is, and has traffic driven, while d directs. When that is
// over, which it returns in Unix nanoseconds, it stops the gateways.
func (r *record) witness(ctx context.Context, s *screen, d director, stop func(), drive ...func(context.Context)) (over int64, err error) {
	traffic, end := context.WithCancel(ctx)
	defer end()
	_, _ = d.act(time.Now()) // before the first request
	var driven sync.WaitGroup
	for _, drive := range drive {
		driven.Go(func() { drive(traffic) })
	}
	r.lateness.Start(stillInterval, stillSlack)
	err = watch(traffic, s, d)
	over = time.Now().UnixNano()
	end()
	driven.Wait()
	r.lateness.Stop()
	stop()
	s.close()
	return over, err
}

// watch shows what happens, and has d make it happen, until it is over or ctx is done.
func watch(ctx context.Context, s *screen, d director) error {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for ticks := 1; ; ticks++ {
		var now time.Time
		select {
		case <-ctx.Done():
			return nil
		case now = <-tick.C:
		}
		if over, err := d.act(now); over || err != nil {
			return err
		}
		if ticks%(int(redraw/stepInterval)) != 0 {
			continue
		}
		d.take(now)
		switch {
		case s.terminal:
			s.draw(d.frame(now))
		case ticks%int(time.Second/stepInterval) == 0:
			s.say(d.frame(now).short())
		}
	}
}

// conclude prints the verdict on a run that was ended, by ctx or by itself, and
// returns the exit status.
func conclude(ctx context.Context, s *screen, v *findings) int {
	s.say("")
	v.print(s.out, s.palette)
	switch {
	case ctx.Err() != nil:
		s.say("\nInterrupted: this is the verdict so far. All gateways have ended.")
		return exitInterrupted
	case len(v.failures()) > 0:
		return exitBroken
	}
	return exitFine
}

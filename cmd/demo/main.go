// Demo starts a cluster of gateways as processes on this machine, sends real HTTP
// traffic through all of them, kills one, starts it again, freezes another, and
// holds what the clients saw against what Weir promises.
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

	begun := time.Now()
	s := newScreen(out)
	defer s.close()
	announced := func(e event) {
		if !s.terminal || o.serve {
			s.say(e.line(begun).render(s.palette, 1000))
		}
	}
	per := window(o.duration)
	if o.serve {
		per = servedPer
	}
	f := newFleet(o.nodes, o.limit, per, workers, announced)
	defer f.stop()
	if err := f.open(ctx); err != nil {
		fmt.Fprintf(complain, "demo: %v\n", err)
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return exitBroken
	}
	if o.serve {
		return serve(ctx, f, s)
	}
	begun = time.Now()
	return run(ctx, o, f, s, begun)
}

// run sends the traffic, makes the faults happen and judges.
func run(ctx context.Context, o options, f *fleet, s *screen, begun time.Time) int {
	if !s.terminal {
		s.say(fmt.Sprintf("weir  %d gateways, one limit: each of %[4]d clients gets %[2]d in %[3]v, whichever it asks", o.nodes, f.limit, f.per, clients))
		for i, inc := range f.current {
			s.say(fmt.Sprintf("gateway %d is process %d at %s", i+1, inc.process.pid(), f.url(inc)))
		}
		s.say(key)
	}
	t := newTally(f)
	m := &monitor{
		fleet: f, tally: t, begun: begun, length: o.duration, taken: []time.Time{begun},
		coming: plan(o.nodes, o.duration, rand.New(rand.NewPCG(o.seed, 0))),
	}
	traffic, end := context.WithDeadline(ctx, begun.Add(o.duration))
	defer end()
	var driven sync.WaitGroup
	driven.Go(func() { drive(traffic, f, t, o.rate, o.seed) })
	driven.Go(func() { t.pulse.beat(traffic) })

	err := m.watch(traffic, s)
	end()
	driven.Wait()
	f.stop()
	s.close()
	if err != nil {
		s.say("demo: " + err.Error())
		return exitBroken
	}
	v := judge(f, t)
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

// watch shows what happens, and makes happen what is planned, until ctx is done.
func (m *monitor) watch(ctx context.Context, s *screen) error {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for ticks := 1; ; ticks++ {
		due := (<-chan time.Time)(nil)
		if len(m.coming) > 0 {
			due = time.After(time.Until(m.begun.Add(m.coming[0].after)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			if err := m.fleet.do(m.coming[0]); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			m.coming = m.coming[1:]
			ticks--
		case now := <-tick.C:
			m.take(now)
			switch {
			case s.terminal:
				s.draw(m.frame(now))
			case ticks%averaged == 0:
				s.say(m.frame(now).short())
			}
		}
	}
}

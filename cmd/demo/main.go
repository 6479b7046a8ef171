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

	begun := time.Now()
	s := newScreen(out)
	defer s.close()
	if o.regions > 0 {
		return travel(ctx, o, s, complain)
	}
	announced := func(e event) {
		if !s.terminal || o.serve {
			s.say(e.line(begun).render(s.palette, 1000))
		}
	}
	per := window(o.duration)
	if o.serve {
		per = servedPer
	}
	f := newFleet(o, per, announced)
	defer f.stop()
	if err := f.open(ctx); err != nil {
		fmt.Fprintf(complain, "demo: %v\n", err)
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return exitBroken
	}
	if o.serve {
		return serve(ctx, o, f, s)
	}
	begun = time.Now()
	return run(ctx, o, f, s, begun)
}

// run sends the traffic, makes the faults happen and judges.
func run(ctx context.Context, o options, f *fleet, s *screen, begun time.Time) int {
	if !s.terminal {
		s.say(fmt.Sprintf("weir  %d gateways, one limit: each of %[4]d clients gets %[2]d in %[3]v, whichever it asks", o.nodes, f.limit, f.per, clients))
		for i, inc := range f.current[:f.nodes] {
			s.say(fmt.Sprintf("gateway %d is process %d at %s/", i+1, inc.process.PID(), f.url(inc)))
		}
		s.say(key)
	}
	first := f.current[0]
	s.say(fmt.Sprintf("try it:     curl -i -H '%s: alice' %s/v1/search", userHeader, f.url(first)))
	s.say(fmt.Sprintf("its admin:  curl -s -H 'Authorization: Bearer %s' %s/v1/stats", f.token, f.adminURL(first)))
	t := newTally(f)
	m := &monitor{
		fleet: f, tally: t, begun: begun, length: o.duration, taken: []time.Time{begun},
		coming: plan(o.nodes, o.duration, rand.New(rand.NewPCG(o.seed, 0))),
	}
	traffic, end := context.WithCancel(ctx)
	defer end()
	var driven sync.WaitGroup
	driven.Go(func() { drive(traffic, f, t, o.rate, o.seed) })
	t.lateness.Start(stillInterval, stillSlack)

	err := m.watch(traffic, s)
	end()
	driven.Wait()
	t.lateness.Stop()
	f.stop()
	s.close()
	v := judge(f, t)
	if err != nil {
		v.broken = append(v.broken, err.Error())
	}
	return conclude(ctx, s, &v)
}

// conclude prints the verdict on a run that was ended, by ctx or by itself, and
// returns the exit status.
func conclude(ctx context.Context, s *screen, v interface {
	print(io.Writer, palette)
	failures() []string
}) int {
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

// watch shows what happens, and makes happen what is planned, until that is done
// or ctx is.
func (m *monitor) watch(ctx context.Context, s *screen) error {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for ticks := 1; ; ticks++ {
		var now time.Time
		select {
		case <-ctx.Done():
			return nil
		case now = <-tick.C:
		}
		if done, err := m.act(now); done || err != nil {
			return err
		}
		if ticks%(int(redraw/stepInterval)) != 0 {
			continue
		}
		m.take(now)
		switch {
		case s.terminal:
			s.draw(m.frame(now))
		case ticks%int(time.Second/stepInterval) == 0:
			s.say(m.frame(now).short())
		}
	}
}

// act does the next step if it is time for it, and says whether all is done.
func (m *monitor) act(now time.Time) (done bool, err error) {
	next := step{after: m.length, calm: m.fleet.per}
	if len(m.coming) > 0 {
		next = m.coming[0]
	}
	if now.Sub(m.begun) < next.after {
		return false, nil
	}
	if may, err := m.fleet.may(next, now); !may || err != nil {
		return false, err
	}
	if len(m.coming) == 0 {
		return true, nil
	}
	m.coming = m.coming[1:]
	return false, m.fleet.do(next)
}

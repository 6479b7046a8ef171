// Demo starts a cluster of gateways as processes on this machine, sends real HTTP traffic
// through all of them, adds a gateway and removes it, restarts all gateways, changes their
// rules, kills a gateway, freezes another, and compares the answers that clients received
// with the promises of Weir. With -regions, it starts gateways in several regions that share
// limits, moves the traffic from one region to another, and cuts a region off.
//
// main.go contains a run from its start to its verdict. plan.go plans its steps, and
// regions.go those of a run with regions. monitor.go executes the steps, and fleet.go and
// steps.go apply them to the gateways. network.go contains the links between regions, and
// gateway.go the process of a gateway. Clients send requests in traffic.go; tally.go
// keeps the answers, and verdict.go, claims.go and windows.go judge them. view.go and
// screen.go show the run. With -serve, serve.go and panorama.go show a page instead of a
// verdict. With -soak, soak.go plays random faults instead of the plan.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

const (
	exitFine        = 0
	exitBroken      = 1 // a promise was broken, or the gateways did not start
	exitUsage       = 2
	exitInterrupted = 130
)

func init() {
	// On Linux, the kernel kills the gateways when the thread that started them ends. The main
	// thread, which lives as long as the process, must therefore start them (see launch).
	runtime.LockOSThread()
}

func main() {
	os.Exit(runCommand(os.Args[1:], os.Stdout, os.Stderr))
}

// runCommand runs the demo, or one of its gateways, and returns the exit status.
func runCommand(args []string, out *os.File, complain io.Writer) int {
	if os.Getenv(gatewayEnv) != "" {
		return runGateway()
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
	context.AfterFunc(ctx, restore) // the next signal ends the demo at once
	defer restore()

	s := newScreen(out)
	defer s.close()
	told := s
	if s.terminal && !o.serve {
		told = nil // the table shows the events
	}
	m := newMonitor(o, told)
	defer m.stop()
	switch err := m.open(ctx); {
	case err != nil:
		fmt.Fprintf(complain, "demo: %v\n", err)
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return exitBroken
	case o.serve:
		return serve(ctx, m, s)
	case o.soak > 0:
		k := newSoak(m)
		return play(ctx, m, s, k.run, k.judge)
	}
	return play(ctx, m, s, m.run, m.judge)
}

const (
	stepInterval = 10 * time.Millisecond
	// redraw is the interval at which the table is drawn on a terminal, and reprint the
	// interval at which it is printed elsewhere. The rates in the table are those of the
	// last second.
	redraw  = 250 * time.Millisecond
	reprint = 4 * time.Second
)

// play plays a run, prints its verdict, and returns the exit status. The argument of judge
// is the time that run returns: the end of the traffic in Unix nanoseconds, or 0 for a soak,
// whose judge does not need it.
func play(ctx context.Context, m *monitor, s *screen, run func(context.Context, *screen) (over int64, err error), judge func(over int64) *findings) int {
	now := time.Now()
	m.setBegin(now)
	if !s.terminal {
		v := m.view(now)
		for _, text := range append([]string{"weir  " + v.title}, v.legend...) {
			s.print(line{}.add(plain, text), 6)
		}
	}
	for _, text := range m.introduction() {
		s.say(text)
	}
	m.tally.delay.Start(stillInterval, stillSlack)
	over, err := run(ctx, s)
	m.tally.delay.Stop()
	m.stop()
	s.close()

	v := judge(over)
	if err != nil && ctx.Err() == nil {
		v.broken = append(v.broken, err.Error())
	}
	s.say("")
	if ctx.Err() != nil {
		s.say("Interrupted: this is the verdict so far. All gateways have ended.")
	}
	v.print(s.print)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case len(v.failures()) > 0:
		return exitBroken
	}
	return exitFine
}

// run executes the steps of the plan while the clients send requests, and shows the run.
func (m *monitor) run(ctx context.Context, s *screen) (over int64, err error) {
	_, _ = m.act(ctx, time.Now()) // before the first request
	defer m.startTraffic(ctx)()
	defer m.show(ctx, s)()
	for ended := false; !ended && err == nil && lab.Sleep(ctx, stepInterval); {
		ended, err = m.act(ctx, time.Now())
	}
	return time.Now().UnixNano(), err
}

// show draws the table on a terminal until the returned function is called. Elsewhere it prints the table,
// except in a soak.
func (m *monitor) show(ctx context.Context, s *screen) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		for pause := redraw; (s.terminal || !m.isSoak()) && lab.Sleep(ctx, pause); {
			v := m.view(time.Now())
			if s.terminal {
				s.draw(v.lines)
				continue
			}
			for _, l := range slices.Concat(v.table(plainWidth), v.below, []line{v.standing.line()}) {
				s.say(l.render(false, plainWidth))
			}
			pause = reprint
		}
	})
	return func() {
		cancel()
		showing.Wait()
	}
}

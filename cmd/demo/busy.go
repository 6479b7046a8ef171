package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// Of the load under which no gateway leaves the machine idle time.
const (
	// busyFor is how long it lasts, in a run of usual length.
	busyFor = 3 * time.Second
	// busyWork is what a goroutine works before it yields, and busyPerCore how many
	// goroutines each gateway has for each core.
	busyWork    = 200 * time.Microsecond
	busyPerCore = 8
)

// What the load has to show.
const (
	leastByAuthority = 90 // of a hundred checks
	exactWithin      = time.Second
	exactInARow      = 100 // checks by authority, after which all is exact again
	// mostByOthers is how much of the machine, in parts of a hundred, programs that are
	// not the demo's may have meanwhile, unless more than spare of it was idle. With more
	// the load is not the one that leastByAuthority is about: gateways wait for cores
	// longer than a check may take. On 2 cores, in runs of 8 s with GOMAXPROCS 4, authority
	// decides 97 to 100% beside 2 to 8 busy loops, which have 16 to 39%. It decides 94%
	// beside 12 with 46%, and 86 and 92% beside 16 with more than half.
	mostByOthers = 40
	spare        = 10
)

// busyTime is how long gateways are busy in a run of this length.
func busyTime(duration time.Duration) time.Duration {
	return min(busyFor, (duration / 12).Truncate(10*time.Millisecond))
}

// work is a gateway's part: it is busy until a moment, or until ctx is done. It returns the
// processor time that it took, which is never 0.
func work(ctx context.Context, until int64) time.Duration {
	before := lab.CPU()
	var wait sync.WaitGroup
	for range busyPerCore * runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for time.Now().UnixNano() < until && ctx.Err() == nil {
				for begun := time.Now(); time.Since(begun) < busyWork; {
				}
				runtime.Gosched()
			}
		})
	}
	wait.Wait()
	return max(1, lab.CPU()-before)
}

// load is the time in which all gateways were busy.
type load struct {
	span          // until all of them have told that they are not
	over    int64 // when it was to end, in Unix nanoseconds
	running int   // gateways that have not told
	lost    int   // times that a gateway took another one for gone then, or later

	used, idle, own time.Duration // processor time of the machine at its start, and then of the demo in it
	others          int           // of a hundred parts of the machine, what other programs had
}

// holds reports whether gateways were busy at some moment of a span.
func (l *load) holds(s span) bool { return l != nil && near([]span{l.span}, s) }

// strain makes all gateways busy for a time.
func (f *fleet) strain(last time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	l := &load{span: lab.Between(now.UnixNano(), never), over: now.Add(last).UnixNano(), own: -lab.CPU()}
	l.used, l.idle, _ = lab.MachineCPU()
	f.load = l
	f.say("busy", "for %v each gateway has %d goroutines for each core, which work %v and yield", last, busyPerCore, busyWork)
	for _, inc := range f.current {
		if !inc.is(up) {
			continue
		}
		if err := inc.process.Order(order{Busy: l.over}); err != nil {
			return err
		}
		l.running++
	}
	return nil
}

// rested takes in that a gateway is busy no more, and what processor time that took. f.mu is
// held.
func (f *fleet) rested(worked time.Duration, at int64) {
	l := f.load
	l.own += worked
	if l.running--; l.running > 0 {
		return
	}
	if used, idle, known := lab.MachineCPU(); known {
		l.others = others(used-l.used, idle-l.idle, l.own+lab.CPU())
	}
	l.To, f.unproven, f.shown = at, false, "no gateway is busy any more"
	f.happened[len(f.happened)-1].from = l.over
}

// others returns which part of a hundred of the machine other programs had while none of it was
// to spare, and 0 if some was.
func others(used, idle, own time.Duration) int {
	all := used + idle
	if all <= 0 || 100*idle > spare*all {
		return 0
	}
	return int(100 * max(0, used-own) / all)
}

// lose notes members that a gateway takes for gone though they are up, from when all
// are busy on. f.mu is held.
func (f *fleet) lose(before, now *report) {
	for _, inc := range f.current {
		if f.load != nil && inc.is(up, joining) && before.hears(inc.report.Name) && !now.hears(inc.report.Name) {
			f.load.lost++
		}
	}
}

// exact returns for how long after the load not all checks were decided by authority, as these
// answers show, which are in the order in which they came; false if there are none.
func (l *load) exact(answers []answer) (after span, seen bool) {
	after, row := lab.Between(l.over, l.over), 0
	for _, a := range answers {
		switch {
		case a.err != nil || a.check.From < l.over:
			continue
		case elsewhereAt(a.at):
			after.To, row = max(after.To, a.check.To), 0
		default:
			row++
		}
		if seen = true; row == exactInARow {
			break
		}
	}
	return after, seen
}

// judge adds the claims on busy gateways: what their clients saw meanwhile, and for how long
// checks were not exact afterwards, but for the time that the machine or gateways stood still.
func (l *load) judge(v *findings, t *tally, still []span) {
	meanwhile := sum(t.answers, func(a *answer) bool { return a.busy })
	part := func(n int) int { return 100 * n / max(1, meanwhile.answered()) }
	authority := part(meanwhile.answered() - meanwhile.at[stoodIn] - meanwhile.at[budget])
	least, crowded := fmt.Sprintf("at least %d%%", leastByAuthority), l.others > mostByOthers
	if l.others > 0 {
		least += fmt.Sprintf(", though other programs have %d%% of the machine", l.others)
	}
	if crowded {
		least = fmt.Sprintf("of which nothing is promised while other programs have %d%% of the machine", l.others)
	}
	v.add(crowded || meanwhile.answered() == 0 || authority >= leastByAuthority, "busy", fmt.Sprintf("%d%%", authority),
		"of %s checks while gateways left the machine no idle time were decided by authority, %s; %d%% by a copy, %d%% by a share",
		number(meanwhile.answered()), least, part(meanwhile.at[stoodIn]), part(meanwhile.at[budget]))
	v.add(true, "p99, busy", short(meanwhile.took.Quantile(0.99)), "of these requests over HTTP; of the checks in them %s", short(meanwhile.checks.Quantile(0.99)))
	v.add(l.lost == 0, "gone", number(l.lost), "times that a gateway took another for gone, though all were there")
	if after, seen := l.exact(t.answers); seen {
		delay, exact := after.Length()-stood(t.lateness, after, still), "at once"
		if delay > 0 {
			exact = short(delay)
		}
		v.add(delay <= exactWithin, "exact", exact, "after the load until authority decided %d checks in a row, in %v at most", exactInARow, exactWithin)
	}
}

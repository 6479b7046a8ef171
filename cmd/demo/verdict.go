package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// verdict is how a run went, judged by what the clients saw.
type verdict struct {
	limit    int64
	per      time.Duration
	requests int // answered
	allowed  int
	missed   int
	errors   int
	problem  error // the first
	cut      int
	stalls   int
	still    time.Duration // the longest that the machine stood still
	took     latencies     // of requests to gateways that were up
	checks   latencies     // of the checks in them

	// The most that one client got in a window: in one that holds nothing of a
	// fault, nor a share that was spent though the owner was up; in one that
	// holds one of these; and in one in which keys changed owners and shares
	// were spent besides, which is two faults at once.
	healthy, faulty, doubly int
	timedOut                int      // checks decided by a share though the owner was up and no fault was near
	outage                  int      // the other checks decided by a share
	broken                  []string // promises of the fleet, in words
}

// judge looks at everything once the traffic has ended.
func judge(f *fleet, t *tally) verdict {
	faults, moves := f.faults()
	t.mu.Lock()
	defer t.mu.Unlock()
	v := verdict{
		limit: f.limit, per: f.per,
		requests: t.total.allowed + t.total.denied, allowed: t.total.allowed, missed: t.missed,
		errors: t.errors, problem: t.problem, cut: t.cut, stalls: t.stalls(), still: t.pulse.longest(),
		took: t.total.took, checks: t.checks,
	}
	var shares [clients][]span // spent though the owner was up
	for _, s := range t.shares {
		down := f.ownerWasDown(s.owner, s.check.from, s.check.to)
		if down || near(faults, s.check) {
			v.outage++
		} else {
			v.timedOut++
		}
		if !down && s.allowed {
			shares[s.client] = append(shares[s.client], s.check)
		}
	}
	for client, admitted := range t.admitted {
		v.healthy = max(v.healthy, healthy(admitted, append(slices.Clone(faults), shares[client]...), f.per))
		v.faulty = max(v.faulty, healthy(admitted, moves, f.per), healthy(admitted, shares[client], f.per))
		v.doubly = max(v.doubly, busiest(admitted, f.per))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, inc := range f.current {
		if inc.condition == starting {
			f.breaks("gateway %d did not start in time", i+1)
		}
	}
	v.broken = f.broken
	return v
}

const (
	// mostTimedOut is how many of a hundred checks may be answered by a share
	// though the owner was up. A busy machine has some; with more, the run shows
	// an outage.
	mostTimedOut = 10
	// enoughToJudge is how many requests show whether the fleet was healthy.
	enoughToJudge = 1000
)

func near(faults []span, s span) bool {
	for _, f := range faults {
		if s.from <= f.to && s.to >= f.from {
			return true
		}
	}
	return false
}

// failures is the promises that were broken, in words.
func (v *verdict) failures() []string {
	var broken []string
	fails := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if v.requests == 0 {
		fails("no request was answered at all")
	}
	if v.errors > 0 {
		fails("%s: clients of gateways that were up saw errors, the first: %v", number(v.errors), v.problem)
	}
	if v.stalls > 0 {
		fails("%s requests to gateways that were up took longer than %v", number(v.stalls), stallBound)
	}
	// Without these the others could hold because nothing was there to judge.
	if v.requests >= enoughToJudge && v.healthy == 0 {
		fails("no client got anything in a window without a fault: nothing was seen of health")
	}
	if checks := v.requests; checks >= enoughToJudge && v.timedOut*100 > checks*mostTimedOut {
		fails("%s of %s checks were answered by shares though the owner was up, more than %d%%", number(v.timedOut), number(checks), mostTimedOut)
	}
	if most := int(v.limit); v.healthy > most {
		fails("a client got %d in %v while all was well: its limit is %d", v.healthy, v.per, most)
	}
	if most := 2 * int(v.limit); v.faulty > most {
		fails("a client got %d in %v around a fault: twice its limit is %d", v.faulty, v.per, most)
	}
	if most := 3 * int(v.limit); v.doubly > most {
		fails("a client got %d in %v around two faults: three times its limit is %d", v.doubly, v.per, most)
	}
	return append(broken, v.broken...)
}

// print writes the verdict for people.
func (v *verdict) print(w io.Writer, p palette) {
	row := func(good bool, name, value, format string, args ...any) {
		mark := p.paint(green, "✓")
		if !good {
			mark = p.paint(red, "✗")
		}
		fmt.Fprintf(w, "  %s %-9s %9s  %s\n", mark, name, p.paint(bold, fmt.Sprintf("%9s", value)), p.paint(dim, fmt.Sprintf(format, args...)))
	}
	share := 0
	if v.requests > 0 {
		share = 100 * v.allowed / v.requests
	}
	row(v.requests > 0, "requests", number(v.requests), "%d%% allowed, %d%% denied", share, 100-share)
	row(v.errors == 0, "errors", number(v.errors), "from gateways that were up; %d more requests were under way at one that was killed or frozen", v.cut)
	row(v.stalls == 0, "stalls", number(v.stalls), "longer than %v: Timeout and slack for scheduling; the slowest took %s", stallBound, short(v.took.most))
	row(true, "p50", short(v.took.quantile(0.5)), "of requests over HTTP; of the checks in them %s", short(v.checks.quantile(0.5)))
	row(true, "p99", short(v.took.quantile(0.99)), "of requests over HTTP; of the checks in them %s", short(v.checks.quantile(0.99)))
	row(v.healthy <= int(v.limit), "most", strconv.Itoa(v.healthy), "that a client got in any %v without a fault, of %d", v.per, v.limit)
	faulty := v.faulty
	if v.doubly <= 2*int(v.limit) {
		faulty = v.doubly
	}
	row(faulty <= 2*int(v.limit), "", strconv.Itoa(faulty), "that a client got in any %v around a fault, of %d", v.per, 2*v.limit)
	if faulty != v.doubly {
		row(v.doubly <= 3*int(v.limit), "", strconv.Itoa(v.doubly), "around two: keys changed owners, and one that was up was not reached; of %d", 3*v.limit)
	}
	row(true, "shares", number(v.outage), "checks answered by a gateway's own share of the limit, around a fault")
	row(v.timedOut*100 <= v.requests*mostTimedOut, "timeouts", number(v.timedOut), "checks so answered though the owner was up: the windows that hold them are faulty, too")
	if v.missed > 0 || v.still > 0 {
		fmt.Fprintf(w, "    %s\n", p.paint(dim, fmt.Sprintf("This machine is busy: it stood still for up to %s, and %s requests were not sent in time.", short(v.still), number(v.missed))))
	}
	fmt.Fprintln(w)
	failures := v.failures()
	for _, failure := range failures {
		fmt.Fprintf(w, "  %s %s\n", p.paint(red, "broken:"), failure)
	}
	if len(failures) == 0 {
		fmt.Fprintf(w, "  %s\n", p.paint(green, "Every promise held."))
	}
}

// number writes n with its thousands apart.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short is a duration in at most three digits.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

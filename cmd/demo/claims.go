package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// What a run with regions has to show.
const (
	leastUsed   = 97 // of a hundred units of the limit, while all regions ask
	leastMoved  = 90 // of a hundred, in the region that demand has moved to
	smallWithin = 500 * time.Millisecond
	// noWait is less than it takes to another region and back.
	noWait = oneWay - jitter
	// settling is what regions take to reach each other again after a heal, with
	// some seconds between attempts to connect.
	settling = 3 * time.Second
)

// withCut takes the place of deploys where windows are judged: of those that hold a
// moment of a cut.
const withCut = deployed

// claim is one line of the verdict on a run with regions.
type claim struct {
	name, value, means string
	broken             string // in words; empty if it held
}

// findings is how a run with regions went.
type findings struct {
	claims []claim
	missed int
	still  time.Duration
	broken []string // promises of the gateways, in words
}

// judge looks at everything once the traffic has ended, at a time in Unix
// nanoseconds. done are the phases that began.
func (p *planet) judge(l *ledger, done []phase, over int64) *findings {
	p.mu.Lock()
	began := append(slices.Clone(p.began), over)
	p.mu.Unlock()
	broken := p.broken()
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &findings{missed: l.missed, still: l.pulse.longest(), broken: broken}
	claim := func(holds bool, name, value, format string, args ...any) {
		c := claim{name: name, value: value, means: fmt.Sprintf(format, args...)}
		if !holds {
			c.broken = fmt.Sprintf("%s: %s, %s", name, value, c.means)
		}
		f.claims = append(f.claims, c)
	}
	claim(l.counted > 0, "requests", number(l.counted), "in all regions, with two scopes of limits")
	what := "of gateways that were up all the time"
	if l.problem != nil {
		what += ": " + l.problem.Error()
	}
	claim(l.errors == 0, "errors", number(l.errors), "%s", what)
	stalls := l.pulse.stalls(l.slow, planetStall)
	claim(stalls == 0, "stalls", number(stalls), "longer than %v: Timeout and slack for scheduling; the slowest took %s", planetStall, short(l.took.most))
	claim(100*l.others <= l.counted, "timeouts", number(l.others), "checks not answered by their owner in the region, though it was up; at most 1%%")
	waits := func(name string, checks *latencies, when string) {
		if checks.total > 0 {
			p99 := checks.quantile(0.99)
			claim(p99 < noWait, name, short(p99), "of checks %s: none waits for another region, which is %v away and as much back; p50 %s", when, oneWay, short(checks.quantile(0.5)))
		}
	}
	waits("p99", &l.calm, "while regions reach each other")
	waits("p99, cut", &l.severed, "while one is cut off")

	used := func(from, to int64, of ...int) int { // percent of all customers' limits
		granted, windows := 0, (to-from)/int64(p.per)
		for region := range l.global {
			if len(of) > 0 && !slices.Contains(of, region) {
				continue
			}
			for _, as := range l.global[region] {
				for _, a := range as {
					if a.to >= from && a.to < to {
						granted++
					}
				}
			}
		}
		return int(int64(granted) * 100 / max(1, windows*customers*p.limit))
	}
	whole := func(from, to int64) int64 { return from + (to-from)/int64(p.per)*int64(p.per) }
	uses := func(name string, from, to int64, format string, args ...any) {
		if to = whole(from, to); to > from {
			n := used(from, to)
			claim(n >= leastUsed, name, fmt.Sprintf("%d%%", n), "%s: at least %d%%", fmt.Sprintf(format, args...), leastUsed)
		}
	}
	var cut span
	for i, ph := range done {
		from, to := began[i], began[i+1]
		switch {
		case ph.cut:
			cut = span{from, to}
			uses("returned", from+int64(returned+p.per), to, "of the limit granted in a cut, once what %s was lent has come to its end, %v and a window after the cut", p.regions[thenBusy], returned)
		case ph.moved >= 0:
			if end := from + 2*int64(p.per); end <= to {
				n := used(from+int64(p.per), end, ph.moved)
				claim(n >= leastMoved, "moved", fmt.Sprintf("%d%%", n), "of the limit granted in %s, in the window that begins %v after all demand has moved there: at least %d%%", p.regions[ph.moved], p.per, leastMoved)
			}
		case i == 0:
			uses("used", from+int64(p.per), to, "of the limit granted while all regions ask")
		default:
			uses("healed", from+int64(settling), to, "of the limit granted while all regions ask, %v after the heal", settling)
		}
	}
	if s := l.small; s.over {
		claim(s.got == smallRate && s.more == 0 && s.took <= smallWithin, "small", short(s.took), "until a user in one region had all %d of %d a minute, asked for at once: at most %v; it got %d, and %d more in all regions", smallRate, smallRate, smallWithin, s.got, s.more)
	}

	p.windows(l, cut, claim)
	return f
}

// windows judges what was admitted in each window. l.mu is held.
func (p *planet) windows(l *ledger, cut span, claim func(holds bool, name, value, format string, args ...any)) {
	var global [guarantees]closest
	var local closest
	for customer := range customers {
		var all []admission
		var o occasions
		if cut != (span{}) {
			o[withCut] = []span{cut}
		}
		for region := range l.global {
			all = append(all, l.global[region][customer]...)
			o[timedOut] = append(o[timedOut], l.guessed[region][customer]...)
			regional := audit(l.local[region][customer], &occasions{timedOut: l.guessed[region][customer]}, p.per)
			local.add(healthy, regional[healthy], promise{limit: localRate(p.limit)})
		}
		for g, found := range audit(all, &o, p.per) {
			global[g].add(guarantee(g), found, promise{limit: p.limit})
		}
	}
	for _, row := range []struct {
		g           guarantee
		name, means string
	}{
		{healthy, "global", "without a cut: the limit"},
		{withCut, "cut", "that hold a moment of the cut: the limit"},
		{timedOut, "timeout", "in which a check timed out in its region: 2L"},
	} {
		if c := global[row.g]; c.windows > 0 {
			most := c.promise.most(row.g)
			claim(c.most <= most, row.name, fmt.Sprintf("%d of %d", c.most, most), "the most that a customer got in all regions together, in %s windows %s", number(c.windows), row.means)
		}
	}
	if local.windows > 0 {
		claim(local.most <= local.promise.most(healthy), "regional", fmt.Sprintf("%d of %d", local.most, local.promise.most(healthy)), "the most that one got in a region by a Regional limit, in %s windows; with all of them, %d are allowed", number(local.windows), len(p.regions)*local.promise.most(healthy))
	}
}

// failures is the claims that do not hold, in words.
func (f *findings) failures() []string {
	var broken []string
	for _, c := range f.claims {
		if c.broken != "" {
			broken = append(broken, c.broken)
		}
	}
	return append(broken, f.broken...)
}

// print writes the verdict for people.
func (f *findings) print(w io.Writer, p palette) {
	for _, c := range f.claims {
		mark := p.paint(green, "✓")
		if c.broken != "" {
			mark = p.paint(red, "✗")
		}
		fmt.Fprintf(w, "  %s %-9s %s  %s\n", mark, c.name, p.paint(bold, right(c.value, 10)), p.paint(dim, c.means))
	}
	if f.missed > 0 || f.still > 0 {
		fmt.Fprintf(w, "    %s\n", p.paint(dim, fmt.Sprintf("This machine is busy: it stood still for up to %s, and %s requests were not sent in time.", short(max(f.still, pulseSlack)), number(f.missed))))
	}
	fmt.Fprintln(w)
	failures := f.failures()
	for _, failure := range failures {
		fmt.Fprintf(w, "  %s %s\n", p.paint(red, "broken:"), strings.TrimSpace(failure))
	}
	if len(failures) == 0 {
		fmt.Fprintf(w, "  %s\n", p.paint(green, "Every promise held."))
	}
}

package main

import (
	"fmt"
	"slices"
	"time"
)

// What a run with regions has to show.
const (
	leastUsed   = 97 // of a hundred units of the limit, while all regions ask
	leastMoved  = 90 // of a hundred, in the region that demand has moved to
	smallWithin = 500 * time.Millisecond
	// mostLate is which part of the checks of the Global limit may take as long as to
	// another region and back, above those of the Regional limit that do.
	mostLate = 0.01
	// there is the least that it takes to another region and back.
	there = 2 * (oneWay - jitter)
	// settling is what regions take to reach each other again after a heal, with
	// some seconds between attempts to connect.
	settling = 2 * time.Second
)

// withCut takes the place of deploys where windows are judged: of those that hold a
// moment of a cut.
const withCut = deployed

// judge looks at everything once the traffic has ended, at a time in Unix
// nanoseconds. done are the phases that began.
func (p *planet) judge(l *ledger, done []phase, over int64) *findings {
	p.mu.Lock()
	began := append(slices.Clone(p.began), over)
	p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &findings{width: 10, missed: l.missed, still: l.lateness.Longest(), broken: p.broken()}
	f.add(l.counted > 0, "requests", number(l.counted), "in all regions, with two scopes of limits")
	what := "of gateways that were up all the time"
	if l.problem != nil {
		what += ": " + l.problem.Error()
	}
	f.add(l.errors == 0, "errors", number(l.errors), "%s", what)
	f.add(l.stalls() == 0, "stalls", number(l.stalls()), "longer than %v: Timeout and slack for scheduling; the slowest took %s", planetStall, short(l.took.Most))
	var still [][]span // by region
	for _, fleet := range p.fleets {
		still = append(still, fleet.gatewaysStill())
	}
	others := 0
	for _, g := range l.others {
		if g.region >= len(still) || len(within(g.check, still[g.region])) == 0 {
			others++
		}
	}
	f.add(100*others <= mostTimedOut*l.counted, "timeouts", number(others), "checks not answered by their owner in the region, though it was up and had a core; at most %d%%", mostTimedOut)
	for _, c := range []struct {
		name, when string
		checks     *checks
	}{{"p99", "while regions reach each other", &l.calm}, {"p99, cut", "while one is cut off", &l.severed}} {
		if of := &c.checks.global; of.took.Total > 0 {
			holds := of.late(&l.lateness) <= mostLate+c.checks.regional.late(&l.lateness)
			f.add(holds, c.name, short(of.took.Quantile(0.99)), "of checks of the Global limit %s: none waits for another region, %v away there and back at least; p50 %s; of the Regional limit's, which never do, %s",
				c.when, there, short(of.took.Quantile(0.5)), short(c.checks.regional.took.Quantile(0.99)))
		}
	}

	alone := p.alone(l)
	part := func(name string, least float64, from, to int64, of []int, format string, args ...any) {
		granted := make([][]int64, customers)
		for customer := range customers {
			for region := range l.global {
				if len(of) > 0 && !slices.Contains(of, region) {
					continue
				}
				for _, a := range l.global[region][customer] {
					granted[customer] = append(granted[customer], a.to)
				}
			}
			slices.Sort(granted[customer])
		}
		whole := float64(int64(customers) * p.limit)
		got, windows := mean(granted, from, to, p.per)
		if windows == 0 {
			return // there was no time to see it
		}
		could, _ := mean(alone[:], from, to, p.per)
		f.add(100*got >= least*could, name, fmt.Sprintf("%.1f%%", 100*got/whole), "of the limit granted %s; one limiter for all would have granted %.1f%%, and %v%% of that is promised", fmt.Sprintf(format, args...), 100*could/whole, least)
	}
	var cut span
	for i, ph := range done {
		from, to := began[i], began[i+1]
		switch {
		case ph.cut:
			cut = span{from, to}
			part("returned", leastMoved, from+int64(returned+p.per), to, nil, "%v after the cut, once what %s was lent has come back", returned+p.per, p.regions[thenBusy])
		case ph.moved >= 0:
			part("moved", leastMoved, from+int64(p.per), to, []int{ph.moved}, "in %s, from %v after all demand has moved there", p.regions[ph.moved], p.per)
		case i == 0:
			part("used", leastUsed, from+int64(p.per), to, nil, "while all regions ask")
		default:
			part("healed", leastMoved, from+int64(settling), to, nil, "while all regions ask, %v after the heal", settling)
		}
	}
	if s := l.small; s.over {
		f.add(s.got == smallRate && s.more == 0 && s.took <= smallWithin, "small", short(s.took), "until a user in one region had all of %d a minute, asked for at once: at most %v; it got %d, and then %d in all regions", smallRate, smallWithin, s.got, s.more)
	}

	p.windows(l, cut, f)
	return f
}

// alone is when each customer would have been granted a request by one limiter that
// counts for all regions and answers at once. l.mu is held.
func (p *planet) alone(l *ledger) (granted [customers][]int64) {
	for customer := range customers {
		asks := slices.Sorted(slices.Values(l.asks[customer]))
		log := granted[customer]
		for _, at := range asks {
			if n := len(log); n < int(p.limit) || at-log[n-int(p.limit)] >= int64(p.per) {
				log = append(log, at)
			}
		}
		granted[customer] = log
	}
	return granted
}

// mean is how many of all these moments, each list ascending, a window of per holds
// on average that lies between two, and how many windows it looked at.
func mean(all [][]int64, from, to int64, per time.Duration) (held float64, windows int) {
	for begin := from; begin+int64(per) <= to; begin += int64(windowStep) {
		for _, moments := range all {
			first, _ := slices.BinarySearch(moments, begin)
			end, _ := slices.BinarySearch(moments, begin+int64(per))
			held += float64(end - first)
		}
		windows++
	}
	return held / float64(max(1, windows)), windows
}

// windowStep is how far two of these windows are apart.
const windowStep = 10 * time.Millisecond

// windows judges what was admitted in each window. l.mu is held.
func (p *planet) windows(l *ledger, cut span, f *findings) {
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
			regional := fullest(l.local[region][customer], &occasions{timedOut: l.guessed[region][customer]}, 0, p.per)
			local.add(healthy, regional[healthy], localRate(p.limit))
		}
		for g, found := range fullest(all, &o, 0, p.per) {
			global[g].add(guarantee(g), found, p.limit)
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
			f.add(c.most <= most, row.name, fmt.Sprintf("%d of %d", c.most, most), "the most that a customer got in all regions, in %s windows %s", number(c.windows), row.means)
		}
	}
	if local.windows > 0 {
		f.add(local.most <= local.promise.most(healthy), "regional", fmt.Sprintf("%d of %d", local.most, local.promise.most(healthy)), "the most that one got in a region by a Regional limit, in %s windows", number(local.windows))
	}
}

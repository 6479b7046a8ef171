package main

import (
	"cmp"
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

// judge implements run.
func (p *planet) judge(over int64) *findings {
	f := &findings{width: 10, heading: "The most that a customer got, of what it is promised at most:", still: p.lateness.Longest(), broken: p.broken()}
	answers, others := p.answers(), 0
	requests, errors, stalled := f.clients(p.tallies...)
	var cut span
	for i, ph := range p.done {
		if ph.cut {
			cut = span{ph.began, p.ended(i, over)}
		}
	}
	for i, t := range p.tallies {
		still := p.fleets[i].gatewaysStill()
		for _, a := range t.answers {
			if a.err == nil && elsewhereAt(a.at) && len(within(a.check, still)) == 0 {
				others++
			}
		}
	}
	f.add(100*others <= mostTimedOut*requests, "timeouts", number(others), "checks not answered by their owner in the region, though it was up and had a core; at most %d%%", mostTimedOut)
	for _, c := range []struct {
		name, when string
		cut        bool
	}{{"p99", "while regions reach each other", false}, {"p99, cut", "while one is cut off", true}} {
		checks := func(regional bool) (of *sums, late float64) {
			is := func(a *answer) bool { return (a.path == localPath) == regional && near([]span{cut}, a.check) == c.cut }
			of = sum(answers, is)
			for _, t := range p.tallies {
				var slows []slow
				for _, a := range t.answers {
					if a.err == nil && is(&a) && a.check.length() >= there {
						slows = append(slows, slow{a.check, a.check.length(), a.to})
					}
				}
				late += float64(t.stalls(slows, there)) / float64(max(of.answered(), 1))
			}
			return of, late
		}
		global, late := checks(false)
		regional, lateThere := checks(true)
		if global.answered() > 0 {
			f.add(late <= mostLate+lateThere, c.name, short(global.checks.Quantile(0.99)), "of checks of the Global limit %s: none waits for another region, %v away there and back at least; p50 %s; of the Regional limit's, which never do, %s",
				c.when, there, short(global.checks.Quantile(0.5)), short(regional.checks.Quantile(0.99)))
		}
	}

	alone := p.alone(answers)
	part := func(name string, least float64, from, to int64, of []int, format string, args ...any) {
		granted := make([][]int64, customers)
		for region, t := range p.tallies {
			for customer, as := range t.admissions("/") {
				for _, a := range as {
					if of == nil || slices.Contains(of, region) {
						granted[customer] = append(granted[customer], a.to)
					}
				}
			}
		}
		for _, moments := range granted {
			slices.Sort(moments)
		}
		whole := float64(int64(customers) * p.limit)
		got, windows := mean(granted, from, to, p.per)
		if windows == 0 {
			return // there was no time to see it
		}
		could, _ := mean(alone[:], from, to, p.per)
		f.add(100*got >= least*could, name, fmt.Sprintf("%.1f%%", 100*got/whole), "of the limit granted %s; one limiter for all would have granted %.1f%%, and %v%% of that is promised", fmt.Sprintf(format, args...), 100*could/whole, least)
	}
	for i, ph := range p.done {
		from, to := ph.began, p.ended(i, over)
		switch {
		case ph.cut:
			part("returned", leastMoved, from+int64(returned+p.per), to, nil, "%v after the cut, once what %s was lent has come back", returned+p.per, p.regions[thenBusy])
		case ph.moved >= 0:
			part("moved", leastMoved, from+int64(p.per), to, []int{ph.moved}, "in %s, from %v after all demand has moved there", p.regions[ph.moved], p.per)
		case i == 0:
			part("used", leastUsed, from+int64(p.per), to, nil, "while all regions ask")
		default:
			part("healed", leastMoved, from+int64(settling), to, nil, "while all regions ask, %v after the heal", settling)
		}
	}
	if s := p.small; s.over {
		f.add(s.got == smallRate && s.more == 0 && s.took <= smallWithin, "small", short(s.took), "until a user in one region had all of %d a minute, asked for at once: at most %v; it got %d, and then %d in all regions", smallRate, smallWithin, s.got, s.more)
	}
	found := p.windows(cut, f)
	f.sentences = []string{
		fmt.Sprintf("%d regions of %d gateways answered %s requests while %s; %d failed and %d stalled.", len(p.regions), p.fleets[0].nodes, number(requests), cmp.Or(map[bool]string{true: "demand moved and one region was cut off"}[cut != span{}], "demand moved"), errors, stalled),
		fmt.Sprintf("All regions together granted a customer %d in %v at most, and its limit is %d.", found.most, p.per, p.limit),
	}
	return f
}

// answers is those of all regions.
func (p *planet) answers() (all []answer) {
	for _, t := range p.tallies {
		all = append(all, t.answers...)
	}
	return all
}

// ended is when a phase that began had ended.
func (p *planet) ended(i int, over int64) int64 {
	if i+1 < len(p.done) {
		return p.done[i+1].began
	}
	return over
}

// alone is when each customer would have been granted a request by one limiter that
// counts for all regions and answers at once.
func (p *planet) alone(answers []answer) (granted [customers][]int64) {
	var asks [customers][]int64
	for _, a := range answers {
		if a.err == nil && a.path == "/" {
			asks[a.client] = append(asks[a.client], a.check.to)
		}
	}
	for customer, log := range granted {
		slices.Sort(asks[customer])
		for _, at := range asks[customer] {
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

// windows judges what was admitted in each window, and returns the one over all regions that
// held the most of those that have the limit.
func (p *planet) windows(cut span, f *findings) (fullestOf closest) {
	var global [guarantees]closest
	var local closest
	for customer := range customers {
		var all []admission
		var o occasions
		if cut != (span{}) {
			o[withCut] = []span{cut}
		}
		for _, t := range p.tallies {
			var guessed []span // admitted without the owner
			for _, a := range t.answers {
				if a.client == customer && a.allowed && elsewhereAt(a.at) && a.path != smallPath {
					guessed = append(guessed, a.check)
				}
			}
			all, o[timedOut] = append(all, t.admissions("/")[customer]...), append(o[timedOut], guessed...)
			regional := fullest(t.admissions(localPath)[customer], &occasions{timedOut: guessed}, 0, p.per)
			local.add(healthy, regional[healthy], localRate(p.limit))
		}
		for g, found := range fullest(all, &o, 0, p.per) {
			global[g].add(guarantee(g), found, p.limit)
		}
	}
	f.window("global", global[healthy], healthy, p.per, "over all regions without a cut: the limit")
	f.window("cut", global[withCut], withCut, p.per, "over all regions that hold a moment of the cut: the limit")
	f.window("timeout", global[timedOut], timedOut, p.per, "over all regions in which a check timed out in its region: 2L")
	f.window("regional", local, healthy, p.per, "of one region by a Regional limit")
	if global[withCut].most > global[healthy].most {
		return global[withCut]
	}
	return global[healthy]
}

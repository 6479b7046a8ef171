package main

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

const (
	leastUsed  = 97 // minimum percentage of the units that are used while all regions send requests
	leastMoved = 90 // minimum percentage of the units that are used in the region to which demand has moved
	// mostLate is the fraction of the checks of the Global limit that may take longer than
	// a round trip to another region. The fraction of the checks of the Regional limit that
	// take so long is added.
	mostLate = 0.01
	// minRoundTrip is the minimum round trip to another region.
	minRoundTrip = 2 * oneWay
	// settling is the time that regions need to reach each other again after a heal. They
	// pause between attempts to connect.
	settling = 2 * time.Second
)

// withCut is the guarantee that judges the windows with a moment of a cut. It has the number of
// deployed, because a run with regions has no deploys.
const withCut = deployed

func (m *monitor) judgeRegions(over int64) *findings {
	f, t := m.newFindings(10, "The most that a customer received, and its bound:"), m.tally
	all := f.clients(t, sum(t.answers, func(*answer) bool { return true }))
	ended := func(i int) int64 { // the time of the next step
		if i+1 < len(m.happened) {
			return m.happened[i+1].from
		}
		return over
	}
	var cut []span
	for i, h := range m.happened {
		if h.kind == sever {
			cut = []span{lab.Between(h.from, ended(i))}
		}
	}
	var still [][]span
	for region := range m.regions {
		still = append(still, m.gatewaysStill(region))
	}
	others := 0
	for _, a := range t.answers {
		if a.err == nil && elsewhereAt(a.at) && len(partsWithin(a.check, still[m.region(a.to.gateway)])) == 0 {
			others++
		}
	}
	f.add(100*others <= mostTimedOut*all.requests, "timeouts", number(others), "checks not decided by their owner in the region, although it was up and not delayed by the machine; at most %d%%", mostTimedOut)
	m.judgeWaits(f, "p99", "while regions reach each other", func(a *answer) bool { return !near(cut, a.check) })
	m.judgeWaits(f, "p99, cut", "while one is cut off", func(a *answer) bool { return near(cut, a.check) })
	for i, h := range m.happened {
		from, to := h.from, ended(i)
		switch {
		case h.kind == sever:
			m.judgeUse(f, "returned", leastMoved, lab.Between(from+int64(returned+m.per), to), fmt.Sprintf("%v after the cut, once the units lent to %s have come back", returned+m.per, m.regions[thenBusy]))
		case h.kind == rejoin:
			m.judgeUse(f, "healed", leastMoved, lab.Between(from+int64(settling), to), fmt.Sprintf("while demand is in all regions, %v after the heal", settling))
		case i == 0:
			m.judgeUse(f, "used", leastUsed, lab.Between(from+int64(m.per), to), "while demand is in all regions")
		default:
			m.judgeUse(f, "moved", leastMoved, lab.Between(from+int64(m.per), to), fmt.Sprintf("in %s, from %v after all demand has moved there", m.regions[h.asks[0]], m.per))
		}
	}
	most := m.judgeWindows(f, cut)
	f.sentences = []string{
		fmt.Sprintf("%d regions of %d gateways answered %s requests%s; %d failed and %d stalled.", len(m.regions), m.each, number(all.requests), m.describeEvents(), all.errors, all.stalls),
		fmt.Sprintf("All regions together granted a customer at most %d in %v. The limit is %d.", most, m.per, m.limit),
	}
	return f
}

// judgeWaits adds the claim that no check of the Global limit waits for another region,
// for the selected checks. Checks of the Regional limit never wait for another
// region, and show the waits that the machine causes.
func (m *monitor) judgeWaits(f *findings, name, when string, selects func(*answer) bool) {
	checks := func(regional bool) (all *sums, late float64) {
		judged := func(a *answer) bool { return a.err == nil && (a.path == localPath) == regional && selects(a) }
		checked := func(a *answer) span {
			if judged(a) {
				return a.check
			}
			return span{}
		}
		all = sum(m.tally.answers, judged)
		return all, float64(m.tally.stalls(m.tally.answers, checked, minRoundTrip)) / float64(max(all.answered(), 1))
	}
	global, late := checks(false)
	regional, lateThere := checks(true)
	if global.answered() > 0 {
		f.add(late <= mostLate+lateThere, name, short(global.checks.Quantile(0.99)), "of checks of the Global limit %s: none waits for another region, which takes %v or more; p50 %s; p99 of the Regional limit, whose checks never do, %s",
			when, minRoundTrip, short(global.checks.Quantile(0.5)), short(regional.checks.Quantile(0.99)))
	}
}

// judgeUse adds the claim that at least the given percentage of the limit was granted in
// the whole periods of a span. A limit grants all its units in each period, whenever the
// period begins.
func (m *monitor) judgeUse(f *findings, name string, least int, in span, when string) {
	periods, granted := int(in.Length()/m.per), 0
	for _, a := range m.tally.answers {
		if a.allowed && a.path == "/" && a.check.To >= in.From && a.check.To < in.From+int64(periods)*int64(m.per) {
			granted++
		}
	}
	if whole := periods * customers * int(m.limit); periods > 0 {
		f.add(100*granted >= least*whole, name, fmt.Sprintf("%.1f%%", 100*float64(granted)/float64(whole)), "of the limit granted %s; at least %v%%, because clients ask for more than the limit", when, least)
	}
}

// judgeWindows adds the claims about windows. It returns the maximum number of admissions,
// over all regions, in a window whose bound is the limit.
func (m *monitor) judgeWindows(f *findings, cut []span) int64 {
	var global, local fullest
	limits, c := m.rules.limits(), new(circumstances)
	during := make([]occasions, customers)
	for customer := range during {
		during[customer][withCut] = cut
	}
	for region := range m.regions {
		here := func(is func(*answer) bool) map[account][]span {
			return m.tally.admissions(func(a *answer) bool { return m.region(a.to.gateway) == region && is(a) })
		}
		late := make([]occasions, customers)
		for of, guessed := range here(func(a *answer) bool { return elsewhereAt(a.at) }) { // admitted without the owner
			late[of.client][timedOut] = append(late[of.client][timedOut], guessed...)
			during[of.client][timedOut] = append(during[of.client][timedOut], guessed...)
		}
		for of, admitted := range here(func(a *answer) bool { return a.path == localPath }) {
			local.add(of.String(), admitted, limits[localPath], &late[of.client], c)
		}
	}
	for of, admitted := range m.tally.admissions(func(a *answer) bool { return a.path == "/" }) {
		global.add(of.String(), admitted, limits["/"], &during[of.client], c)
	}
	f.window("global", global[healthy], m.per, "over all regions without a cut: the limit")
	f.window("cut", global[withCut], m.per, "over all regions that hold a moment of the cut: the limit")
	f.window("timeout", global[timedOut], m.per, "over all regions in which a check timed out in its region: 2L")
	f.window("regional", local[healthy], m.per, "of one region by a Regional limit")
	return max(global[healthy].Held, global[withCut].Held)
}

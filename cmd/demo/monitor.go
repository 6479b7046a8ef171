package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// monitor executes the steps of a run, and shows and judges the results.
type monitor struct {
	*fleet
	tally   *tally
	options options
	round   int                             // round of a soak, from 1
	coming  []step                          // steps that have not happened yet; view reads them with fleet.mu held
	draw    func(*rand.Rand) func() account // returns a function that draws the account of each request
}

func newMonitor(o options, told *screen) *monitor {
	per, bound := window(o.duration), stallBound
	switch {
	case o.regions > 0:
		per, bound = planetPer, planetStall
	case o.serve:
		per = servedPer
	case o.soak > 0:
		per = soakPer
	}
	m := &monitor{fleet: newFleet(o, per, told), options: o, draw: drawClient}
	m.tally = newTally(m.fleet, bound, new(lab.SchedulingDelay))
	if m.coming = plan(o.nodes, o.duration, rand.New(rand.NewPCG(o.seed, 0))); o.regions > 0 {
		m.coming, m.draw = journey(m.regions, o.nodes, o.duration), drawCustomer
	}
	return m
}

// introduction returns a text that explains how to send requests to a gateway.
func (m *monitor) introduction() (texts []string) {
	for i, inc := range m.current[:m.nodes] {
		texts = append(texts, fmt.Sprintf("gateway %s is process %d at %s/", m.name(i), inc.process.PID(), inc.url()))
	}
	asks := userHeader + ": alice' %s/v1/search"
	if len(m.regions) > 0 || m.isSoak() {
		asks = clientHeader + ": you' %s/"
	}
	first := m.current[0]
	return append(texts,
		fmt.Sprintf("try it:     curl -i -H '"+asks, first.url()),
		fmt.Sprintf("its admin:  curl -s -H 'Authorization: Bearer %s' %s/v1/stats", m.token, first.adminURL()))
}

// name returns the number of a gateway, with its region if there are regions.
func (f *fleet) name(gateway int) string {
	return strings.TrimSpace(f.regionName(gateway) + " " + strconv.Itoa(gateway+1))
}

// act executes the next step if its time has come, and reports whether the run is over. The
// error is that of the step, or the reason why the steps cannot continue.
func (m *monitor) act(ctx context.Context, now time.Time) (over bool, err error) {
	next := step{after: m.options.duration, calm: m.per}
	if len(m.coming) > 0 {
		next = m.coming[0]
	}
	if now.Sub(m.begun) < next.after {
		return false, nil
	}
	if may, err := m.canHappen(next, now); !may || err != nil {
		return false, err
	}
	if len(m.coming) == 0 {
		return true, nil
	}
	m.mu.Lock()
	m.coming = m.coming[1:]
	m.mu.Unlock()
	return false, m.do(ctx, next)
}

// gatewayColumns are the columns of the table of gateways. They show the answers of the last second.
// The last column shows the members that each gateway can see.
var gatewayColumns = []column{
	{"#", 4, 0, func(r row) string { return r.m.name(r.inc.gateway) }},
	{"process", 8, 8, func(r row) string { return r.pid() }},
	{"state", 8, 0, func(r row) string { return r.inc.condition.String() }},
	{"owns", 4, 2, func(r row) string { return percent(r.inc.report.Owns, clients) }},
	{"checks/s", 8, 0, func(r row) string { return number(perSecond(r.answered(), r.over)) }},
	{"allowed", 7, 0, func(r row) string { return number(perSecond(r.allowed, r.over)) }},
	{"denied", 6, 6, func(r row) string { return number(perSecond(r.denied, r.over)) }},
	{"p50", 6, 7, func(r row) string { return short(r.took.Quantile(0.5)) }},
	{"p99", 6, 4, func(r row) string { return short(r.took.Quantile(0.99)) }},
	{"itself", 6, 5, func(r row) string { return percent(r.at[own], r.answered()) }},
	{"owner", 5, 5, func(r row) string { return percent(r.at[asked], r.answered()) }},
	{"memory", 6, 5, func(r row) string { return percent(r.at[fromMemory], r.answered()) }},
	{"stand-in", 8, 1, func(r row) string { return percent(r.at[stoodIn], r.answered()) }},
	{"share", 5, 3, func(r row) string { return percent(r.at[budget], r.answered()) }},
	{"lag", 6, 2, func(r row) string { return short(r.inc.report.Stream.Lag) }},
	{"sees", 0, 0, nil},
}

var gatewayLegend = []string{
	"who decides: itself: the gateway owns the client's key; owner: the owner, over the network; memory: the gateway, by a denial of the owner in the last second or with units that the owner lent; stand-in: a gateway with a copy of the count, while the owner is not reached; share: the gateway, within its share of the limit, if no copy is reached",
	"owns: part of the clients   lag: of the copies of its counts   sees: ✓ connected … joining ? not connected ✗ dead",
}

func (m *monitor) view(now time.Time) *view {
	v := &view{
		title:   fmt.Sprintf("%d gateways, one limit: each of %d clients gets %d in %v over all gateways", m.nodes, clients, m.limit, m.per),
		elapsed: now.Sub(m.begun), duration: m.options.duration, next: "then the verdict",
		columns: slices.Clone(gatewayColumns), standing: m.tally.standing(), story: m.lines(), legend: gatewayLegend,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.coming) > 0 {
		v.next = "next: " + m.coming[0].String()
		if in := m.coming[0].after - v.elapsed; in > 0 {
			v.next += fmt.Sprintf(" in %.0f s", in.Seconds())
		}
	}
	over := min(time.Second, v.elapsed)
	answers := m.tally.answersSince(now.Add(-over).UnixNano())
	switch {
	case m.isSoak():
		v.title, v.duration, v.next = fmt.Sprintf("a soak of %d gateways under %d requests a second", m.nodes, m.options.rate), m.options.soak, "then stops of all, and the verdict"
	case len(m.regions) > 0:
		v.title = fmt.Sprintf("%d regions of %d gateways, %v from each other each way: each of %d customers gets %d in %v over all of them together",
			len(m.regions), m.each, oneWay, customers, m.limit, m.per)
		v.below = m.demand(answers, over, now)
	default:
		v.below = m.busiest(answers, over, now)
	}
	for i, inc := range m.current {
		if inc == nil || inc.condition == gone && i >= m.nodes {
			continue
		}
		cells, sights := row{sum(answers, func(a *answer) bool { return a.to.gateway == i }), m, inc, over}.cells(), m.sights(inc)
		v.rows = append(v.rows, append(cells, sights))
		last := &v.columns[len(v.columns)-1]
		last.width = max(last.width, len(sights))
	}
	return v
}

// row has the data of a row of the table. The caller of its methods must hold m.mu.
type row struct {
	*sums
	m    *monitor
	inc  *incarnation
	over time.Duration
}

func (r row) pid() string {
	if r.inc.process == nil {
		return unknown
	}
	return strconv.Itoa(r.inc.process.PID())
}

// cells returns all of the cells except for the last one. For a gateway that does not serve, only
// the process and the state are known.
func (r row) cells() (cells []line) {
	for i, c := range gatewayColumns[:len(gatewayColumns)-1] {
		text, colour := c.text(r), plain
		switch {
		case i == 0:
			colour = bold
		case c.title == "state":
			colour = conditions[r.inc.condition].colour
		case !r.inc.hasCondition(up, leaving) && c.title != "process":
			text, colour = unknown, dim
		case (c.title == "stand-in" || c.title == "share") && text != "0%": // an owner is not reached
			colour = yellow
		}
		cells = append(cells, line{}.add(colour, text))
	}
	return cells
}

func percent(n, all int) string {
	if all == 0 {
		return unknown
	}
	return strconv.Itoa((100*n+all/2)/all) + "%"
}

// sights returns the members of a gateway's region as the gateway sees them: the number of
// each gateway, with the states of its members. A number has several states until a dead
// member is removed from the roster. The caller must hold m.mu.
func (m *monitor) sights(inc *incarnation) line {
	if !inc.hasCondition(joining, up, leaving) {
		return line{}.add(dim, unknown)
	}
	l := line{}
	for i := range m.current {
		if m.region(i) != m.region(inc.gateway) || len(m.regions) > 0 && i == m.nodes {
			continue
		}
		l = l.add(plain, strings.Repeat(" ", min(len(l), 1))+strconv.Itoa(i+1))
		before := len(l)
		for _, m := range inc.report.Members {
			if gatewayOf(m.Name) == i {
				l = l.add(markOf(m.State))
			}
		}
		if len(l) == before {
			l = l.add(dim, "·")
		}
	}
	return l
}

// demand returns a line for each region, with a bar of the units of the Global limit that
// the region has granted. The caller must hold m.mu.
func (m *monitor) demand(answers []answer, over time.Duration, now time.Time) []line {
	granted := m.tally.answersSince(now.Add(-m.per).UnixNano())
	all := []line{line{}.add(dim, "region           asks/s  granted of the Global limit in the last "+m.per.String())}
	for region, name := range m.regions {
		here := func(a *answer) bool { return a.path == "/" && m.region(a.to.gateway) == region }
		l := clientLine(name, perSecond(sum(answers, here).answered(), over), sum(granted, here).allowed, customers*int(m.limit))
		if m.away[region*m.each] {
			l = l.add(red, " cut off")
		}
		all = append(all, l)
	}
	return all
}

func markOf(s weir.MemberState) (colour, string) {
	switch s {
	case weir.Serving:
		return green, "✓"
	case weir.Dead:
		return red, "✗"
	case weir.Joining:
		return cyan, "…"
	}
	return yellow, "?"
}

const busiestShown = 4

// busiest returns a line for each of the clients with the most requests within a time,
// with a bar of their admissions.
func (m *monitor) busiest(answers []answer, over time.Duration, now time.Time) []line {
	var asks [clients]int
	order := make([]int, clients)
	for i := range order {
		order[i] = i
	}
	for _, a := range answers {
		asks[a.client]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(asks[b], asks[a]) })
	order = order[:busiestShown]
	slices.Sort(order) // so that the order of the rows does not change if their rates are about the same
	all := []line{line{}.add(dim, "busiest client   asks/s  admitted in the last "+m.per.String())}
	for _, client := range order {
		all = append(all, clientLine(clientName(client), perSecond(asks[client], over), m.tally.recentAdmissions(client, now.UnixNano(), m.per), int(m.limit)))
	}
	return all
}

// clientLine returns a line for a client, with a bar of its admissions and its limit.
func clientLine(name string, asks, got, limit int) line {
	full := min(limit, 20)
	filled := min(full+5, (got*full+limit-1)/limit)
	l := line{}.add(plain, fmt.Sprintf("%-14s %8s  ", name, number(asks))).
		add(cyan, strings.Repeat("█", min(filled, full))).add(yellow, strings.Repeat("█", max(0, filled-full))).
		add(dim, strings.Repeat("░", max(0, full-filled))).add(plain, fmt.Sprintf(" %d of %d", got, limit))
	if got > limit {
		l = l.add(yellow, " around a fault")
	}
	return l
}

func perSecond(n int, over time.Duration) int {
	return int(float64(n)/max(over.Seconds(), 1e-3) + 0.5)
}

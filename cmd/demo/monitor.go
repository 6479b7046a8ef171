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

// monitor is the run of one region: it has the steps happen, and shows and judges what comes
// of them.
type monitor struct {
	*fleet
	tally   *tally
	options options
	begun   time.Time
	coming  []step // those that have not happened yet
}

func newMonitor(o options, per time.Duration, told *screen) *monitor {
	f := newFleet(o, per, told)
	return &monitor{
		fleet: f, tally: newTally(f, stallBound, new(lab.Lateness)), options: o,
		coming: plan(o.nodes, o.duration, rand.New(rand.NewPCG(o.seed, 0))),
	}
}

// begin implements run.
func (m *monitor) begin(now time.Time) *lab.Lateness {
	m.begun = now
	m.from(now)
	return m.tally.lateness
}

// introduction implements run.
func (m *monitor) introduction() []string { return m.introduce("", userHeader+": alice", "/v1/search") }

// traffic implements run.
func (m *monitor) traffic(ctx context.Context) {
	drive(ctx, m.fleet, m.tally, m.options.rate, m.options.seed)
}

// act implements run.
func (m *monitor) act(now time.Time) (over bool, err error) {
	next := step{after: m.options.duration, calm: m.per}
	if len(m.coming) > 0 {
		next = m.coming[0]
	}
	if now.Sub(m.begun) < next.after {
		return false, nil
	}
	if may, err := m.may(next, now); !may || err != nil {
		return false, err
	}
	if len(m.coming) == 0 {
		return true, nil
	}
	m.coming = m.coming[1:]
	return false, m.do(next)
}

var gatewayColumns = []column{
	{"#", 2, 0},
	{"process", 8, 8},
	{"state", 8, 0},
	{"owns", 4, 2},
	{"checks/s", 8, 0},
	{"allowed", 7, 0},
	{"denied", 6, 6},
	{"p50", 6, 7},
	{"p99", 6, 4},
	{"itself", 6, 5},
	{"owner", 5, 5},
	{"memory", 6, 5},
	{"stand-in", 8, 1},
	{"share", 5, 3},
	{"lag", 6, 2},
	{"sees", 0, 0},
}

var gatewayLegend = []string{
	"decided by: itself, which owns the client's key; the owner, asked over the network; from memory, as the owner denied it within the last second; while that is not reached the stand-in, which has a copy of the count; without that its share of the limit",
	"owns: of the clients   lag: of the copies of its counts   sees: ✓ heard … joining ? not heard ✗ dead",
}

// view implements run.
func (m *monitor) view(now time.Time) *view {
	v := &view{
		title:   fmt.Sprintf("%d gateways, one limit: each of %d clients gets %d in %v, whichever it asks", m.nodes, clients, m.limit, m.per),
		elapsed: now.Sub(m.begun), duration: m.options.duration, next: "then the verdict",
		columns: slices.Clone(gatewayColumns), standing: m.tally.standing(), story: m.lines(), legend: gatewayLegend,
	}
	if len(m.coming) > 0 {
		v.next = "next: " + m.coming[0].String()
		if in := m.coming[0].after - v.elapsed; in > 0 {
			v.next += fmt.Sprintf(" in %.0f s", in.Seconds())
		}
	}
	over := min(time.Second, v.elapsed)
	answers := m.tally.since(now.Add(-over).UnixNano())
	v.below = m.busiest(answers, over, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, inc := range m.current {
		if inc == nil || inc.condition == gone && i >= m.nodes {
			continue
		}
		row, sights := m.row(inc, sum(answers, func(a *answer) bool { return a.to.gateway == i }), over), inc.sights(len(m.current))
		v.rows = append(v.rows, append(row, sights...))
		last := &v.columns[len(v.columns)-1]
		last.width = max(last.width, len([]rune(sights.render(false, plainWidth))))
	}
	return v
}

// row returns the cells of a gateway but the last, of what it answered in a time. m.mu is held.
func (m *monitor) row(inc *incarnation, s *sums, over time.Duration) []painted {
	serves := inc.is(up, leaving)
	reports := serves || inc.is(joining)
	cell := func(known bool, text string) painted {
		switch {
		case !known:
			return painted{dim, unknown}
		case !serves:
			return painted{dim, text}
		}
		return painted{plain, text}
	}
	part := func(n, all int) string {
		if all == 0 {
			return unknown
		}
		return strconv.Itoa((100*n+all/2)/all) + "%"
	}
	at := func(p place) painted { return cell(serves, part(s.at[p], s.answered())) }
	unusual := func(p place) painted { // while an owner is not reached
		c := at(p)
		if c.colour = dim; c.text != "0%" && c.text != unknown {
			c.colour = yellow
		}
		return c
	}
	pid := unknown
	if inc.process != nil {
		pid = strconv.Itoa(inc.process.PID())
	}
	return []painted{
		{bold, strconv.Itoa(inc.gateway + 1)}, cell(true, pid), {inc.condition.colour(), inc.condition.String()},
		cell(reports, part(inc.report.Owns, clients)),
		cell(serves, number(perSecond(s.answered(), over))), cell(serves, number(perSecond(s.allowed, over))), cell(serves, number(perSecond(s.denied, over))),
		cell(serves, short(s.took.Quantile(0.5))), cell(serves, short(s.took.Quantile(0.99))),
		at(own), at(asked), at(fromMemory), unusual(stoodIn), unusual(budget),
		cell(reports, short(inc.report.Stream.Lag)),
	}
}

// sights is how a gateway sees the members that have had each of so many places: more than one
// process, until a dead one is off the roster.
func (inc *incarnation) sights(places int) line {
	if !inc.is(joining, up, leaving) {
		return line{}.add(dim, unknown)
	}
	l := line{}
	for i := range places {
		l = l.add(plain, strings.Repeat(" ", min(i, 1))+strconv.Itoa(i+1))
		before := len(l)
		for _, m := range inc.report.Members {
			if gatewayOf(m.Name) == i {
				l = append(l, markOf(m.State))
			}
		}
		if len(l) == before {
			l = l.add(dim, "·")
		}
	}
	return l
}

func markOf(s weir.MemberState) painted {
	switch s {
	case weir.Serving:
		return painted{green, "✓"}
	case weir.Dead:
		return painted{red, "✗"}
	case weir.Joining:
		return painted{cyan, "…"}
	}
	return painted{yellow, "?"}
}

func (c condition) colour() colour {
	switch c {
	case up:
		return green
	case starting, joining:
		return cyan
	case leaving, frozen:
		return yellow
	case gone, stopped:
		return dim
	}
	return red
}

// busiestShown is how many clients the table shows.
const busiestShown = 4

// busiest is the clients that asked most within a time, each with a bar of what it got.
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
	slices.Sort(order) // so that rows of much the same pace keep their places
	all := []line{line{}.add(dim, "busiest client   asks/s  admitted in the last "+m.per.String())}
	for _, client := range order {
		all = append(all, clientLine(clientName(client), perSecond(asks[client], over), m.tally.lately(client, now.UnixNano(), m.per), int(m.limit)))
	}
	return all
}

// clientLine is a client with a bar of what it got, of its limit.
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

// perSecond is a count within a time, a second.
func perSecond(n int, over time.Duration) int {
	return int(float64(n)/max(over.Seconds(), 1e-3) + 0.5)
}

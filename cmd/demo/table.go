package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// busiestShown is how many clients the table shows, and eventsShown how many events at most.
const (
	busiestShown = 4
	eventsShown  = 9
)

// monitor makes frames of what the fleet and the tally know, and has the steps happen.
type monitor struct {
	fleet    *fleet
	tally    *tally
	begun    time.Time
	length   time.Duration
	coming   []step // those that have not happened yet
	last     lastSecond[slice]
	standing standing
}

// act implements director.
func (m *monitor) act(now time.Time) (over bool, err error) {
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

// take implements director.
func (m *monitor) take(now time.Time) {
	var next slice
	next, m.standing = m.tally.next()
	m.last.take(now, next)
}

// frame implements director.
func (m *monitor) frame(now time.Time) drawing {
	f := &frame{moment: moment{
		elapsed: now.Sub(m.begun), duration: m.length, begun: m.begun, per: m.fleet.per,
		standing: m.standing, events: m.fleet.latest(), next: "then the verdict",
	}, limit: m.fleet.limit, nodes: m.fleet.nodes}
	if len(m.coming) > 0 {
		f.next = "next: " + m.coming[0].String()
		if in := m.coming[0].after - f.elapsed; in > 0 {
			f.next += fmt.Sprintf(" in %.0f s", in.Seconds())
		}
	}
	over := m.last.over()
	f.clients = m.busiest(over, now)
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	for i, inc := range m.fleet.current {
		if inc == nil || inc.condition == gone && i >= m.fleet.nodes {
			continue
		}
		row := gatewayRow{
			number: i + 1, condition: inc.condition, over: over, owns: inc.report.Owns, lag: inc.report.Stream.Lag,
			sees: inc.report.Members, places: len(m.fleet.current),
		}
		if inc.process != nil {
			row.pid = inc.process.PID()
		}
		for _, s := range m.last.slices {
			row.counts.add(&s.gateways[i])
		}
		f.gateways = append(f.gateways, row)
	}
	return f
}

// busiest is the clients that asked most.
func (m *monitor) busiest(over time.Duration, now time.Time) (rows []clientRow) {
	var asks [clients]int
	order := make([]int, clients)
	for i := range order {
		order[i] = i
		for _, s := range m.last.slices {
			asks[i] += s.asks[i]
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(asks[b], asks[a]) })
	order = order[:busiestShown]
	slices.Sort(order) // so that rows of much the same pace keep their places
	for _, client := range order {
		rows = append(rows, clientRow{clientName(client), perSecond(asks[client], over), m.tally.lately(client, now.UnixNano(), m.fleet.per)})
	}
	return rows
}

// frame is what the table shows of one moment.
type frame struct {
	moment
	limit    int64
	nodes    int
	gateways []gatewayRow
	clients  []clientRow // the busiest first
}

// gatewayRow is one gateway, over the last second.
type gatewayRow struct {
	number    int
	condition condition
	pid       int
	counts    counts
	over      time.Duration // what the counts are of
	owns      int           // clients
	lag       time.Duration // of the replicas of its counts
	sees      []seen
	places    int // of gateways, that it can see
}

// clientRow is one client.
type clientRow struct {
	name  string
	asks  int // a second
	lived int // admitted within the last Per
}

const unknown = "–"

// serves reports whether there are figures of the gateway.
func (g *gatewayRow) serves() bool { return g.condition == up || g.condition == leaving }

// known reports whether the gateway reports.
func (g *gatewayRow) known() bool { return g.serves() || g.condition == joining }

// rate is a count a second.
func (g *gatewayRow) rate(n int) string {
	if !g.serves() || g.over <= 0 {
		return unknown
	}
	return number(perSecond(n, g.over))
}

func (g *gatewayRow) latency(q float64) string {
	if !g.serves() {
		return unknown
	}
	return short(g.counts.took.Quantile(q))
}

// percent is a part of all, rounded, if that is known.
func percent(known bool, part, all int) string {
	if !known || all == 0 {
		return unknown
	}
	return strconv.Itoa((100*part+all/2)/all) + "%"
}

// part is a place's part of all decisions.
func (g *gatewayRow) part(p place) string {
	return percent(g.serves(), g.counts.at[p], g.counts.answered())
}

// owned is the part of the clients whose keys the gateway owns.
func (g *gatewayRow) owned() string { return percent(g.known(), g.owns, clients) }

// behind is the stream's lag.
func (g *gatewayRow) behind() string {
	if !g.known() {
		return unknown
	}
	return short(g.lag)
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

// column is one of the table's columns. Where there is no room, those with the
// highest sacrifice go first.
type column struct {
	title     string
	width     int
	sacrifice int
	cell      func(*gatewayRow) (colour, string)
}

func text(of func(*gatewayRow) string) func(*gatewayRow) (colour, string) {
	return func(g *gatewayRow) (colour, string) {
		if !g.serves() {
			return dim, of(g)
		}
		return plain, of(g)
	}
}

// unusual is the part of decisions that are made in a place only while an owner is
// not reached.
func unusual(p place) func(*gatewayRow) (colour, string) {
	return func(g *gatewayRow) (colour, string) {
		if part := g.part(p); part != "0%" && part != unknown {
			return yellow, part
		}
		return dim, g.part(p)
	}
}

var columns = []column{
	{"gateway", 7, 0, func(g *gatewayRow) (colour, string) { return bold, strconv.Itoa(g.number) }},
	{"process", 8, 8, text(func(g *gatewayRow) string { return strconv.Itoa(g.pid) })},
	{"state", 8, 0, func(g *gatewayRow) (colour, string) { return g.condition.colour(), g.condition.String() }},
	{"owns", 4, 2, text((*gatewayRow).owned)},
	{"checks/s", 8, 0, text(func(g *gatewayRow) string { return g.rate(g.counts.answered()) })},
	{"allowed", 7, 0, text(func(g *gatewayRow) string { return g.rate(g.counts.allowed) })},
	{"denied", 6, 6, text(func(g *gatewayRow) string { return g.rate(g.counts.denied) })},
	{"p50", 6, 7, text(func(g *gatewayRow) string { return g.latency(0.5) })},
	{"p99", 6, 4, text(func(g *gatewayRow) string { return g.latency(0.99) })},
	{"itself", 6, 5, text(func(g *gatewayRow) string { return g.part(own) })},
	{"owner", 5, 5, text(func(g *gatewayRow) string { return g.part(asked) })},
	{"memory", 6, 5, text(func(g *gatewayRow) string { return g.part(fromMemory) })},
	{"stand-in", 8, 1, unusual(stoodIn)},
	{"share", 5, 3, unusual(budget)},
	{"lag", 6, 2, text((*gatewayRow).behind)},
}

// fitting is the columns for which there is room beside the last one.
func fitting(all []column, width, last int) []column {
	need, worst := last, 0
	for _, c := range all {
		need += c.width + 1
		worst = max(worst, c.sacrifice)
	}
	if need <= width || worst == 0 {
		return all
	}
	return fitting(slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.sacrifice == worst }), width, last)
}

// lines draws the frame for a terminal of this size.
func (f *frame) lines(width, height int) []line {
	sees := 4
	for _, g := range f.gateways {
		sees = max(sees, 2*g.places+max(len(g.sees), g.places))
	}
	shown := fitting(columns, width, sees+1)
	header := line{}
	for _, c := range shown {
		header = header.add(dim, right(c.title, c.width)+" ")
	}
	all := []line{
		line{}.add(bold, "weir").add(plain, fmt.Sprintf("  %d gateways, one limit: ", f.nodes)).
			add(plain, "each client gets ").add(bold, fmt.Sprintf("%d in %v", f.limit, f.per)).add(plain, ", whichever it asks"),
		f.progress(width),
		nil,
		header.add(dim, " sees"),
	}
	for i := range f.gateways {
		g := &f.gateways[i]
		l := line{}
		for _, c := range shown {
			paint, cell := c.cell(g)
			l = l.add(paint, right(cell, c.width)+" ")
		}
		all = append(all, append(l.add(plain, " "), g.sights()...))
	}

	middle := []line{nil, line{}.add(dim, "busiest client   asks/s  admitted in the last "+f.per.String())}
	for _, c := range f.clients {
		middle = append(middle, c.line(f.limit, width))
	}
	legend := []line{
		nil,
		line{}.add(dim, "decided by: itself, which owns the client's key; the owner, asked over the network; from memory, as the"),
		line{}.add(dim, "owner denied it within the last second; while that is not reached the stand-in, which has a copy of"),
		line{}.add(dim, "the count; without that its share of the limit"),
		line{}.add(dim, "lag: of the copies of its counts   sees: ").add(green, "✓").add(dim, " heard ").add(yellow, "?").add(dim, " not heard ").add(red, "✗").add(dim, " dead"),
	}
	foot := []line{nil, f.standing.line()}

	// What does not fit is left away, the least important first.
	room := height - 1 - len(all) - len(foot)
	if room < len(legend)+len(middle)+5 {
		legend = nil
	}
	if room < len(middle)+4 {
		middle = nil
	}
	all = append(append(all, middle...), foot...)
	if story := f.story(min(room-len(legend)-len(middle)-1, eventsShown)); len(story) > 0 {
		all = append(append(all, nil), story...)
	}
	all = append(all, legend...)
	return all[:min(len(all), max(height-1, 1))]
}

// sights is how a gateway sees the members that have had each place: more than one process,
// until a dead one is off the roster.
func (g *gatewayRow) sights() line {
	if !g.known() {
		return line{}.add(dim, unknown)
	}
	l := line{}
	for i := range g.places {
		l = l.add(plain, strconv.Itoa(i+1))
		before := len(l)
		for _, m := range g.sees {
			if gatewayOf(m.Name) == i {
				l = append(l, markOf(m.State))
			}
		}
		if len(l) == before {
			l = l.add(dim, "·")
		}
		l = l.add(plain, " ")
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

// line is the client with a bar of what it got, as long as the limit where there
// is room.
func (c *clientRow) line(limit int64, width int) line {
	full := max(1, min(int(limit), 40, width-26-10))
	filled := min(2*full, (c.lived*full+int(limit)-1)/int(limit))
	l := append(line{}.add(plain, fmt.Sprintf("%-14s %8s  ", c.name, number(c.asks))), bar(cyan, "█", "", filled, full)...)
	l = l.add(yellow, strings.Repeat("█", max(0, filled-full)))
	l = l.add(dim, strings.Repeat("░", max(0, full-filled))).add(plain, fmt.Sprintf(" %d", c.lived)).add(dim, fmt.Sprintf(" of %d", limit))
	if c.lived > int(limit) {
		l = l.add(yellow, " around a fault")
	}
	return l
}

// key says how to read short.
const key = "for each gateway: clients owned, checks/s, allowed/s, p50/p99, decided by itself/the owner/its stand-in/a share, lag of the copies, members as it sees them (✓ heard … joining ? not heard ✗ dead)"

// short is the frame in one line, for what is no terminal.
func (f *frame) short() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s", f.elapsed.Seconds())
	for i := range f.gateways {
		g := &f.gateways[i]
		fmt.Fprintf(&b, "  [%d] ", g.number)
		if g.condition != up {
			b.WriteString(g.condition.String())
		}
		if !g.serves() {
			continue
		}
		if g.condition != up {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "%s %s/s %s ok %s/%s %s/%s/%s/%s/%s %s %s", g.owned(), g.rate(g.counts.answered()), g.rate(g.counts.allowed),
			g.latency(0.5), g.latency(0.99), g.part(own), g.part(asked), g.part(fromMemory), g.part(stoodIn), g.part(budget), g.behind(),
			strings.ReplaceAll(g.sights().render(false, 80), " ", ""))
	}
	fmt.Fprintf(&b, "  %d errors, %d stalls", f.standing.errors, f.standing.stalls)
	return b.String()
}

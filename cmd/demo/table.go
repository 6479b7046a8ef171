package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
)

// frame is what the table shows of one moment.
type frame struct {
	elapsed, duration time.Duration
	limit             int64
	per               time.Duration
	nodes             int
	next              string // what is about to happen
	gateways          []gatewayRow
	clients           []clientRow // the busiest first
	events            []event     // all so far
	begun             time.Time
	standing          standing
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
	sees      []sight
}

// sight is how a gateway sees the members that have had one place: more than
// one process, until a dead one is off the roster.
type sight struct {
	number int
	states []weir.MemberState
}

// clientRow is one client.
type clientRow struct {
	name  string
	asks  int // a second
	lived int // admitted within the last Per
}

// serves says that there are figures of the gateway.
func (g *gatewayRow) serves() bool { return g.condition == up || g.condition == leaving }

// rate is a count a second.
func (g *gatewayRow) rate(n int) string {
	if !g.serves() || g.over <= 0 {
		return "–"
	}
	return number(int(float64(n)/g.over.Seconds() + 0.5))
}

func (g *gatewayRow) latency(q float64) string {
	if !g.serves() {
		return "–"
	}
	return short(g.counts.took.Quantile(q))
}

// part is a place's part of all decisions.
func (g *gatewayRow) part(p place) string {
	all := g.counts.allowed + g.counts.denied
	if !g.serves() || all == 0 {
		return "–"
	}
	return strconv.Itoa((100*g.counts.at[p]+all/2)/all) + "%"
}

// owned is the part of the clients whose keys the gateway owns.
func (g *gatewayRow) owned() string {
	if !g.serves() && g.condition != joining {
		return "–"
	}
	return strconv.Itoa((100*g.owns+clients/2)/clients) + "%"
}

// behind is the stream's lag.
func (g *gatewayRow) behind() string {
	if !g.serves() && g.condition != joining {
		return "–"
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

func columns() []column {
	return []column{
		{"gateway", 7, 0, func(g *gatewayRow) (colour, string) { return bold, strconv.Itoa(g.number) }},
		{"process", 8, 8, text(func(g *gatewayRow) string { return strconv.Itoa(g.pid) })},
		{"state", 8, 0, func(g *gatewayRow) (colour, string) { return g.condition.colour(), g.condition.String() }},
		{"owns", 4, 2, text((*gatewayRow).owned)},
		{"checks/s", 8, 0, text(func(g *gatewayRow) string { return g.rate(g.counts.allowed + g.counts.denied) })},
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
}

// unusual is the part of decisions that are made in a place only while an owner is
// not reached.
func unusual(p place) func(*gatewayRow) (colour, string) {
	return func(g *gatewayRow) (colour, string) {
		part := g.part(p)
		if part != "0%" && part != "–" {
			return yellow, part
		}
		return dim, part
	}
}

// fitting is the columns for which there is room beside the last one.
func fitting(all []column, width, last int) []column {
	for {
		need, worst := last, 0
		for _, c := range all {
			need += c.width + 1
			worst = max(worst, c.sacrifice)
		}
		if need <= width || worst == 0 {
			return all
		}
		var rest []column
		for _, c := range all {
			if c.sacrifice != worst {
				rest = append(rest, c)
			}
		}
		all = rest
	}
}

// lines draws the frame for a terminal of this size.
func (f *frame) lines(width, height int) []line {
	var top []line
	put := func(l line) { top = append(top, l) }
	put(line{}.add(bold, "weir").add(plain, fmt.Sprintf("  %d gateways, one limit: ", f.nodes)).
		add(plain, "each client gets ").add(bold, fmt.Sprintf("%d in %v", f.limit, f.per)).add(plain, ", whichever it asks"))
	put(progress(f.elapsed, f.duration, f.next, width))
	put(nil)

	sees := 4
	for _, g := range f.gateways {
		n := 0
		for _, s := range g.sees {
			n += 2 + len(s.states)
		}
		sees = max(sees, n)
	}
	shown := fitting(columns(), width, sees+1)
	header := line{}
	for _, c := range shown {
		header = header.add(dim, right(c.title, c.width)+" ")
	}
	put(header.add(dim, " sees"))
	for i := range f.gateways {
		g := &f.gateways[i]
		l := line{}
		for _, c := range shown {
			paint, cell := c.cell(g)
			l = l.add(paint, right(cell, c.width)+" ")
		}
		put(append(l.add(plain, " "), g.sights()...))
	}

	var middle []line
	middle = append(middle, nil, line{}.add(dim, "busiest client   asks/s  admitted in the last "+f.per.String()))
	for _, c := range f.clients {
		middle = append(middle, c.line(f.limit, width))
	}

	var story []line
	for _, e := range f.events {
		story = append(story, e.line(f.begun))
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
	room := height - 1 - len(top) - len(foot)
	if room < len(legend)+len(middle)+5 {
		legend = nil
	}
	if room < len(middle)+4 {
		middle = nil
	}
	room -= len(legend) + len(middle) + 1
	const most = 9
	keep := max(0, min(room, most))
	if len(story) > keep {
		story = story[len(story)-keep:]
	}
	all := append(top, middle...)
	all = append(all, foot...)
	if keep > 0 {
		all = append(all, nil)
		all = append(all, story...)
	}
	all = append(all, legend...)
	return all[:min(len(all), max(height-1, 1))]
}

func (g *gatewayRow) sights() line {
	l := line{}
	if !g.serves() && g.condition != joining {
		return l.add(dim, "–")
	}
	for _, s := range g.sees {
		l = l.add(plain, strconv.Itoa(s.number))
		if len(s.states) == 0 {
			l = l.add(dim, "·")
		}
		for _, state := range s.states {
			l = l.add(stateColour(state), stateMark(state))
		}
		l = l.add(plain, " ")
	}
	return l
}

func stateMark(s weir.MemberState) string {
	switch s {
	case weir.Serving:
		return "✓"
	case weir.Dead:
		return "✗"
	case weir.Joining:
		return "…"
	}
	return "?"
}

func stateColour(s weir.MemberState) colour {
	switch s {
	case weir.Serving:
		return green
	case weir.Dead:
		return red
	case weir.Joining:
		return cyan
	}
	return yellow
}

// line is the client with a bar of what it got, as long as the limit where there
// is room.
func (c *clientRow) line(limit int64, width int) line {
	l := line{}.add(plain, fmt.Sprintf("%-14s %8s  ", c.name, number(c.asks)))
	full := max(1, min(int(limit), 40, width-26-10))
	filled := min(2*full, (c.lived*full+int(limit)-1)/int(limit))
	l = l.add(cyan, strings.Repeat("█", min(filled, full))).add(yellow, strings.Repeat("█", max(0, filled-full)))
	l = l.add(dim, strings.Repeat("░", max(0, full-filled))).add(plain, fmt.Sprintf(" %d", c.lived)).add(dim, fmt.Sprintf(" of %d", limit))
	if c.lived > int(limit) {
		l = l.add(yellow, " around a fault")
	}
	return l
}

// line is the event with its time from the beginning.
func (e event) line(begun time.Time) line {
	at := fmt.Sprintf("%5.1f s  ", e.at.Sub(begun).Seconds())
	paint := map[string]colour{"kill": red, "failed": red, "freeze": yellow, "leave": yellow, "start": green, "thaw": green, "reload": cyan, "admin": cyan, "busy": yellow}[e.what]
	if e.what == "phase" {
		return line{}.add(dim, at).add(bold, e.text)
	}
	if e.what == "" {
		return line{}.add(dim, at+strings.Repeat(" ", 8)+e.text)
	}
	return line{}.add(plain, at).add(paint, fmt.Sprintf("%-8s", e.what)).add(plain, e.text)
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
		fmt.Fprintf(&b, "%s %s/s %s ok %s/%s %s/%s/%s/%s/%s %s %s", g.owned(), g.rate(g.counts.allowed+g.counts.denied), g.rate(g.counts.allowed),
			g.latency(0.5), g.latency(0.99), g.part(own), g.part(asked), g.part(fromMemory), g.part(stoodIn), g.part(budget), g.behind(),
			strings.ReplaceAll(g.sights().render(false, 80), " ", ""))
	}
	fmt.Fprintf(&b, "  %d errors, %d stalls", f.standing.errors, f.standing.stalls)
	return b.String()
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

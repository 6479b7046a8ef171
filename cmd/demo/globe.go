package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// globe makes frames of what the planet and the ledger know, and has the phases begin.
type globe struct {
	planet   *planet
	ledger   *ledger
	begun    time.Time
	length   time.Duration
	coming   []phase // those that have not begun yet
	done     []phase
	last     lastSecond[[]regionCounts]
	standing standing
}

// act implements director. It is over as well when a gateway has failed.
func (g *globe) act(now time.Time) (over bool, err error) {
	elapsed := now.Sub(g.begun)
	if len(g.coming) > 0 && elapsed >= g.coming[0].after {
		g.planet.begin(g.coming[0])
		g.done, g.coming = append(g.done, g.coming[0]), g.coming[1:]
	}
	return elapsed >= g.length || len(g.planet.broken()) > 0, nil
}

// take implements director.
func (g *globe) take(now time.Time) {
	var next []regionCounts
	next, g.standing = g.ledger.next()
	g.last.take(now, next)
}

// globeFrame is what the table of the regions shows of one moment.
type globeFrame struct {
	moment
	title string
	limit int // of all customers, in per
	rows  []regionRow
}

// regionRow is one region, over the last second.
type regionRow struct {
	name    string
	cut     bool
	counts  regionCounts
	over    time.Duration // what the counts are of
	granted int           // in the last per
}

// frame implements director.
func (g *globe) frame(now time.Time) drawing {
	p := g.planet
	f := &globeFrame{moment: moment{
		elapsed: now.Sub(g.begun), duration: g.length, begun: g.begun, per: p.per,
		standing: g.standing, events: p.latest(), next: "then the verdict",
	}, title: p.title(), limit: customers * int(p.limit)}
	if len(g.coming) > 0 {
		f.next = fmt.Sprintf("%s: in %.0f s", g.coming[0].name, max(0, g.coming[0].after-f.elapsed).Seconds())
	}
	held := g.ledger.lately(now.UnixNano(), p.per)
	for i, name := range p.regions {
		row := regionRow{name: name, cut: p.now.Load().cut && i == thenBusy, over: g.last.over(), granted: held[i]}
		for _, s := range g.last.slices {
			row.counts.add(&s[i])
		}
		f.rows = append(f.rows, row)
	}
	return f
}

func (r *regionRow) asks() string { return number(perSecond(r.counts.asked, r.over)) }

// pace is what was granted in per, a second.
func (f *globeFrame) pace(granted int) string {
	return strconv.FormatFloat(float64(granted)/f.per.Seconds(), 'f', 0, 64)
}

func (f *globeFrame) sum() (granted int) {
	for i := range f.rows {
		granted += f.rows[i].granted
	}
	return granted
}

// lines implements drawing.
func (f *globeFrame) lines(width, height int) []line {
	all := []line{
		line{}.add(bold, "weir").add(plain, strings.TrimPrefix(f.title, "weir")),
		f.progress(width),
		nil,
		line{}.add(dim, "region    asks/s  granted/s  check p50  check p99  request p99  of the Global limit"),
	}
	columns := max(1, min(40, width-73))
	for i := range f.rows {
		r := &f.rows[i]
		name := colour(bold)
		if r.cut {
			name = red
		}
		l := line{}.add(name, fmt.Sprintf("%-7s", r.name)).
			add(plain, fmt.Sprintf(" %8s  ", r.asks())).add(bold, right(f.pace(r.granted), 9)).
			add(plain, fmt.Sprintf("  %9s  %9s  %11s  ", short(r.counts.checks.Quantile(0.5)), short(r.counts.checks.Quantile(0.99)), short(r.counts.took.Quantile(0.99))))
		l = append(l, bar(cyan, "█", "░", (r.granted*columns+f.limit/2)/max(1, f.limit), columns)...)
		if r.cut {
			l = l.add(red, " cut off")
		}
		all = append(all, l)
	}
	all = append(all,
		line{}.add(plain, "all regions       ").add(bold, right(f.pace(f.sum()), 9)).add(plain, " of "+f.pace(f.limit)).add(dim, ", in the last "+f.per.String()+", a second"),
		nil,
		f.standing.line(),
		nil,
	)
	all = append(all, f.story(height-1-len(all))...)
	return all[:min(len(all), max(height-1, 1))]
}

// short is the frame in one line, for what is no terminal.
func (f *globeFrame) short() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s ", f.elapsed.Seconds())
	for i := range f.rows {
		r := &f.rows[i]
		fmt.Fprintf(&b, " %s %s/s %s ok %s ", r.name, r.asks(), f.pace(r.granted), short(r.counts.checks.Quantile(0.99)))
	}
	fmt.Fprintf(&b, " sum %s of %s  %d errors, %d stalls", f.pace(f.sum()), f.pace(f.limit), f.standing.errors, f.standing.stalls)
	return b.String()
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// globe makes the table of the regions, and has the phases begin.
type globe struct {
	planet *planet
	ledger *ledger
	begun  time.Time
	length time.Duration
	coming []phase // those that have not begun yet
	done   []phase
	slices [][]regionCounts // the last second's, the newest last
	taken  []time.Time
}

// watch shows what happens, and has the phases begin, until they are over, ctx is
// done, or a gateway has failed.
func (g *globe) watch(ctx context.Context, s *screen) {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for ticks := 1; ; ticks++ {
		var now time.Time
		select {
		case <-ctx.Done():
			return
		case now = <-tick.C:
		}
		if g.step(now) || len(g.planet.broken()) > 0 {
			return
		}
		if ticks%(int(redraw/stepInterval)) != 0 {
			continue
		}
		g.take(now)
		switch {
		case s.terminal:
			s.draw(g.frame(now))
		case ticks%int(time.Second/stepInterval) == 0:
			s.say(g.frame(now).short())
		}
	}
}

// step has the next phase begin if it is time, and says whether all is over.
func (g *globe) step(now time.Time) (over bool) {
	elapsed := now.Sub(g.begun)
	if len(g.coming) > 0 && elapsed >= g.coming[0].after {
		g.planet.begin(g.coming[0])
		g.done, g.coming = append(g.done, g.coming[0]), g.coming[1:]
	}
	return elapsed >= g.length
}

// take notes what happened since it was called last.
func (g *globe) take(now time.Time) {
	g.slices = append(g.slices, g.ledger.next())
	g.taken = append(g.taken, now)
	if len(g.slices) > averaged {
		g.slices = g.slices[1:]
		g.taken = g.taken[len(g.taken)-averaged-1:]
	}
}

// globeFrame is what the table of the regions shows of one moment.
type globeFrame struct {
	title             string
	elapsed, duration time.Duration
	next              string
	limit             int // of all customers, in per
	per               time.Duration
	rows              []regionRow
	events            []event
	begun             time.Time
	standing          standing
}

// regionRow is one region, over the last second.
type regionRow struct {
	name    string
	cut     bool
	counts  regionCounts
	over    time.Duration // what the counts are of
	granted int           // in the last per
}

func (g *globe) frame(now time.Time) *globeFrame {
	p := g.planet
	f := &globeFrame{
		title: p.title(), elapsed: now.Sub(g.begun), duration: g.length, begun: g.begun,
		limit: customers * int(p.limit), per: p.per, standing: g.ledger.standing(), next: "then the verdict",
	}
	if len(g.coming) > 0 {
		f.next = fmt.Sprintf("%s: in %.0f s", g.coming[0].name, max(0, g.coming[0].after-f.elapsed).Seconds())
	}
	over := now.Sub(g.begun)
	if len(g.taken) > len(g.slices) {
		over = g.taken[len(g.taken)-1].Sub(g.taken[0])
	}
	held := g.ledger.lately(now.UnixNano(), p.per)
	for i, name := range p.regions {
		row := regionRow{name: name, cut: p.now.Load().cut && i == thenBusy, over: over, granted: held[i]}
		for _, s := range g.slices {
			row.counts.add(&s[i])
		}
		f.rows = append(f.rows, row)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.events = slices.Clone(p.events)
	return f
}

func (r *regionRow) asks() string {
	return number(int(float64(r.counts.asked)/max(r.over.Seconds(), 1e-3) + 0.5))
}

// perSecond is what was granted in per, a second.
func perSecond(granted int, per time.Duration) string {
	return strconv.FormatFloat(float64(granted)/per.Seconds(), 'f', 0, 64)
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
		progress(f.elapsed, f.duration, f.next, width),
		nil,
		line{}.add(dim, "region    asks/s  granted/s  check p50  check p99  request p99  of the Global limit"),
	}
	bar := max(1, min(40, width-73))
	for i := range f.rows {
		r := &f.rows[i]
		name := colour(bold)
		if r.cut {
			name = red
		}
		filled := min(bar, (r.granted*bar+f.limit/2)/max(1, f.limit))
		l := line{}.add(name, fmt.Sprintf("%-7s", r.name)).
			add(plain, fmt.Sprintf(" %8s  ", r.asks())).add(bold, right(perSecond(r.granted, f.per), 9)).
			add(plain, fmt.Sprintf("  %9s  %9s  %11s  ", short(r.counts.checks.Quantile(0.5)), short(r.counts.checks.Quantile(0.99)), short(r.counts.took.Quantile(0.99)))).
			add(cyan, strings.Repeat("█", filled)).add(dim, strings.Repeat("░", bar-filled))
		if r.cut {
			l = l.add(red, " cut off")
		}
		all = append(all, l)
	}
	all = append(all,
		line{}.add(plain, "all regions       ").add(bold, right(perSecond(f.sum(), f.per), 9)).add(plain, " of "+perSecond(f.limit, f.per)).add(dim, ", in the last "+f.per.String()+", a second"),
		nil,
		f.standing.line(),
		nil,
	)
	room := max(0, height-1-len(all))
	for _, e := range f.events[max(0, len(f.events)-room):] {
		all = append(all, e.line(f.begun))
	}
	return all[:min(len(all), max(height-1, 1))]
}

// short is the frame in one line, for what is no terminal.
func (f *globeFrame) short() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s ", f.elapsed.Seconds())
	for i := range f.rows {
		r := &f.rows[i]
		fmt.Fprintf(&b, " %s %s/s %s ok %s ", r.name, r.asks(), perSecond(r.granted, f.per), short(r.counts.checks.Quantile(0.99)))
	}
	fmt.Fprintf(&b, " sum %s of %s  %d errors, %d stalls", perSecond(f.sum(), f.per), perSecond(f.limit, f.per), f.standing.errors, f.standing.stalls)
	return b.String()
}

// progress is how far a run is and what comes next.
func progress(elapsed, duration time.Duration, next string, width int) line {
	label := fmt.Sprintf("%5.1f s of %v  ", elapsed.Seconds(), duration)
	bar := max(0, min(30, width-utf8.RuneCountInString(label)-utf8.RuneCountInString(next)-4))
	done := 0
	if duration > 0 {
		done = min(bar, int(int64(bar)*int64(elapsed)/int64(duration)))
	}
	return line{}.add(plain, label).add(cyan, strings.Repeat("━", done)).add(dim, strings.Repeat("━", bar-done)).add(dim, "  "+next)
}

// line is the sums so far.
func (s standing) line() line {
	good := func(n int) colour {
		if n == 0 {
			return green
		}
		return red
	}
	return line{}.add(plain, number(s.requests)+" requests answered, ").
		add(good(s.errors), number(s.errors)+" errors").add(plain, ", ").
		add(good(s.stalls), number(s.stalls)+" stalls")
}

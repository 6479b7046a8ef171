package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/bounds"
)

// The axes of the chart lie within these bounds, in units of the picture. The legend is
// to the right of the axes, and covers no curve.
const (
	chartWidth, chartHeight = 900, 400
	chartLeft, chartRight   = 60, 700
	chartTop, chartBottom   = 34, 352
	chartSamples            = 600
	chartNames              = 16 // maximum number of faults with names; if there are more, only their times are marked
)

// Colours that colour-blind readers can distinguish (Okabe and Ito). The white background
// is painted, so that the chart looks the same on a dark page. Each side has its own dashes,
// and other curves with the same dashes differ in width or shape, so that a print without
// colours is readable too.
const (
	ink, faint, shade, verdict = "#222222", "#888888", "#EEE6D8", "#D55E00"
	firstSide, laterSides      = "#0072B2", "#009E73 #CC79A7 #E69F00"
)

var errNothingToDraw = errors.New("no key was checked, so there is nothing to draw")

// point is a time in seconds, and a number of units.
type point struct{ x, y float64 }

type curve []point

// picture is an SVG image that is being written.
type picture struct {
	bytes.Buffer
	right, top float64 // ends of the axes, in seconds and units
	named      int     // number of curves in the legend
}

func (p *picture) x(seconds float64) float64 {
	return chartLeft + seconds/p.right*(chartRight-chartLeft)
}

func (p *picture) y(units float64) float64 {
	return chartBottom - units/p.top*(chartBottom-chartTop)
}

func (p *picture) writeText(x, y float64, more, format string, args ...any) {
	fmt.Fprintf(p, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, more, html.EscapeString(fmt.Sprintf(format, args...)))
}

func (p *picture) drawLine(name, colour string, width float64, dashes string, c curve) {
	style := fmt.Sprintf("fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-dasharray=\"%s\"", colour, width, dashes)
	fmt.Fprintf(p, "<path %s d=\"", style)
	for i, at := range c {
		fmt.Fprintf(p, "%c%.1f,%.1f", "ML"[min(i, 1)], p.x(at.x), p.y(at.y))
	}
	p.WriteString("\"/>\n")
	if name != "" {
		y := float64(chartTop + 12 + 16*p.named)
		fmt.Fprintf(p, "<path %s d=\"M%d,%.1fh24\"/>\n", style, chartRight+12, y-4)
		p.writeText(chartRight+42, y, "", "%s", name)
		p.named++
	}
}

// drawAxes draws the axes and their names. Ticks are 1, 2 or 5 times a power of ten apart.
func (p *picture) drawAxes(units string) {
	step := func(to float64) float64 {
		power := math.Pow(10, math.Floor(math.Log10(to/4)))
		for _, n := range []float64{5, 2} {
			if n*power <= to/4 {
				return n * power
			}
		}
		return power
	}
	for x := 0.0; x <= p.right; x += step(p.right) {
		p.writeText(p.x(x), chartBottom+16, "text-anchor=\"middle\"", "%.4g", x)
	}
	for y := 0.0; y <= p.top; y += step(p.top) {
		p.writeText(chartLeft-6, p.y(y)+4, "text-anchor=\"end\"", "%.6g", y)
	}
	p.drawLine("", ink, 0.7, "", curve{{0, p.top}, {0, 0}, {p.right, 0}})
	p.writeText((chartLeft+chartRight)/2, chartHeight-14, "text-anchor=\"middle\"", "seconds")
	p.writeText(0, 0, fmt.Sprintf("text-anchor=\"middle\" transform=\"translate(14 %d) rotate(-90)\"", (chartTop+chartBottom)/2), "%s", units)
}

// drawChart returns the chart of a run as SVG, for the key that was asked for the most
// units. Curves show the units that each side admitted in the Per that ends at each time.
// Lines show the limit and the bound. The time of a split is shaded, and faults are
// marked.
func drawChart(j *Journal) ([]byte, error) {
	a := newTrial(j).mostAsked()
	if a == nil {
		return nil, errNothingToDraw
	}
	s, limit := j.Scenario, float64(a.l.Rate)
	var sides [mostSides]curve
	var all, bound curve
	samples := a.samples(s.Lasts, chartSamples)
	for _, at := range samples {
		x := at.at.Seconds()
		for i, units := range at.sides {
			sides[i] = append(sides[i], point{x, float64(units)})
		}
		all, bound = append(all, point{x, float64(at.all)}), append(bound, point{x, float64(bounds.Bound(a.l, at.Situation))})
	}
	n := len(samples[0].sides)
	p := &picture{right: s.Lasts.Seconds(), top: limit}
	for _, at := range slices.Concat(all, bound) {
		p.top = max(p.top, at.y)
	}
	p.top *= 1.25 // room for the names of faults
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"Liberation Sans,Arial,Helvetica,sans-serif\" font-size=\"12\" fill=\"%s\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#FFFFFF\"/>\n",
		chartWidth, chartHeight, ink)
	for _, t := range a.shadedSpans() {
		if from, to := p.x(t.from.Seconds()), p.x(min(t.to, s.Lasts).Seconds()); from < to {
			fmt.Fprintf(p, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", from, chartTop, to-from, chartBottom-chartTop, shade)
		}
	}
	p.writeText(chartLeft, 18, "", "%s: %s, key %d (%v, %d per %v, %s), seed %d", s.Name, a.l.Name, a.key, a.l.Algorithm, a.l.Rate, a.l.Per, a.l.Partition, s.Seed)
	p.drawAxes(fmt.Sprintf("units in %v", a.l.Per))
	for i, f := range s.Faults {
		at := f.At.Seconds()
		p.drawLine("", faint, 0.5, "1 2", curve{{at, 0}, {at, p.top}})
		if len(s.Faults) <= chartNames {
			p.writeText(p.x(at)+3, p.y(p.top*(0.97-0.05*float64(i%4))), "font-size=\"9\"", "%s", faultLabel(f))
		}
	}
	p.drawLine("bound", verdict, 1, "2 2", bound)
	p.drawLine("limit", ink, 1.5, "", curve{{0, limit}, {p.right, limit}})
	places := "sides"
	if a.planet != nil {
		places = "regions"
	}
	if n > 1 {
		p.drawLine("all "+places, faint, 1, "6 2", all)
	}
	names, colours := a.placeNames(n, s.Lasts), append([]string{firstSide}, strings.Fields(laterSides)...)
	for i, c := range sides[:n] {
		p.drawLine(names[i], colours[i], 1.5, []string{"", "6 2", "4 2", "2 2"}[i], c)
	}
	p.WriteString("</svg>\n")
	return p.Bytes(), nil
}

// placeNames returns the names of the sides, by place. A name lists the nodes of the side
// if these are the same in each split. The units of a region without a split have the
// first place, too.
func (a *asks) placeNames(places int, lasts time.Duration) []string {
	if a.planet != nil {
		return a.planet.names
	}
	if places == 1 {
		return []string{"admitted"}
	}
	var names []string
	for i := range places {
		names = append(names, fmt.Sprint("side ", i+1))
	}
	var splits [][]string
	for _, e := range a.course.eras {
		if split := e.sideNames(a.course.scenario.Nodes); len(split) > 1 && e.from < lasts && !slices.ContainsFunc(splits, func(s []string) bool { return slices.Equal(s, split) }) {
			splits = append(splits, split)
		}
	}
	if len(splits) == 1 {
		copy(names, splits[0])
	}
	names[0] = "whole, or " + names[0]
	return names
}

// shadedSpans returns the spans with several sides. For a Global limit,
// it returns the spans in which a region does not reach another region.
func (a *asks) shadedSpans() (all []span) {
	if a.planet != nil {
		return a.planet.torn
	}
	for _, e := range a.course.eras {
		if e.sides > 1 {
			all = append(all, span{e.from, e.to})
		}
	}
	return all
}

// sample is the number of units that were admitted in the Per that ends at a time.
type sample struct {
	at        time.Duration
	sides     []int64 // the units of each side in the order of era.rank, or of each region if the limit is Global
	all       int64   // units, on all sides
	situation         // the situation in that Per
}

// mostSides is the maximum length of sample.sides. The last element is the sum over all
// further sides.
const mostSides = 4

// samples returns n+1 samples at equal intervals from the start of the scenario to its end.
func (a *asks) samples(lasts time.Duration, n int) (samples []sample) {
	places := 1
	for _, e := range a.course.eras {
		if e.from < lasts {
			places = max(places, a.countPlaces(e.from))
		}
	}
	in := make([]int64, min(places, mostSides))
	count := func(at int32, sign int64) {
		c := &a.checks[at]
		in[min(a.placeOf(c.Asked, c.Node), len(in)-1)] += sign * c.Units
	}
	first, next := 0, 0
	for i := range n + 1 {
		s := sample{at: lasts * time.Duration(i) / time.Duration(n)}
		for ; next < len(a.ends) && a.checks[a.ends[next]].Answered < s.at; next++ {
			count(a.ends[next], 1)
		}
		for ; first < next && a.checks[a.ends[first]].Answered < s.at-a.l.Per; first++ {
			count(a.ends[first], -1)
		}
		s.sides, s.situation = slices.Clone(in), a.situation(s.at-a.l.Per)
		for _, units := range in {
			s.all += units
		}
		samples = append(samples, s)
	}
	return samples
}

// mostAsked returns the count that was asked for the most units, or nil if there is none.
func (r *trial) mostAsked() *asks {
	var most *asks
	var units int64
	for _, a := range r.asks {
		var asked int64
		for _, i := range a.of {
			asked += a.checks[i].Units
		}
		if asked > units {
			most, units = a, asked
		}
	}
	return most
}

// faultLabel returns a short description of a fault.
func faultLabel(f Fault) string {
	f.Sides = slices.Clone(f.Sides)
	for i, side := range f.Sides {
		f.Sides[i] = []string{sideLabel(side)}
	}
	short, _, _ := strings.Cut(f.describe(), ":")
	return strings.ReplaceAll(short, " → ", "→")
}

// sideNames returns a name for each side, which lists its nodes. The largest side is first.
func (e *era) sideNames(nodes []Node) []string {
	of := make([][]string, e.sides)
	for node, side := range e.side {
		if side >= 0 {
			place := e.rank(node)
			of[place] = append(of[place], nodes[node].Name)
		}
	}
	names := make([]string, e.sides)
	for i, side := range of {
		names[i] = sideLabel(side)
	}
	return names
}

// sideLabel returns the names of the nodes of a side. For more than five nodes, it returns
// the first name and the number of the other nodes.
func sideLabel(side []string) string {
	if len(side) > 5 {
		return fmt.Sprintf("%s and %d more", side[0], len(side)-1)
	}
	return strings.Join(side, " ")
}

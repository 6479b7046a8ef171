package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	canvas "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	chartWidth   = 10 * vg.Inch
	chartHeight  = 4.5 * vg.Inch
	legendWidth  = 2.2 * vg.Inch
	legendTop    = 0.4 * vg.Inch
	chartSamples = 600
	chartNames   = 16 // faults that are named; of more, only the moments are marked
)

// Colours that the colour-blind can tell apart (Okabe and Ito), on a white that is
// painted: a dark page shows the same chart. In print the dashes tell.
var (
	paper   = color.White
	ink     = color.RGBA{0x22, 0x22, 0x22, 0xff}
	shade   = color.RGBA{0xee, 0xe6, 0xd8, 0xff}
	faint   = color.RGBA{0x88, 0x88, 0x88, 0xff}
	verdict = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
)

// sideColours has one colour for each place among the sides; the last serves all
// further ones.
func sideColours(place int) color.Color {
	colours := []color.Color{
		color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
		color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	}
	return colours[min(place, len(colours)-1)]
}

var errNothingToDraw = errors.New("nothing was asked: there is nothing to draw")

// draw is the chart of a run as SVG: of the key that was asked most, the units
// that each side admitted in the Per that ends at each moment, with the limit and
// the bound as lines, the time of a split shaded, and the faults marked.
func draw(j *Journal) ([]byte, error) {
	p, err := chart(j)
	if err != nil {
		return nil, err
	}
	c := vgsvg.New(chartWidth, chartHeight)
	page := canvas.New(c)
	// The legend has a column of its own, so that it covers no curve.
	legend := p.Legend
	p.Legend = plot.NewLegend()
	page.SetColor(paper)
	page.Fill(page.Rectangle.Path())
	p.Draw(canvas.Crop(page, 0, -legendWidth, 0, 0))
	legend.Draw(canvas.Crop(page, chartWidth-legendWidth+vg.Points(8), 0, 0, -legendTop))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	// A viewer that has not the font of the measure has one like it.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

func chart(j *Journal) (*plot.Plot, error) {
	r := newTrial(j)
	a := r.mostAsked()
	if a == nil {
		return nil, errNothingToDraw
	}
	p := a.paper(j.Scenario)
	lasts := j.Scenario.Lasts
	sides, all, bound := a.samples(lasts)
	limit := float64(a.l.Rate)
	top := limit
	for _, line := range []plotter.XYs{all, bound} {
		for _, xy := range line {
			top = max(top, xy.Y)
		}
	}
	top *= 1.25 // room for the names of faults
	p.X.Min, p.X.Max = 0, lasts.Seconds()
	p.Y.Min, p.Y.Max = 0, top

	for _, s := range a.shaded() {
		if s.from >= lasts {
			continue
		}
		from, to := s.from.Seconds(), min(s.to, lasts).Seconds()
		band, err := plotter.NewPolygon(plotter.XYs{{X: from}, {X: to}, {X: to, Y: top}, {X: from, Y: top}})
		if err != nil {
			return nil, err
		}
		band.Color, band.LineStyle.Width = shade, 0
		p.Add(band)
	}
	line := func(name string, xys plotter.XYs, c color.Color, width float64, dashes ...vg.Length) error {
		l, err := plotter.NewLine(xys)
		if err != nil {
			return err
		}
		l.Color, l.Width, l.Dashes = c, vg.Points(width), dashes
		p.Add(l)
		if name != "" {
			p.Legend.Add(name, l)
		}
		return nil
	}
	var names plotter.XYLabels
	for i, f := range j.Scenario.Faults {
		at := f.At.Seconds()
		if err := line("", plotter.XYs{{X: at}, {X: at, Y: top}}, faint, 0.5, vg.Points(1), vg.Points(2)); err != nil {
			return nil, err
		}
		if len(j.Scenario.Faults) <= chartNames {
			names.XYs = append(names.XYs, plotter.XY{X: at, Y: top * (0.97 - 0.05*float64(i%4))})
			names.Labels = append(names.Labels, " "+marked(f))
		}
	}
	err := errors.Join(
		line("bound", bound, verdict, 1, vg.Points(2), vg.Points(2)),
		line("limit", plotter.XYs{{X: 0, Y: limit}, {X: lasts.Seconds(), Y: limit}}, ink, 1.5),
	)
	together := "all sides"
	if a.planet != nil {
		together = "all regions"
	}
	if len(sides) > 1 {
		err = errors.Join(err, line(together, all, faint, 1, vg.Points(6), vg.Points(2)))
	}
	called := a.called(len(sides), lasts)
	for i, xys := range sides {
		name := called[i]
		var dashes []vg.Length
		if i > 0 {
			dashes = []vg.Length{vg.Points(float64(8 - min(2*i, 6))), vg.Points(2)}
		}
		err = errors.Join(err, line(name, xys, sideColours(i), 1.5, dashes...))
	}
	if err != nil {
		return nil, err
	}
	if len(names.XYs) > 0 {
		labels, err := plotter.NewLabels(names)
		if err != nil {
			return nil, err
		}
		for i := range labels.TextStyle {
			labels.TextStyle[i].Font.Variant, labels.TextStyle[i].Font.Size = "Sans", vg.Points(7)
			labels.TextStyle[i].Color = ink
		}
		p.Add(labels)
	}

	return p, nil
}

// paper is a plot without lines, named after what is asked.
func (a *asks) paper(s *Scenario) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = paper
	p.Title.Text = fmt.Sprintf("%s: %s, key %d (%v, %d per %v, %s), seed %d",
		s.Name, a.l.Name, a.key, a.l.Algorithm, a.l.Rate, a.l.Per, a.l.Partition, s.Seed)
	p.X.Label.Text = "seconds"
	p.Y.Label.Text = fmt.Sprintf("units in %v", a.l.Per)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	for _, style := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		style.Variant = "Sans"
	}
	for _, c := range []*color.Color{
		&p.Title.TextStyle.Color, &p.X.Label.TextStyle.Color, &p.Y.Label.TextStyle.Color, &p.X.Tick.Label.Color,
		&p.Y.Tick.Label.Color, &p.Legend.TextStyle.Color, &p.X.Color, &p.Y.Color, &p.X.Tick.Color, &p.Y.Tick.Color,
	} {
		*c = ink
	}
	return p
}

// called are the names of the sides, by place: their nodes, if these are the same in each
// split. The first place is that of all nodes while these are whole.
func (a *asks) called(places int, lasts time.Duration) []string {
	if a.planet != nil {
		return a.planet.names
	}
	if places == 1 {
		return []string{"admitted"}
	}
	names := make([]string, places)
	for _, g := range a.phases(lasts) {
		for i, name := range g.places {
			switch {
			case len(g.places) == 1 || i >= places:
			case names[i] == "":
				names[i] = name
			case names[i] != name && i == 0:
				names[i] = "the largest side"
			case names[i] != name:
				names[i] = fmt.Sprint("side ", i+1)
			}
		}
	}
	names[0] = "whole, or " + names[0]
	return names
}

// shaded is when there is more than one side; of a Global limit, when some region
// does not reach another.
func (a *asks) shaded() (all []span) {
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

// samples is what each side admitted in the Per that ends at each of so many
// moments, what all did, and the bound.
func (a *asks) samples(lasts time.Duration) (sides []plotter.XYs, all, bound plotter.XYs) {
	places := 1
	for _, e := range a.course.eras {
		if e.from < lasts {
			places = max(places, a.places(e.from))
		}
	}
	places = min(places, 4)
	sides = make([]plotter.XYs, places)
	in := make([]int64, places)
	count := func(at int32, sign int64) {
		c := &a.checks[at]
		in[min(a.place(c.Asked, c.Node), places-1)] += sign * c.Units
	}
	stretches := a.stretches()
	first, next := 0, 0
	for i := range chartSamples + 1 {
		t := lasts * time.Duration(i) / chartSamples
		for ; next < len(a.ends) && a.checks[a.ends[next]].Answered < t; next++ {
			count(a.ends[next], 1)
		}
		for ; first < next && a.checks[a.ends[first]].Answered < t-a.l.Per; first++ {
			count(a.ends[first], -1)
		}
		var sum int64
		for place := range sides {
			sides[place] = append(sides[place], plotter.XY{X: t.Seconds(), Y: float64(in[place])})
			sum += in[place]
		}
		all = append(all, plotter.XY{X: t.Seconds(), Y: float64(sum)})
		bound = append(bound, plotter.XY{X: t.Seconds(), Y: float64(stretches.next(t - a.l.Per).bound(a.l))})
	}
	return sides, all, bound
}

// marked is a fault in a few letters.
func marked(f Fault) string {
	f.Sides = slices.Clone(f.Sides)
	for i, side := range f.Sides {
		f.Sides[i] = []string{named(side)}
	}
	short, _, _ := strings.Cut(f.says(), ":")
	return strings.ReplaceAll(short, " → ", "→")
}

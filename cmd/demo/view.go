package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// view contains the data that is shown of a run at some time.
type view struct {
	title             string
	elapsed, duration time.Duration
	next              string // the next event
	columns           []column
	rows              [][]line // with a cell for each column; the last cell may be wider than its column
	below             []line   // lines below the table, if there is room
	standing          standing
	story             []line
	legend            []string
}

// column is a column of the table. If the table is too wide, the columns with the highest
// sacrifice are dropped first. A column with a sacrifice of 0 is never dropped.
type column struct {
	title     string
	width     int
	sacrifice int
	text      func(row) string
}

// unknown is the text of a cell without a figure.
const unknown = "–"

// table returns the header and the rows of the table.
func (v *view) table(width int) []line {
	left := make([]bool, len(v.columns))
	for {
		need, worst := -1, 0 // there is no space after the last column
		for i, c := range v.columns {
			if !left[i] {
				need, worst = need+c.width+1, max(worst, c.sacrifice)
			}
		}
		if need <= width || worst == 0 {
			break
		}
		for i, c := range v.columns {
			left[i] = left[i] || c.sacrifice == worst
		}
	}
	header := make([]line, len(v.columns))
	for i, c := range v.columns {
		header[i] = line{}.add(dim, c.title)
	}
	var all []line
	for _, row := range slices.Concat([][]line{header}, v.rows) {
		l := line{}
		for i, cell := range row {
			switch last := len(row) - 1; {
			case i == last:
				l = append(l, cell...)
			case !left[i]:
				l = append(l.add(plain, strings.Repeat(" ", max(0, v.columns[i].width-len(cell)))), cell...).add(plain, " ")
			}
		}
		all = append(all, l)
	}
	return all
}

// progress returns the progress of the run, and the next event.
func (v *view) progress(width int) []line {
	label := fmt.Sprintf("%5.1f s of %v  ", v.elapsed.Seconds(), v.duration)
	columns := min(30, width-utf8.RuneCountInString(label+v.next)-2)
	l := line{}.add(plain, label)
	if columns >= 5 {
		done := min(columns, int(int64(columns)*int64(v.elapsed)/max(1, int64(v.duration))))
		l = l.add(cyan, strings.Repeat("━", done)).add(dim, strings.Repeat("━", columns-done)+"  ")
	}
	return l.add(dim, v.next).wrap(width, utf8.RuneCountInString(label))
}

// lines returns the lines of the view. If the view is too high, the legend is dropped
// first, then the lines below the table, and then events.
func (v *view) lines(width, height int) []line {
	all := line{}.add(bold, "weir").add(plain, "  "+v.title).wrap(width, 6)
	all = append(append(all, v.progress(width)...), nil)
	all = append(all, v.table(width)...)
	foot, below, story := []line{nil, v.standing.line()}, []line{nil}, []line{nil}
	for _, l := range v.below {
		below = append(below, l.wrap(width, 0)...)
	}
	for _, l := range v.story {
		story = append(story, l.wrap(width, storyIndent)...)
	}
	legend := []line{nil}
	for _, text := range v.legend {
		legend = append(legend, line{}.add(dim, text).wrap(width, 0)...)
	}
	room := height - 1 - len(all) - len(foot)
	if room < len(below)+len(legend)+5 {
		legend = nil
	}
	if room < len(below)+4 {
		below = nil
	}
	all = append(append(all, below...), foot...)
	if most := min(room-len(below)-len(legend)-1, eventsShown, len(story)-1); most > 0 {
		all = append(append(all, nil), story[len(story)-most:]...)
	}
	all = append(all, legend...)
	return all[:min(len(all), max(height-1, 1))]
}

// eventsShown is the maximum number of lines of the story in the view.
const eventsShown = 9

type standing struct{ requests, errors, stalls int }

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

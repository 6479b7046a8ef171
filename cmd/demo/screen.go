package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// colour is a terminal's way to write text: an SGR sequence's number.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// palette paints text, if colours are wanted.
type palette bool

func (p palette) paint(c colour, text string) string {
	if !p || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// line is painted text that can be cut to a width.
type line []painted

type painted struct {
	colour colour
	text   string
}

func (l line) add(c colour, text string) line { return append(l, painted{c, text}) }

// render is the line in at most width columns. Every rune that the demo writes
// takes one.
func (l line) render(p palette, width int) string {
	out := ""
	for _, part := range l {
		text := []rune(part.text)
		text = text[:min(len(text), max(width, 0))]
		width -= len(text)
		out += p.paint(part.colour, string(text))
	}
	return out
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// bar is a part of a whole, width columns wide.
func bar(paint colour, full, empty string, filled, width int) line {
	filled = min(max(filled, 0), width)
	return line{}.add(paint, strings.Repeat(full, filled)).add(dim, strings.Repeat(empty, width-filled))
}

// screen is where the demo shows itself: a table that is drawn again in place
// on a terminal, and lines one after the other elsewhere.
type screen struct {
	out      *os.File
	terminal bool
	palette  palette

	mu            sync.Mutex
	drawn         int // lines of the table that stand above the cursor
	width, height int
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out, terminal: term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"}
	s.palette = palette(s.terminal && os.Getenv("NO_COLOR") == "")
	return s
}

// drawing is what fits itself into a terminal, and into one line where there is none.
type drawing interface {
	lines(width, height int) []line
	short() string
}

// draw shows a frame on a terminal.
func (s *screen) draw(f drawing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	var b strings.Builder
	switch {
	case s.width == 0:
		b.WriteString("\x1b[?25l")
	case s.width != width || s.height != height: // what stands there has been wrapped
		b.WriteString("\x1b[H\x1b[2J")
		s.drawn = 0
	}
	s.width, s.height = width, height
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", s.drawn)
	}
	// The last column stays empty: some terminals wrap behind it.
	lines := f.lines(width-1, height)
	for _, l := range lines {
		b.WriteString(l.render(s.palette, width-1))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = len(lines)
	s.out.WriteString(b.String())
}

// say writes a line below what stands there.
func (s *screen) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = 0
	fmt.Fprintln(s.out, text)
}

// close gives the terminal back.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		s.out.WriteString("\x1b[?25h")
		s.width = 0
	}
}

const (
	stepInterval = 10 * time.Millisecond
	// redraw is how often a terminal's table is drawn; the figures in it are those
	// of the last second.
	redraw   = 250 * time.Millisecond
	averaged = int(time.Second / redraw)
)

// lastSecond is what happened in it, in slices of redraw.
type lastSecond[T any] struct {
	slices []T         // the newest last
	taken  []time.Time // when each began, and the last one ended
}

func (l *lastSecond[T]) take(now time.Time, next T) {
	l.slices, l.taken = append(l.slices, next), append(l.taken, now)
	if len(l.slices) > averaged {
		l.slices, l.taken = l.slices[1:], l.taken[1:]
	}
}

// over is how long it was.
func (l *lastSecond[T]) over() time.Duration { return l.taken[len(l.taken)-1].Sub(l.taken[0]) }

// perSecond is a count within a time, a second.
func perSecond(n int, over time.Duration) int {
	return int(float64(n)/max(over.Seconds(), 1e-3) + 0.5)
}

// moment is how far a run is.
type moment struct {
	elapsed, duration time.Duration
	per               time.Duration
	begun             time.Time
	next              string // what is about to happen
	events            []event
	standing          standing
}

// progress is how far a run is and what comes next.
func (m *moment) progress(width int) line {
	label := fmt.Sprintf("%5.1f s of %v  ", m.elapsed.Seconds(), m.duration)
	columns := max(0, min(30, width-utf8.RuneCountInString(label)-utf8.RuneCountInString(m.next)-4))
	done := 0
	if m.duration > 0 {
		done = int(int64(columns) * int64(m.elapsed) / int64(m.duration))
	}
	return append(append(line{}.add(plain, label), bar(cyan, "━", "━", done, columns)...), line{}.add(dim, "  "+m.next)...)
}

// story is the last events, at most so many.
func (m *moment) story(most int) (lines []line) {
	for _, e := range m.events[max(0, len(m.events)-max(0, most)):] {
		lines = append(lines, e.line(m.begun))
	}
	return lines
}

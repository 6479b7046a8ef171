package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// colour is the number of an SGR sequence, by which a terminal paints text.
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

// line is painted text. Every rune that the demo writes takes a column.
type line []painted

type painted struct {
	colour colour
	rune   rune
}

func (l line) add(c colour, text string) line {
	for _, r := range text {
		l = append(l, painted{c, r})
	}
	return l
}

// render returns the line in at most width columns, painted if colours are wanted.
func (l line) render(colours bool, width int) string {
	var b strings.Builder
	now := plain
	paint := func(c colour) {
		if colours && c != now {
			b.WriteString("\x1b[0;" + string(c) + "m")
			now = c
		}
	}
	for _, p := range l[:min(len(l), max(width, 0))] {
		paint(p.colour)
		b.WriteRune(p.rune)
	}
	paint(plain)
	return b.String()
}

// wrap breaks the line at spaces into lines of at most width columns. It breaks a longer word
// at the width. All lines except the first are indented by hang columns.
func (l line) wrap(width, hang int) (all []line) {
	hang = min(hang, width/2)
	for indent := 0; len(l) > width; indent = hang {
		end, next := width, width
		for i := width; i > indent; i-- {
			if l[i].rune == ' ' {
				end, next = i, i+1
				break
			}
		}
		all = append(all, l[:end])
		l = append(line{}.add(plain, strings.Repeat(" ", hang)), l[next:]...)
	}
	return append(all, l)
}

// screen shows the demo: on a terminal, as a table that is redrawn in place, and
// elsewhere as a sequence of lines.
type screen struct {
	out      *os.File
	terminal bool
	colours  bool

	mu            sync.Mutex
	drawn         int // number of lines of the table above the cursor
	width, height int
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out, terminal: term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"}
	s.colours = s.terminal && os.Getenv("NO_COLOR") == ""
	return s
}

// plainWidth is the maximum length of lines without a terminal.
const plainWidth = 160

func (s *screen) size() (width, height int) {
	if !s.terminal {
		return plainWidth, 1000
	}
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 1 || height <= 0 {
		return 79, 24
	}
	return width - 1, height // some terminals wrap after the last column
}

// draw replaces the drawn lines on a terminal by the lines that make returns for its size.
func (s *screen) draw(make func(width, height int) []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height := s.size()
	var b strings.Builder
	switch {
	case s.width == 0:
		b.WriteString("\x1b[?25l")
	case s.width != width || s.height != height: // the terminal has wrapped the drawn lines
		b.WriteString("\x1b[H\x1b[2J")
		s.drawn = 0
	}
	s.width, s.height = width, height
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", s.drawn)
	}
	lines := make(width, height)
	for _, l := range lines {
		b.WriteString(l.render(s.colours, width) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = len(lines)
	s.out.WriteString(b.String())
}

// say prints the text as it is, below the lines that were drawn.
func (s *screen) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = 0
	fmt.Fprintln(s.out, text)
}

// print prints a line below the drawn lines, in as many lines as necessary. All lines
// except the first are indented by hang columns.
func (s *screen) print(l line, hang int) {
	width, _ := s.size()
	for _, l := range l.wrap(width, hang) {
		s.say(l.render(s.colours, width))
	}
}

// close restores the terminal.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		s.out.WriteString("\x1b[?25h")
		s.width = 0
	}
}

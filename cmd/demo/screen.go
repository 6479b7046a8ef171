package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

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

// drawing is what fits itself into a terminal.
type drawing interface {
	lines(width, height int) []line
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

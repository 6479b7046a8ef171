package main

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

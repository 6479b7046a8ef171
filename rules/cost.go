package rules

import (
	"strconv"
	"strings"
)

// cost is what a request costs.
type cost struct {
	fixed  int64  // also where a request does not say
	header string // canonical; or else
	length bool   // the content's
	unit   int64  // so much of the header's number, or of the length, is one unit
}

func (c *cost) of(r *Request) int64 {
	n := int64(-1)
	switch {
	case c.header != "":
		if lines := r.lines(c.header); len(lines) == 1 {
			n = count(strings.TrimSpace(lines[0]))
		}
	case c.length:
		n = r.Length
	}
	if n < 0 {
		return c.fixed
	}
	units := n / c.unit
	if n%c.unit > 0 {
		units++
	}
	return units
}

// count reads digits alone, -1 if there is anything else. What is beyond the
// largest number is the largest.
func count(text string) int64 {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return -1
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// String is the cost in words.
func (c *cost) String() string {
	from := ""
	switch {
	case c.header != "":
		from = headerPrefix + c.header
	case c.length:
		from = contentLength
	default:
		return strconv.FormatInt(c.fixed, 10)
	}
	if c.unit != 1 {
		from += "/" + strconv.FormatInt(c.unit, 10)
	}
	return from + ", or " + strconv.FormatInt(c.fixed, 10)
}

const contentLength = "content_length"

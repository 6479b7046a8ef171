package rules

import (
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
)

// cost is what a request costs.
type cost struct {
	fixed int64    // also where a request does not say
	from  []origin // the first that a request has
	unit  int64    // so much of the number is one unit
}

// origin is where a request says a number.
type origin struct {
	header string        // canonical; or else
	path   httpread.Path // of the content; or else
	length bool          // the content's
}

func (c *cost) of(r *Request) int64 {
	for i := range c.from {
		if n := c.from[i].of(r); n >= 0 {
			return inUnits(n, c.unit)
		}
	}
	return c.fixed
}

// inUnits returns how many units a number is, rounded up.
func inUnits(n, unit int64) int64 {
	units := n / unit
	if n%unit > 0 {
		units++
	}
	return units
}

// of returns the number of a request, -1 if it has none.
func (o *origin) of(r *Request) int64 {
	switch {
	case o.header != "":
		return single(r.lines(o.header))
	case o.path != nil && r.Content != nil:
		s := httpread.NewScanner(httpread.Sum{{Path: o.path}})
		s.Scan(r.Content.Head())
		if n, ok := s.Sum(); ok {
			return n
		}
	case o.length:
		return r.Length
	}
	return -1
}

// single reads the number in a field that is there once, -1 if there is none.
func single(lines []string) int64 {
	if len(lines) != 1 {
		return -1
	}
	return count(strings.TrimSpace(lines[0]))
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
	var b strings.Builder
	for _, o := range c.from {
		switch {
		case o.header != "":
			b.WriteString(headerPrefix + o.header)
		case o.path != nil:
			b.WriteString(jsonPrefix + o.path.String())
		case o.length:
			b.WriteString(contentLength)
		}
		if c.unit != 1 {
			b.WriteString("/" + strconv.FormatInt(c.unit, 10))
		}
		b.WriteString(", or ")
	}
	return b.String() + strconv.FormatInt(c.fixed, 10)
}

const (
	contentLength = "content_length"
	jsonPrefix    = "json:"
)

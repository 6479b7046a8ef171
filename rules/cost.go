package rules

import (
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
)

// cost determines the units of a request.
type cost struct {
	fixed int64    // units of a request without a number
	from  []origin // the number of the first origin that has a number is used
	unit  int64    // the number is divided by unit, and rounded up

	routes     []route // if the request meets any route, the cost is that of the first
	ignoreCase bool    // ignore the case of the paths of routes
}

// origin is a place in a request that has a number. Exactly 1 field is set.
type origin struct {
	header string        // canonical name of a header field
	path   httpread.Path // path in the JSON content
	length bool          // length of the content
}

func (c *cost) unitsOf(r *Request) int64 {
	if len(c.routes) > 0 {
		return c.unitsByRoute(r, c.baseOf(r))
	}
	return c.baseOf(r)
}

// baseOf returns the units of a request that meets no route.
func (c *cost) baseOf(r *Request) int64 {
	for i := range c.from {
		if n := c.from[i].numberIn(r); n >= 0 {
			return inUnits(n, c.unit)
		}
	}
	return c.fixed
}

// inUnits returns n / unit, rounded up.
func inUnits(n, unit int64) int64 {
	return n/unit + min(n%unit, 1)
}

// numberIn returns the number of a request, or -1.
func (o *origin) numberIn(r *Request) int64 {
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

// single returns the number in a field with a single line, or -1.
func single(lines []string) int64 {
	if len(lines) != 1 {
		return -1
	}
	return count(strings.TrimSpace(lines[0]))
}

// count returns the number in a text that has only digits, or -1. A number that is too large is
// the largest int64.
func count(text string) int64 {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return -1
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// String returns the cost as text.
func (c *cost) String() string {
	var b strings.Builder
	for i := range c.routes {
		b.WriteString(c.routes[i].text + ", ")
	}
	if len(c.routes) > 0 {
		b.WriteString("or ")
	}
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

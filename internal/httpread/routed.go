package httpread

import (
	"net/url"
	"strings"
)

// Routed returns a path that meets a route of echo or gin with the given values of its
// parameters, in order. Each value of a :parameter is one segment, whatever it has, and that of
// a * is the rest. It returns "" where the route cannot be read: it is empty, or has a
// backslash, or fewer values than parameters.
func Routed(route string, values []string) string {
	if route == "" || strings.IndexByte(route, '\\') >= 0 {
		return ""
	}
	var b strings.Builder
	for {
		at := strings.IndexAny(route, ":*")
		if at < 0 {
			b.WriteString(route)
			return b.String()
		}
		b.WriteString(route[:at])
		if len(values) == 0 {
			return ""
		}
		if route[at] == '*' {
			b.WriteString((&url.URL{Path: strings.TrimPrefix(values[0], "/")}).EscapedPath())
			return b.String()
		}
		b.WriteString(url.PathEscape(values[0]))
		values, route = values[1:], route[at:]
		end := strings.IndexByte(route, '/')
		if end < 0 {
			return b.String()
		}
		route = route[end:]
	}
}

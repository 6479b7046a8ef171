package httpread

import (
	"net/url"
	"strings"
)

// Routed returns a path that matches a route of echo or gin with the given values of its parameters,
// in order. The value of a :parameter is a single segment of any characters, and the value of a *
// is the rest of the path. Routed returns "" for a route that is empty, has a backslash, or has more
// parameters than values.
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

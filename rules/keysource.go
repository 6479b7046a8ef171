package rules

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/httpread"
)

// The functions of this file read values that clients choose. A client that sends one value to the limiter and
// another to the server would have a second count. So a value is ambiguous, and is not used, if two servers are
// known to read it differently from the same request. Values that some servers treat as equal are equal here too.

// Claims has the validated claims of a request, such as those of a token.
type Claims interface {
	// Claim returns the claim of a name, or "" if there is none.
	Claim(name string) string
}

// PathAmbiguity returns the name of a part that some servers read differently from others, such as "a semicolon",
// if Path or a Reading with AnyForm has such a part. Otherwise it returns "". It returns the name of an escaped
// slash only if there is no part of another kind.
func (r *Request) PathAmbiguity() string {
	why := httpread.Ambiguity(r.Path)
	for _, of := range r.Readings {
		if of.Form != AnyForm || of.Path == r.Path || why != "" && why != httpread.EscapedSlash {
			continue
		}
		if second := httpread.Ambiguity(of.Path); second != "" {
			why = second
		}
	}
	return why
}

// pathValue returns the value of a segment of the pattern, or the path without its final slashes if
// segment is -1.
func (k *key) pathValue(r *Request, segment int) (value string, ambiguous bool) {
	if len(r.Readings) == 0 || r.Readings[0].Form == AnyForm {
		if why := r.PathAmbiguity(); why != "" && why != httpread.EscapedSlash {
			return "", true
		}
	}
	fold := k.ignoreCase || r.IgnoreCase
	var room [lookupRoom]lookup
	found := false
	for _, l := range appendLookups(room[:0], r, fold) {
		of, ok := l.path, true
		if segment >= 0 {
			of, ok = k.pattern.segmentOf(l.path, segment, fold)
		} else if of = strings.TrimRight(of, "/"); of == "" {
			of = "/"
		}
		if !ok {
			continue
		}
		if l.escaped {
			of = unescape(of)
		}
		if fold {
			of = strings.ToLower(of)
		}
		if found && of != value {
			return "", true
		}
		value, found = of, true
	}
	return value, false
}

// segmentOf returns a segment of a path that the pattern matches.
func (p *pattern) segmentOf(path string, segment int, fold bool) (text string, ok bool) {
	if !p.meets(path, fold) {
		return "", false
	}
	path = path[1:]
	for range segment {
		_, path, _ = strings.Cut(path, "/")
	}
	text, _, _ = strings.Cut(path, "/")
	return text, true
}

// parameter returns the value of a parameter in a list such as a query. The argument separator, such as &, separates
// the pairs of the list. The argument other is a separator that only some servers accept. The value is ambiguous if
// the name occurs twice, or in a form that only some servers read as the name.
func parameter(list, name, separator, other string) (value string, ambiguous bool) {
	found := false
	for pair := range strings.SplitSeq(list, separator) {
		for piece := range strings.SplitSeq(pair, other) {
			of, text, _ := strings.Cut(piece, "=")
			if of = unescape(of); !isAlike(of, name) {
				continue
			}
			if found || piece != pair || strings.TrimSpace(of) != name {
				return "", true
			}
			value, found = text, true
		}
	}
	return value, false
}

// isAlike reports whether some servers read a text as the name of a parameter: they ignore the case, read
// a dot and a space as an underscore, and name[] as a list.
func isAlike(text, name string) bool {
	text = strings.TrimSpace(text)
	if i := strings.IndexByte(text, '['); i > 0 && strings.IndexByte(name, '[') < 0 {
		text = text[:i]
	}
	if len(text) != len(name) {
		return false
	}
	for i := range len(text) {
		if foldByte(text[i]) != foldByte(name[i]) {
			return false
		}
	}
	return true
}

func foldByte(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	case c == '.' || c == ' ':
		return '_'
	}
	return c
}

// queryValue returns the decoded value of a parameter of the query.
func (r *Request) queryValue(name string) (value string, ambiguous bool) {
	value, ambiguous = parameter(r.Query, name, "&", ";")
	if strings.ContainsAny(value, "%+") {
		var err error
		if value, err = url.QueryUnescape(value); err != nil {
			return "", true
		}
	}
	return trimValue(value, ambiguous)
}

// cookieValue returns the decoded value of a cookie. Some servers decode the value, and some also separate
// cookies by a comma.
func (r *Request) cookieValue(name string) (value string, ambiguous bool) {
	found := false
	for _, line := range r.lines("Cookie") {
		of, twice := parameter(line, name, ";", ",")
		if twice || found && of != "" {
			return "", true
		}
		if of != "" {
			value, found = of, true
		}
	}
	if strings.ContainsAny(value, "%+") {
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
	}
	return trimValue(strings.Trim(value, `"`), false)
}

// trimValue returns a value without spaces around it. A value is ambiguous if it contains
// a character at which some servers end the text, or which they replace.
func trimValue(value string, ambiguous bool) (string, bool) {
	if ambiguous || !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", true
	}
	return strings.TrimSpace(value), false
}

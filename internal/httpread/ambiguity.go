// Package httpread reads parts of HTTP requests that limits depend on. It finds paths that servers
// read in different ways, builds the path of a route, and recognizes names of secrets. It also finds
// numbers in the JSON of a body that arrives in parts, in bounded memory.
package httpread

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// EscapedSlash is the ambiguity of a path whose only ambiguous part is an escaped slash. Honest clients
// send such a path for a name that contains a slash: group%2Fproject.
const EscapedSlash = "an escaped slash"

// Ambiguity looks for parts of an escaped path that servers are known to read in different ways. It
// names one kind of such parts, and EscapedSlash only if the path has no other kind. It returns "" for
// a path without such parts. Except for EscapedSlash, honest clients rarely send such a path: they
// resolve dots (RFC 3986, section 5.2.4) and remove fragments, and the other characters are rare in
// names.
func Ambiguity(path string) string {
	plain := path
	if strings.IndexByte(path, '%') >= 0 {
		var err error
		if plain, err = url.PathUnescape(path); err != nil {
			return "an invalid escape"
		}
	}
	switch {
	case strings.IndexByte(path, '#') >= 0:
		return "a fragment"
	case strings.IndexByte(plain, '\\') >= 0:
		return "a backslash"
	case strings.IndexByte(plain, ';') >= 0:
		return "a semicolon"
	case strings.Contains(plain, "//"):
		return "an empty segment"
	case escapedTwice(plain):
		return "a double escape"
	case strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a control character"
	case !utf8.ValidString(plain):
		return "invalid UTF-8"
	case dotted(plain):
		return "a dot segment"
	case strings.Count(plain, "/") != strings.Count(path, "/"):
		return EscapedSlash
	}
	return ""
}

// escapedTwice reports whether a decoded path contains a second escape.
func escapedTwice(plain string) bool {
	for {
		i := strings.IndexByte(plain, '%')
		if i < 0 {
			return false
		}
		plain = plain[i+1:]
		if len(plain) >= 2 && isHex(plain[0]) && isHex(plain[1]) {
			return true
		}
	}
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// dotted reports whether a path has a segment "." or "..".
func dotted(plain string) bool {
	if strings.IndexByte(plain, '.') < 0 {
		return false
	}
	for segment := range strings.SplitSeq(plain, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

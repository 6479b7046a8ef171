package rules

import (
	"net/url"
	"slices"
	"strings"
)

// Reading is a path as a router compares it with the patterns of its routes. The same Reading
// stands for routers that clean paths and for routers that do not: rules are matched with both
// paths.
type Reading struct {
	Path string
	Form PathForm
}

// PathForm is the meaning of the escapes in a path for a router.
type PathForm uint8

const (
	// AnyForm is for unknown routers. They may decode the path before or after they split it
	// into segments, and may end it at a #.
	AnyForm PathForm = iota
	// Segmented is for routers that split the path before they decode it, so that an escaped
	// slash is part of a segment.
	Segmented
	// Decoded is for a path without escapes, in which % is an ordinary character.
	Decoded
)

// SetURL sets Path, Query and Readings for a request of net/http that any router may serve.
//
// The path as the client sent it is RawPath or, if RawPath is empty, the result of EscapedPath:
// package url sets RawPath only if the default escaping of Path differs from the path that was
// sent. If a handler has changed only Path or only RawPath, routers that read Path and routers that
// read RawPath see different paths. SetURL then sets Readings to both paths.
func (r *Request) SetURL(u *url.URL) {
	r.Path, r.Query, r.Readings = u.RawPath, u.RawQuery, nil
	if u.RawPath == "" {
		r.Path = u.EscapedPath()
		return
	}
	if plain, err := url.PathUnescape(u.RawPath); err != nil || plain != u.Path {
		r.Path = u.EscapedPath()
		r.Readings = []Reading{{Path: r.Path}, {Path: u.RawPath}}
	}
}

// lookup is a path that is looked up in a tree. The path begins with a slash.
type lookup struct {
	path    string
	escaped bool // segments are decoded before they are compared
}

// appendLookups appends the paths by which a request is looked up, without duplicates.
func appendLookups(dst []lookup, r *Request, ignoreCase bool) []lookup {
	if r.Readings == nil {
		dst = appendReading(dst, Reading{Path: r.Path})
	}
	for _, of := range r.Readings {
		dst = appendReading(dst, of)
	}
	if ignoreCase {
		for _, l := range dst {
			dst = appendNew(dst, lookup{strings.ToLower(l.path), l.escaped})
		}
	}
	return dst
}

// appendReading appends the paths of a reading.
func appendReading(dst []lookup, reading Reading) []lookup {
	dst = appendPath(dst, reading.Path, reading.Form != Decoded && strings.IndexByte(reading.Path, '%') >= 0)
	if reading.Form != AnyForm {
		return dst
	}
	if strings.IndexByte(reading.Path, '%') >= 0 {
		if plain, err := url.PathUnescape(reading.Path); err == nil {
			dst = appendPath(dst, plain, false)
		}
		// An escaped dot is a dot before segments are resolved, by RFC 3986, section 6.2.2.2.
		if strings.Contains(reading.Path, "%2e") || strings.Contains(reading.Path, "%2E") {
			dst = appendPath(dst, unescapeDots.Replace(reading.Path), true)
		}
	}
	if path, _, found := strings.Cut(reading.Path, "#"); found {
		dst = appendReading(dst, Reading{Path: path})
	}
	return dst
}

var unescapeDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// appendPath appends up to three readings of a path: the path unchanged, the path as ServeMux cleans
// it, and the path without the segments . and .. by RFC 3986, which keeps empty segments.
func appendPath(dst []lookup, path string, escaped bool) []lookup {
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	dst = appendNew(dst, lookup{path, escaped})
	if isClean(path) {
		return dst
	}
	dst = appendNew(dst, lookup{clean(path), escaped})
	if strings.Contains(path, "//") {
		dst = appendNew(dst, lookup{withoutDots(path), escaped})
	}
	return dst
}

func appendNew(dst []lookup, l lookup) []lookup {
	if slices.Contains(dst, l) {
		return dst
	}
	return append(dst, l)
}

// withoutDots removes . and .. as in RFC 3986, section 5.2.4.
func withoutDots(path string) string {
	var kept []string
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if i == len(segments)-1 {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// ReadingsDiffer reports whether the readings of the path of a request meet different rules.
func (s *Set) ReadingsDiffer(r *Request) bool {
	if exempts(&s.exempt, r) {
		return false
	}
	var room [lookupRoom]lookup
	paths := appendLookups(room[:0], r, s.ignoresCase(r))
	var first []*Rule
	for i := range paths {
		m := s.begin(r, nil)
		m.modes = s.modes
		s.collect(&m, paths[i:i+1])
		if i == 0 {
			first = m.dst
		} else if !slices.Equal(first, m.dst) {
			return true
		}
	}
	return false
}

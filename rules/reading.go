package rules

import (
	"net/url"
	"slices"
	"strings"
)

// Reading is a path as a router matches it with the patterns of its routes. A router that
// is known to clean paths, or not to, has the same Reading: both are judged.
type Reading struct {
	Path string
	Form PathForm
}

// PathForm tells what the escapes of a path mean to a router.
type PathForm uint8

const (
	// AnyForm is for routers that are not known: they may decode the path before or after
	// they split it into segments, and end it at a #.
	AnyForm PathForm = iota
	// Segmented is for routers that split the path first, so that an escaped slash is part of
	// a segment.
	Segmented
	// Decoded is for a path without escapes, in which each % stands for itself.
	Decoded
)

// SetURL sets Path and Readings to those of a request of net/http that goes to any router.
//
// RawPath, or else EscapedPath, is the path of the target as the client sent it: a URL has a
// RawPath wherever EscapedPath of the decoded Path is another text. Where a handler has changed
// Path or RawPath and not the other, routers that read one of them disagree with routers that
// read the other, so that both are judged.
func (r *Request) SetURL(u *url.URL) {
	r.Path, r.Readings = u.RawPath, nil
	if u.RawPath == "" {
		r.Path = u.EscapedPath()
		return
	}
	if plain, err := url.PathUnescape(u.RawPath); err != nil || plain != u.Path {
		r.Path = u.EscapedPath()
		r.Readings = []Reading{{Path: r.Path}, {Path: u.RawPath}}
	}
}

// lookup is a path that is looked up in a tree. It begins with a slash.
type lookup struct {
	path    string
	escaped bool // its segments are decoded before they are compared
}

// appendLookups appends the paths that a request is looked up by, each once.
func (s *Set) appendLookups(dst []lookup, r *Request) []lookup {
	if r.Readings == nil {
		dst = appendReading(dst, Reading{Path: r.Path})
	}
	for _, of := range r.Readings {
		dst = appendReading(dst, of)
	}
	if s.ignoresCase(r) {
		for _, l := range dst {
			dst = appendNew(dst, lookup{strings.ToLower(l.path), l.escaped})
		}
	}
	return dst
}

// appendReading appends the paths that one reading stands for.
func appendReading(dst []lookup, of Reading) []lookup {
	dst = appendPath(dst, of.Path, of.Form != Decoded && strings.IndexByte(of.Path, '%') >= 0)
	if of.Form != AnyForm {
		return dst
	}
	if strings.IndexByte(of.Path, '%') >= 0 {
		if plain, err := url.PathUnescape(of.Path); err == nil {
			dst = appendPath(dst, plain, false)
		}
		// An escaped dot is a dot before segments are resolved, by RFC 3986, section 6.2.2.2.
		if strings.Contains(of.Path, "%2e") || strings.Contains(of.Path, "%2E") {
			dst = appendPath(dst, unescapeDots.Replace(of.Path), true)
		}
	}
	if path, _, found := strings.Cut(of.Path, "#"); found {
		dst = appendReading(dst, Reading{Path: path})
	}
	return dst
}

var unescapeDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// appendPath appends a path as it is, as ServeMux cleans it, and without the segments . and
// .. as RFC 3986 removes them, which keeps empty segments.
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

// withoutDots resolves . and .. by RFC 3986, section 5.2.4.
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

// ReadingsDiffer reports whether some readings of the request's path meet rules that others do
// not meet.
func (s *Set) ReadingsDiffer(r *Request) bool {
	if !s.enabled || s.exempt.has(r) {
		return false
	}
	var room [lookupRoom]lookup
	paths := s.appendLookups(room[:0], r)
	var first []*Rule
	for i := range paths {
		m := s.begin(r, nil)
		s.collect(&m, paths[i:i+1])
		if i == 0 {
			first = m.dst
		} else if !slices.Equal(first, m.dst) {
			return true
		}
	}
	return false
}

package rules

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// kind is the kind of a segment of a pattern.
type kind uint8

const (
	literal kind = iota
	wild         // {x}: any single segment
	slash        // {$}: the end of the path, after a final slash
	rest         // {x...} or a final slash: any rest of the path
)

type segment struct {
	kind kind
	text string // text of a literal, without escapes
	name string // name of a wildcard
}

// pattern is a path pattern of http.ServeMux.
type pattern struct {
	text     string
	segments []segment // at least 1; slash and rest only at the end
}

// parsePattern reads a pattern, and refuses patterns that never match in a ServeMux, or whose
// meaning there differs from their appearance.
func parsePattern(text string) (pattern, error) {
	p := pattern{text: text}
	wrong := func(problem string) (pattern, error) {
		return pattern{}, fmt.Errorf("path is %q: %s", text, problem)
	}
	if problem := pathProblem(text); problem != "" {
		return wrong(problem)
	}
	seen := make(map[string]bool)
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		if part == "" { // only the last part can be empty, because the path is clean
			p.segments = append(p.segments, segment{kind: rest})
			break
		}
		if !strings.Contains(part, "{") {
			if problem := foreignSegment(text, part, last); problem != "" {
				return wrong(problem)
			}
			p.segments = append(p.segments, segment{kind: literal, text: unescape(part)})
			continue
		}
		kind, name, problem := wildcard(part, last)
		if problem != "" {
			return wrong(problem)
		}
		if name != "" && seen[name] {
			return wrong(fmt.Sprintf("the wildcard {%s} is used twice: give each wildcard its own name", name))
		}
		seen[name] = true
		p.segments = append(p.segments, segment{kind: kind, name: name})
	}
	return p, nil
}

// pathProblem returns the error of a pattern as a whole, or "".
func pathProblem(text string) string {
	switch {
	case text == "":
		return "use / for every path"
	case text[0] != '/' && foreignPath(text) != "":
		return foreignPath(text)
	case strings.ContainsAny(text, " \t"):
		return "a path has no space; a method has a field of its own, match.method"
	case text[0] != '/':
		return "begin it with /; a host has a field of its own, match.host"
	case strings.Contains(text, "?") && !strings.Contains(text, "="):
		return "? is not a wildcard, and a path has no query: use {name} for one segment, or %3F for the character"
	case strings.ContainsAny(text, "?#"):
		return "a path has no query; write %3F or %23 for the characters ? and #"
	case text != clean(text):
		return fmt.Sprintf("requests are matched by their clean path, did you mean %q?", clean(text))
	}
	return ""
}

// wildcard reads a segment with a brace. {$} has no name.
func wildcard(part string, last bool) (segmentKind kind, name, problem string) {
	if part[0] != '{' || part[len(part)-1] != '}' {
		return segmentKind, "", fmt.Sprintf("a wildcard is a whole segment, like {name}: %q is not", part)
	}
	name = part[1 : len(part)-1]
	if name == "$" && last {
		return slash, "", ""
	}
	segmentKind = wild
	bare, tail := strings.CutSuffix(name, "...")
	if tail {
		segmentKind = rest
	}
	switch {
	case name == "$":
		problem = "{$} is the end of a path: nothing can follow it"
	case foreignWildcard(bare) != "":
		problem = foreignWildcard(bare)
	case tail && !last:
		problem = part + " is the rest of a path: nothing can follow it"
	case !isName(bare):
		problem = fmt.Sprintf("the wildcard %s has no good name: use letters, digits and _, like {name}", part)
	}
	return segmentKind, bare, problem
}

// isName reports whether a text is a valid name of a wildcard: a Go identifier in ASCII.
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// wildcard returns the index of the segment of a wildcard that is not the rest, or -1.
func (p *pattern) wildcard(name string) int {
	return slices.IndexFunc(p.segments, func(s segment) bool { return s.kind == wild && s.name == name })
}

// generality returns three numbers, by which patterns are sorted: the segments before the rest, the
// literals (and {$}) among these segments, and 0 if there is a rest, otherwise 1. A pattern that
// matches all paths of another pattern and more is sorted before that pattern.
func (p pattern) generality() (fixed, literals, whole int) {
	whole = 1
	for _, s := range p.segments {
		switch s.kind {
		case rest:
			whole = 0
			continue
		case literal, slash:
			literals++
		}
		fixed++
	}
	return fixed, literals, whole
}

// example returns a path that the pattern matches.
func (p pattern) example() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteByte('/')
		switch s.kind {
		case literal:
			b.WriteString(url.PathEscape(s.text))
		case wild, rest:
			b.WriteByte('x')
		}
	}
	return b.String()
}

// clean returns a path without empty segments, . and .., as ServeMux does. A final slash is
// kept. Only a path that is not clean causes an allocation.
func clean(p string) string {
	if p == "" {
		return "/"
	}
	if p[0] != '/' {
		p = "/" + p
	}
	if isClean(p) {
		return p
	}
	c := path.Clean(p)
	switch {
	case p[len(p)-1] != '/' || c == "/":
		return c
	case len(c)+1 == len(p):
		return p
	}
	return c + "/"
}

// isClean reports whether a path has no empty segment and no segment that begins with a dot. A
// path like /.a is clean, but isClean returns false.
func isClean(p string) bool {
	for {
		i := strings.IndexByte(p, '/')
		if i < 0 {
			return true
		}
		p = p[i+1:]
		if p != "" && (p[0] == '/' || p[0] == '.') {
			return false
		}
	}
}

// unescape decodes a segment. An invalid escape is returned unchanged.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

package rules

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
)

// An Exception excludes requests from a rule that matches them: requests that meet all of its
// fields. An empty field is ignored; not all fields are empty.
//
// A request is excluded only if it cannot be read in a second way, so that no spelling of a
// request evades a rule. A path that servers are known to read in several ways (see
// httplimit.Options.RefuseAmbiguousPaths) meets no Paths, and each line of a header field must be
// one of the Values.
type Exception struct {
	Methods []string // upper case; GET includes HEAD
	Hosts   []string // as in Condition
	Paths   []string // patterns of http.ServeMux without method and host
	Headers []Header // all must be met
	Tiers   []string
	Clients

	methods  methods // every method if Methods is empty
	tiers    uint64  // as in Rule
	patterns []pattern
}

// String returns the exception as text, like "method OPTIONS, path /a or /b".
func (e *Exception) String() string {
	var parts []string
	add := func(what string, values []string) {
		if len(values) > 0 {
			parts = append(parts, what+" "+strings.Join(values, " or "))
		}
	}
	add("method", e.Methods)
	add("host", e.Hosts)
	add("path", e.Paths)
	for _, h := range e.Headers {
		if len(h.Values) == 0 {
			add("header", []string{h.Name})
			continue
		}
		add("header "+h.Name+":", h.Values)
	}
	add("tier", e.Tiers)
	e.Clients.appendParts(add)
	return strings.Join(parts, ", ")
}

// excludes reports whether a request meets all fields of the exception.
func (e *Exception) excludes(m *match) bool {
	if e.methods&m.method == 0 || e.tiers != 0 && e.tiers&m.tier == 0 {
		return false
	}
	if len(e.Hosts) > 0 && !coverHost(e.Hosts, hostOf(m.request.Host)) {
		return false
	}
	if !e.Clients.admits(m.request) {
		return false
	}
	if slices.ContainsFunc(e.Headers, func(h Header) bool { return !h.hasAll(m.request) }) {
		return false
	}
	return len(e.patterns) == 0 ||
		m.isPlain() && slices.ContainsFunc(e.patterns, func(p pattern) bool { return p.matches(m.path) })
}

// findExcluding returns the first of the exceptions that excludes a request, or nil.
func findExcluding(all []Exception, m *match) *Exception {
	for i := range all {
		if all[i].excludes(m) {
			return &all[i]
		}
	}
	return nil
}

// hasAll reports whether the request has the field, and each of its lines is one of the values.
// Without values, all lines are accepted.
func (h *Header) hasAll(r *Request) bool {
	lines := r.lines(h.Name)
	return len(lines) > 0 && (len(h.Values) == 0 ||
		!slices.ContainsFunc(lines, func(line string) bool { return !slices.Contains(h.Values, line) }))
}

// isPlain reports whether all servers read the path of the request in the same way.
func (m *match) isPlain() bool {
	if !m.looked {
		m.looked, m.path = true, clean(m.request.Path)
		m.plain = httpread.Ambiguity(m.request.Path) == ""
	}
	return m.plain
}

// matches reports whether the pattern matches a path, either unchanged or with a final
// slash, to which a ServeMux would redirect it.
func (p *pattern) matches(path string) bool { return p.meets(path, false) }

// meets is like matches. If fold is true, it ignores the case.
func (p *pattern) meets(path string, fold bool) bool {
	return p.finds(path, false, fold) || path[len(path)-1] != '/' && p.finds(path, true, fold)
}

// finds is like tree.find, for a single pattern. If fold is true, it ignores the case.
func (p *pattern) finds(path string, slashed, fold bool) bool {
	for i := range p.segments {
		s := &p.segments[i]
		switch {
		case s.kind == rest:
			return path != "" || slashed
		case s.kind == slash:
			return path == "/" || path == "" && slashed
		case path == "" || path == "/":
			return false
		}
		part, _, _ := strings.Cut(path[1:], "/")
		if s.kind == literal && s.text != part && s.text != unescape(part) && !(fold && strings.EqualFold(s.text, unescape(part))) {
			return false
		}
		path = path[1+len(part):]
	}
	return path == "" && !slashed
}

// covers reports whether p matches each path that q matches.
func (p *pattern) covers(q pattern) bool {
	for i, s := range p.segments {
		switch {
		case s.kind == rest:
			return true // q may end with or without a slash: p matches both
		case s.kind == slash:
			return i == len(q.segments) || i == len(q.segments)-1 && q.segments[i].kind == slash
		case i >= len(q.segments), q.segments[i].kind == rest, q.segments[i].kind == slash:
			return false
		case s.kind == literal && (q.segments[i].kind != literal || q.segments[i].text != s.text):
			return false
		}
	}
	return len(p.segments) == len(q.segments)
}

// kindAt returns the kind of a segment, or slash at the end of the pattern, because a final slash may follow.
func (p *pattern) kindAt(i int) kind {
	if i < len(p.segments) {
		return p.segments[i].kind
	}
	return slash
}

// overlaps reports whether a path exists that both patterns match.
func (p *pattern) overlaps(q pattern) bool {
	for i := 0; ; i++ {
		switch a, b := p.kindAt(i), q.kindAt(i); {
		case a == rest || b == rest:
			return true
		case a == slash || b == slash:
			return a == b
		case a == literal && b == literal && p.segments[i].text != q.segments[i].text:
			return false
		}
	}
}

// Exclusion is a rule that does not apply to a request because of an exception.
type Exclusion struct {
	Rule *Rule
	By   *Exception
}

// Excluded returns the rules that a request would meet without their exceptions, in the order of
// the file. This explains which rules Match does not return.
func (s *Set) Excluded(r *Request) (all []Exclusion) {
	met := s.Match(r, nil)
	for _, rule := range s.match(r, nil, true, s.modes) {
		if slices.Contains(met, rule) {
			continue
		}
		m := s.begin(r, nil)
		if e := findExcluding(rule.When.Not, &m); e != nil {
			all = append(all, Exclusion{rule, e})
		}
	}
	return all
}

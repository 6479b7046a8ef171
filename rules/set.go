package rules

import (
	"slices"
	"strings"
)

// position is a place in a file, both from 1.
type position struct{ line, column int }

// Set is a file's rules, compiled. It is safe for concurrent use because nothing changes it
// once Parse has returned it: Snapshots share it, and requests read it without a lock.
//
// limits and ruleOf have the same order, that of Limit.Index, by which a Snapshot keeps what
// counts. A tier is a bit of a uint64, so there are at most maxTiers of them.
type Set struct {
	name        string // of the file, for errors
	text        []byte
	version     uint64
	versionAt   position
	enabled     bool
	ignoreCase  bool // of paths, as if each request had IgnoreCase
	exempt      exempt
	tiers       []string
	tierAt      map[string]int
	defaultTier int // -1 if there is none

	rules  []*Rule
	limits []*Limit
	names  map[string]*Limit
	ruleOf []*Rule // of each limit
	any    tree    // for every host
	hosts  map[string]*tree
}

// Rules are in the order of the file. They must not be changed.
func (s *Set) Rules() []*Rule { return s.rules }

// Enabled is false if the file switches the whole limiter off.
func (s *Set) Enabled() bool { return s.enabled }

// Version is the file's version, which each of its limits has.
func (s *Set) Version() uint64 { return s.version }

// Tiers are the names of the tiers, in the order of the file. They must not be
// changed.
func (s *Set) Tiers() []string { return s.tiers }

// Tier is the tier that a request of the given one counts as: itself, if the
// file has it, else the default tier, which may be empty.
func (s *Set) Tier(tier string) string {
	if i := s.tier(tier); i >= 0 {
		return s.tiers[i]
	}
	return ""
}

// tier is the place of a tier in tiers, -1 if there is none.
func (s *Set) tier(name string) int {
	if name != "" {
		if i, ok := s.tierAt[name]; ok {
			return i
		}
	}
	return s.defaultTier
}

// Text is the file that the Set was made of. It must not be changed.
func (s *Set) Text() []byte { return s.text }

// Exempt reports whether a request is never limited: its address, user or API key
// is exempt. Match then finds no rule.
func (s *Set) Exempt(r *Request) bool { return s.exempt.has(r) }

// Limit finds a limit by its name.
func (s *Set) Limit(name string) (l *Limit, r *Rule, ok bool) {
	if l, ok = s.names[name]; !ok {
		return nil, nil, false
	}
	return l, s.ruleOf[l.Index], true
}

// Match appends to dst the rules that a request meets, in the order of the file:
// none if it is exempt or the limiter is switched off. It stops one above MaxMet, because
// no node can decide on so many. It allocates nothing where
// dst has the room, unless the path is not clean, or has escapes or a #, or the host has
// upper case.
//
// A request meets the rules of each reading of its path (see Request.Readings). A reading is
// matched as http.ServeMux would, both as it is and cleaned (without //, . and ..). So /a is
// matched by /a/ and by /a/{x...} too, as it would be redirected there.
//
// An Exception leaves a request out only if its path has one reading.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule { return s.match(r, dst, false) }

// match is Match; with all, it does not look at exceptions.
func (s *Set) match(r *Request, dst []*Rule, all bool) []*Rule {
	if !s.enabled || s.exempt.has(r) {
		return dst
	}
	m := s.begin(r, dst)
	m.all = all
	var room [lookupRoom]lookup
	s.collect(&m, s.appendLookups(room[:0], r))
	return m.dst
}

// lookupRoom is how many paths most requests are looked up by at most.
const lookupRoom = 4

// match is one search for the rules of a request.
type match struct {
	request    *Request
	method     methods
	tier       uint64
	all        bool // exceptions do not matter
	ignoreCase bool // of paths
	looked     bool // plain and path are known
	plain      bool // all servers interpret the path in the same way
	path       string
	dst        []*Rule
	from       int    // of dst
	last       *place // that was collected
}

// ignoresCase reports whether the server behind ignores the case of the request's path.
func (s *Set) ignoresCase(r *Request) bool { return s.ignoreCase || r.IgnoreCase }

func (s *Set) begin(r *Request, dst []*Rule) match {
	m := match{request: r, method: methodOf(r.Method), ignoreCase: s.ignoresCase(r), dst: dst, from: len(dst)}
	if i := s.tier(r.Tier); i >= 0 {
		m.tier = 1 << i
	}
	return m
}

// collect adds the rules that the request meets by the given paths, in the order of the file.
func (s *Set) collect(m *match, paths []lookup) {
	m.in(&s.any, paths)
	if s.hosts != nil {
		if host := s.hosts[hostOf(m.request.Host)]; host != nil {
			m.in(host, paths)
		}
	}
	slices.SortFunc(m.dst[m.from:], func(a, b *Rule) int { return a.Index - b.Index })
}

// in collects the rules of a tree.
func (m *match) in(t *tree, paths []lookup) {
	m.last = nil
	for _, l := range paths {
		m.look(t, l, false)
		if l.path[len(l.path)-1] != '/' {
			m.look(t, l, true)
		}
	}
}

// look collects the rules of one path; with slashed, as if it had one more slash at its end.
func (m *match) look(t *tree, l lookup, slashed bool) {
	if m.ignoreCase && t.hasCased {
		m.collectAnyCase(t, l.path, slashed, l.escaped)
		return
	}
	m.collect(t.find(l.path, slashed, l.escaped))
}

func (m *match) collect(at *place) {
	if at == nil || at == m.last {
		return
	}
	first := m.last == nil
	m.last = at
	for ; at != nil; at = at.parent {
		m.add(at.rules, first)
		for i := range at.headers {
			h := &at.headers[i]
			lines := distinct(m.request.lines(h.name))
			for _, line := range lines {
				m.add(h.rules[line], first && len(lines) == 1)
			}
		}
	}
}

// distinct returns the lines of a field, each once if there are many. A client may repeat
// a line that rules ask for, and each of these rules looks at all lines of other fields.
func distinct(lines []string) []string {
	if len(lines) <= fewLines {
		return lines
	}
	return slices.Compact(slices.Sorted(slices.Values(lines)))
}

const fewLines = 16

// add adds the rules that admit the request; of those that are not new, only what
// is not there.
func (m *match) add(rules []*Rule, new bool) {
	for _, r := range rules {
		if len(m.dst)-m.from > MaxMet {
			return
		}
		if r.admits(m) && (new || !slices.Contains(m.dst[m.from:], r)) {
			m.dst = append(m.dst, r)
		}
	}
}

// hostOf is a host as rules have it: lower case, without a port or a final dot.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

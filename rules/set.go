package rules

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
)

// errorAt returns an error at the position of another error.
func errorAt(at *strictyaml.Error, format string, args ...any) error {
	e := *at
	e.Message = fmt.Sprintf(format, args...)
	return &e
}

// Set is the compiled rules of a file. A Set is safe for concurrent use because it never changes
// after Parse has returned it: Snapshots share it, and requests read it without a lock.
type Set struct {
	text        []byte
	version     uint64
	versionAt   *strictyaml.Error // has the position
	warnings    []error
	enabled     bool
	ignoreCase  bool // each request is matched as if it had IgnoreCase
	exempt      clients[string]
	deny        clients[string]
	denyKeys    map[ruleKey]*Block // nil if there are none
	tiers       []string           // at most maxTiers, because a tier is a bit of a uint64
	tierAt      map[string]int
	defaultTier int // -1 if there is none
	windows     []*TimeWindow

	rules  []*Rule
	modes  []Mode   // indexed by Rule.Index: those of the file or, in a Snapshot, of the switches
	limits []*Limit // in the order of Limit.Index, as are the Limiters in a Snapshot
	names  map[string]*Limit
	ruleOf []*Rule          // rule of each limit, in the order of limits
	any    tree             // rules for all hosts
	hosts  map[string]*tree // rules for single hosts, keyed by host
	below  map[string]*tree // rules for wildcards, keyed by the wildcard without its *, like .example.com

	adaptive   map[string]*Rule // rules with Adapt, by name
	raising    []*Rule          // rules with Raise
	hostLabels int              // maximum number of dots in a wildcard
}

// Rules returns the rules in the order of the file. They must not be changed.
func (s *Set) Rules() []*Rule { return s.rules }

// Enabled returns false if all rules are off.
func (s *Set) Enabled() bool {
	return s.enabled && len(s.rules) == 0 || slices.ContainsFunc(s.modes, func(m Mode) bool { return m != Off })
}

// Mode returns the mode of a rule in the file or, in a Snapshot, the mode of the switch that the rule obeys.
func (s *Set) Mode(r *Rule) Mode { return s.modes[r.Index] }

// modeInFile returns the mode of a rule without switches.
func (s *Set) modeInFile(r *Rule) Mode {
	if !s.enabled {
		return Off
	}
	return r.Mode
}

// Version returns the version of the file, which is also that of its limits.
func (s *Set) Version() uint64 { return s.version }

// Tiers returns the names of the tiers, in the order of the file. They must not be changed.
func (s *Set) Tiers() []string { return s.tiers }

// Tier returns the tier that is used for the given tier: the given tier if it is in the file, else the
// default tier, or "" if the file has no default tier.
func (s *Set) Tier(tier string) string {
	if i := s.tier(tier); i >= 0 {
		return s.tiers[i]
	}
	return ""
}

// tier returns the index of a tier in tiers, or of the default tier, or -1 if there is
// none.
func (s *Set) tier(name string) int {
	if i, known := s.tierAt[name]; known {
		return i
	}
	return s.defaultTier
}

// Warnings returns the probable mistakes in the file, each with file, line and column. The slice must not be
// changed.
func (s *Set) Warnings() []error { return s.warnings }

// Text returns the text of the file, which must not be changed.
func (s *Set) Text() []byte { return s.text }

// Exempt reports whether a request is never limited because its address, user or API key is
// exempt. Match then returns no rule. A Block of its client refuses the request nevertheless.
func (s *Set) Exempt(r *Request) bool { return exempts(&s.exempt, r) }

// Limit returns a limit by its name, and the rule that has it.
func (s *Set) Limit(name string) (l *Limit, r *Rule, ok bool) {
	if l, ok = s.names[name]; !ok {
		return nil, nil, false
	}
	return l, s.ruleOf[l.Index], true
}

// Match appends to dst the rules that a request meets, in the order of the file. Match does not
// append rules that are Off, and appends no rule at all if the request is exempt. Match ignores
// Blocks: callers call Block first. Match stops one rule above MaxMet, because a node cannot decide
// on so many limits. If dst has the capacity, Match allocates only in these cases: the path is not
// clean, or has escapes, a "#", or upper case that is ignored; the host has upper case; or a
// header field of a rule has more than 16 lines.
//
// A request meets the rules of each reading of its path (see Request.Readings). A reading is
// matched as http.ServeMux would, both unchanged and cleaned (without //, . and ..). /a is also
// matched by /a/ and by /a/{x...}, because a ServeMux would redirect it there.
//
// An Exception with Paths excludes a request only if its path has a single reading.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule { return s.match(r, dst, false, s.modes) }

// MatchOff returns the rules that a request would meet if they were not off.
func (s *Set) MatchOff(r *Request) []*Rule {
	if !slices.Contains(s.modes, Off) {
		return nil
	}
	return slices.DeleteFunc(s.match(r, nil, false, nil), func(r *Rule) bool { return s.modes[r.Index] != Off })
}

// match is like Match. If the argument all is true, match ignores exceptions. If modes is nil, match also
// appends rules that are Off.
func (s *Set) match(r *Request, dst []*Rule, all bool, modes []Mode) []*Rule {
	if exempts(&s.exempt, r) {
		return dst
	}
	m := s.begin(r, dst)
	m.all, m.modes = all, modes
	var room [lookupRoom]lookup
	s.collect(&m, appendLookups(room[:0], r, s.ignoresCase(r)))
	return m.dst
}

// lookupRoom is enough for the lookups of most requests.
const lookupRoom = 4

// match is a search for the rules of a request.
type match struct {
	request    *Request
	method     methods
	tier       uint64
	all        bool // ignore exceptions
	modes      []Mode
	ignoreCase bool // ignore the case of paths
	looked     bool // plain and path are set
	plain      bool // all servers interpret the path in the same way
	path       string
	dst        []*Rule
	from       int    // index in dst of the first rule of this search
	last       *place // the place that was collected last
	again      bool   // dst may already have rules of the next tree
}

// ignoresCase reports whether the server of the request ignores the case of its path.
func (s *Set) ignoresCase(r *Request) bool { return s.ignoreCase || r.IgnoreCase }

func (s *Set) begin(r *Request, dst []*Rule) match {
	m := match{request: r, method: methodOf(r.Method), ignoreCase: s.ignoresCase(r), dst: dst, from: len(dst)}
	if i := s.tier(r.Tier); i >= 0 {
		m.tier = 1 << i
	}
	return m
}

// collect appends the rules that the request meets with the given paths, in the order of the
// file.
func (s *Set) collect(m *match, paths []lookup) {
	m.collectTree(&s.any, paths)
	if len(s.hosts)+len(s.below) > 0 {
		host := hostOf(m.request.Host)
		if t := s.hosts[host]; t != nil {
			m.collectTree(t, paths)
		}
		if len(s.below) > 0 {
			m.again = true // a rule may have several hosts that the request meets
			for t := range s.treesAbove(host) {
				m.collectTree(t, paths)
			}
		}
	}
	slices.SortFunc(m.dst[m.from:], func(a, b *Rule) int { return a.Index - b.Index })
}

// treesAbove returns the trees of the wildcards that include a host. It reads at most as many labels of
// the host as the longest wildcard has.
func (s *Set) treesAbove(host string) iter.Seq[*tree] {
	return func(yield func(*tree) bool) {
		end := len(host)
		for range s.hostLabels {
			if end = strings.LastIndexByte(host[:end], '.'); end <= 0 {
				return
			}
			if t := s.below[host[end:]]; t != nil && !yield(t) {
				return
			}
		}
	}
}

// coverHost reports whether a host is one of the hosts, or below a wildcard in them.
func coverHost(hosts []string, host string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		return h == host || h[0] == '*' && len(host) >= len(h) && strings.HasSuffix(host, h[1:])
	})
}

// collectTree collects the rules of a tree.
func (m *match) collectTree(t *tree, paths []lookup) {
	m.last = nil
	for _, l := range paths {
		m.collectPath(t, l, false)
		if l.path[len(l.path)-1] != '/' {
			m.collectPath(t, l, true)
		}
	}
}

// collectPath collects the rules for a path. If slashed is true, the path has an additional final
// slash.
func (m *match) collectPath(t *tree, l lookup, slashed bool) {
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
	first := m.last == nil && !m.again
	m.last = at
	for ; at != nil; at = at.parent {
		m.add(at.rules, first)
		for i := range at.byValue {
			h := &at.byValue[i]
			switch h.of.from {
			case fromUser:
				m.add(h.rules[m.request.User], first)
				continue
			case fromAPIKey:
				m.add(h.rules[m.request.APIKey], first)
				continue
			}
			lines := distinct(m.request.lines(h.of.name))
			for _, line := range lines {
				m.add(h.rules[line], first && len(lines) == 1)
			}
		}
	}
}

// distinct returns the lines of a field, without duplicates if there are more than fewLines. A client may
// repeat a line that rules name. Without distinct, the conditions of these rules would be evaluated for each
// copy of the line.
func distinct(lines []string) []string {
	if len(lines) <= fewLines {
		return lines
	}
	return slices.Compact(slices.Sorted(slices.Values(lines)))
}

const fewLines = 16

// add appends the rules that admit the request. Unless new is true, add omits rules that dst
// already has.
func (m *match) add(rules []*Rule, new bool) {
	for _, r := range rules {
		if len(m.dst)-m.from > MaxMet {
			return
		}
		if (m.modes == nil || m.modes[r.Index] != Off) && r.admits(m) && (new || !slices.Contains(m.dst[m.from:], r)) {
			m.dst = append(m.dst, r)
		}
	}
}

// hostOf returns a host in the form of rules: in lower case, without a port or a final dot.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

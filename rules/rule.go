package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Rule is a rule of a Set. Rules are shared, and must not be changed.
type Rule struct {
	Name   string
	Index  int // index in Set.Rules
	When   Condition
	By     string  // sources of the key, like "ip" or "user|header:X-Plan"
	Cost   string  // cost as text, like "1" or "header:X-Cost, or 1"
	Limits []Limit // at least 1, but none in the Rule of Single; all must allow
	Mode   Mode    // mode in the file; Set.Mode is the mode in force
	Soft   Soft
	Queue  time.Duration // maximum time for which a request waits for its turn. If not zero, there is a single Limit, a LeakyBucket or InFlight, or none (Single)
	// Count has the statuses of responses whose requests are charged, and RefundOn the statuses
	// of responses whose requests are not. If both are empty, all requests are charged. The
	// units are spent before the response, and refunded after the response if the request is not
	// charged.
	Count, RefundOn Statuses
	Critical        []Exception // a request that meets all fields of any entry may spend the kept units (weir.Limit.Keep)
	Reserve         string      // estimate that is spent before the response, as text; empty if Cost is used
	Settle          *Settle     // source of the cost that replaces the estimate; nil if none does
	Adapt           *Adapt      // nil if the numbers of the limits do not follow the responses
	Raise           *Raise      // nil if no higher numbers are suggested
	multiplied      bool        // tiers multiply the limits
	methods         methods
	tiers           uint64 // set of indices in Set.tiers, a bit for each; all tiers if zero
	key             key
	cost            cost
	reserve         cost // only if estimates is true
	estimates       bool
	warn            float64   // default of Limit.Warn, for limits without the field warn
	denied          []*Denied // texts of denials, without a tier and in the order of Set.tiers; nil if the file has none
}

// Condition selects the requests to which a rule applies. An empty field is ignored.
type Condition struct {
	Methods []string // upper case; GET includes HEAD
	Hosts   []string // lower case, without a port; *.example.com stands for all hosts below
	Path    string   // a pattern of http.ServeMux without method and host
	Headers []Header // all must be met
	Tiers   []string
	Clients
	Not []Exception // none may be met
}

// Header is a condition on a field of the header of a request.
type Header struct {
	Name   string   // canonical name
	Values []string // one line of the field must be in Values, or in an Exception every line; if Values is empty, the field need only be present
}

// Soft is an overrun that a rule allows for a time while a limit is exhausted.
type Soft struct {
	Over float64       // part of the Rate of the limit, at least 1 unit; no overrun if zero
	For  time.Duration // time in which the overrun may be spent, from its first unit
}

// Units returns the cost of a request under this rule. A cost of 0 spends nothing. If the header
// field of the cost is missing, has several lines or is not a number, or if the length of the
// content is unknown, the request costs the default of the rule.
func (r *Rule) Units(req *Request) int64 { return r.cost.unitsOf(req) }

// CountsBytes reports whether a unit is a byte of the content.
func (r *Rule) CountsBytes() bool {
	return len(r.cost.from) == 1 && r.cost.from[0].length && r.cost.unit == 1 && !r.estimates && len(r.cost.routes) == 0
}

// Key returns the key of a request under this rule. If the rule does not apply, because the
// request lacks a part of the key, ok is false.
func (r *Rule) Key(req *Request) (key string, ok bool) {
	var room [128]byte
	b, ok := r.AppendKey(room[:0], req)
	return string(b), ok
}

// AppendKey appends the key to b. It does not allocate if b has the capacity, and each part is the
// address, user or API key of the caller or a header field with a single line, and is not so long that
// it is hashed. If ok is false, AppendKey appends nothing.
func (r *Rule) AppendKey(b []byte, req *Request) (_ []byte, ok bool) { return r.key.append(b, req) }

// AmbiguousPart returns the part of the key that servers are known to read in several ways, such as
// query:X if the request has the parameter X twice, or "". All such requests have the same part of their
// keys. The result is "" for a key without a path, a parameter and a cookie.
//
// A path is such a part if its readings differ. A parameter or cookie is such a part if its name occurs twice, in
// another case, as X[], with a dot or a space in place of an underscore, or beside a semicolon (a cookie: a
// comma), or if its value has invalid UTF-8 or a control character. A parameter is also such a part if its value
// has an invalid escape.
func (r *Rule) AmbiguousPart(req *Request) string { return r.key.ambiguous(req) }

// admits reports whether a request meets the conditions of the rule, except for its path and
// host.
func (r *Rule) admits(m *match) bool {
	if r.methods&m.method == 0 || r.tiers != 0 && r.tiers&m.tier == 0 {
		return false
	}
	for i := range r.When.Headers {
		if !r.When.Headers[i].admits(m.request) {
			return false
		}
	}
	return r.When.Clients.admits(m.request) && (m.all || findExcluding(r.When.Not, m) == nil)
}

// ForTier reports whether requests of a tier can meet the rule. The tier is in Set.Tiers, or
// empty.
func (r *Rule) ForTier(tier string) bool {
	if len(r.When.Tiers) > 0 && !slices.Contains(r.When.Tiers, tier) {
		return false
	}
	for i := range r.When.Not {
		e := &r.When.Not[i]
		if slices.Contains(e.Tiers, tier) && len(e.Methods)+len(e.Hosts)+len(e.Paths)+len(e.Headers) == 0 && e.Clients.isEmpty() {
			return false
		}
	}
	return true
}

func (h *Header) admits(req *Request) bool {
	lines := req.lines(h.Name)
	if len(h.Values) == 0 {
		return len(lines) > 0
	}
	return slices.ContainsFunc(lines, func(line string) bool { return slices.Contains(h.Values, line) })
}

// methods is a set of methods.
type methods uint16

const everyMethod = ^methods(0)

var methodNames = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"}

// methodOf returns the set of a single method. All methods that are not in methodNames share a bit.
func methodOf(name string) methods {
	if i := slices.Index(methodNames, name); i >= 0 {
		return 1 << i
	}
	return 1 << len(methodNames)
}

// Limit is a limit of a rule.
type Limit struct {
	Name  string // name of the rule, or "rule/limit"
	Index int    // index among all limits of the Set, in the order of the file

	// Warn is the used part of the limit, 0 to 1, from which admitted requests are warned. If Warn is 0, no
	// request is warned.
	Warn float64

	set    *Set
	base   weir.Limit
	tiers  []weir.Limit // in the order of Set.tiers; nil if no tier changes the numbers
	times  []limitTime  // in the order of Set.windows; nil if no time window changes the numbers
	values *keyValues   // nil if the limit has none
	factor int64        // factor of the numbers in percent; 0 for 100
	keep   keep
	soft   Soft
	place  *strictyaml.Error // has the position of the algorithm in the file, or of the limit if it states no algorithm
}

// ForTier returns the limit for a tier. Time windows have no effect, unless At or Snapshot.InForce has returned
// l. The name of the limit is equal for all tiers, so that a key keeps its count when its tier changes.
func (l *Limit) ForTier(tier string) weir.Limit { return l.numbers(l.variantOf(tier)) }

// ForKey returns the limit for a key of its rule, with the numbers of the value that names the key, its
// first parts or a network of its address. If there is none, the numbers are the same as in the result of
// ForTier.
func (l *Limit) ForKey(tier, key string) weir.Limit { return l.numbers(l.variant(tier, key)) }

// Values returns the number of keys and networks with their own numbers.
func (l *Limit) Values() int {
	if l.values == nil {
		return 0
	}
	return len(l.values.keys) + len(l.values.networks)
}

// InFlight reports whether requests hold the units until they end.
func (l *Limit) InFlight() bool { return l.base.Algorithm == weir.InFlight }

// numbers returns a variant of the limit, multiplied by its factor. Variant 0 is the limit of the file. The
// variants of the tiers follow, then those of the values.
func (l *Limit) numbers(variant int) weir.Limit {
	if l.factor != 0 {
		return scale(*l.full(variant), l.factor)
	}
	return *l.full(variant)
}

// full is like numbers, but without the factor.
func (l *Limit) full(variant int) *weir.Limit {
	switch {
	case variant == 0:
		return &l.base
	case variant <= len(l.tiers):
		return &l.tiers[variant-1]
	}
	return &l.values.numbers[variant-1-len(l.tiers)]
}

// variants returns the number of variants.
func (l *Limit) variants() int {
	if l.values == nil {
		return 1 + len(l.tiers)
	}
	return 1 + len(l.tiers) + len(l.values.numbers)
}

// variant returns the variant for a key.
func (l *Limit) variant(tier, key string) int {
	if l.values != nil {
		if at := l.values.find(key); at >= 0 {
			return 1 + len(l.tiers) + at
		}
	}
	return l.variantOf(tier)
}

func (l *Limit) variantOf(tier string) int {
	if l.tiers == nil {
		return 0
	}
	return l.set.tier(tier) + 1
}

// overrun returns the limit for the overrun of l, if the rule allows an overrun.
func (s Soft) overrun(l weir.Limit) (_ weir.Limit, ok bool) {
	if s.Over == 0 {
		return weir.Limit{}, false
	}
	return weir.Limit{
		Name: l.Name + "/soft", Algorithm: weir.FixedWindow, Rate: max(1, int64(s.Over*float64(l.Rate))), Per: s.For,
		Scope: l.Scope, Partition: l.Partition, NoLeases: l.NoLeases, Durable: l.Durable, Version: l.Version, SecretKeys: l.SecretKeys,
	}, true
}

// Capacity returns the maximum number of units that a limit can grant to a request that is not critical.
func Capacity(l weir.Limit) int64 { return cmp.Or(l.Burst, l.Rate) - l.Keep }

// Describe returns the numbers of a limit in the words of a file, like "1000 per 1h,
// sliding_window, majority_share" or "10 in_flight, majority_share".
func Describe(l weir.Limit) string {
	var b strings.Builder
	switch {
	case l.Algorithm == weir.InFlight:
		fmt.Fprintf(&b, "%d ", l.Rate)
	case l.Calendar == weir.NoCalendar:
		fmt.Fprintf(&b, "%d per %s, ", l.Rate, enum.Duration(l.Per))
	default:
		fmt.Fprintf(&b, "%d per calendar %v of %s, ", l.Rate, l.Calendar, cmp.Or(l.Zone, "UTC"))
	}
	if l.Burst > 0 {
		fmt.Fprintf(&b, "burst %d, ", l.Burst)
	}
	if l.Keep > 0 {
		fmt.Fprintf(&b, "keep %d, ", l.Keep)
	}
	fmt.Fprintf(&b, "%v, %v", l.Algorithm, l.Partition)
	if l.Scope != weir.Regional {
		fmt.Fprintf(&b, ", %v", l.Scope)
	}
	if l.NoLeases {
		b.WriteString(", no_leases")
	}
	if l.Durable != weir.DurableIfLong {
		fmt.Fprintf(&b, ", durable %v", l.Durable == weir.Durable)
	}
	if l.Ban != (weir.Ban{}) {
		b.WriteString(", " + describeBan(l.Ban))
	}
	return b.String()
}

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
)

// Rule is one rule of a Set. It is shared, and must not be changed.
type Rule struct {
	Name   string
	Index  int // in Set.Rules
	When   Condition
	By     string  // what the key is made of, like "ip" or "user|header:X-Plan"
	Cost   string  // in words, like "1" or "header:X-Cost, or 1"
	Limits []Limit // at least one; all must allow
	Shadow bool    // counted and reported, never enforced
	Soft   Soft
	Queue  time.Duration // how long a request may wait for its turn, none if zero; with it there is one Limit, a LeakyBucket or InFlight
	// Count has the statuses of the responses that count, and RefundOn of those that do not.
	// All count where both are empty. The units are spent before, and given back.
	Count, RefundOn Statuses
	Reserve         string  // what is spent ahead, in words as Cost; empty: Cost
	Settle          *Settle // what replaces it afterwards; nil: nothing does
	methods         methods
	tiers           uint64 // a bit for each that it is for, of Set.tiers; all if zero
	key             key
	cost            cost
	reserve         cost // with estimates
	estimates       bool
}

// Condition selects the requests that a rule is for. What is empty does not matter.
type Condition struct {
	Methods []string // upper case; GET is HEAD too
	Hosts   []string // lower case, without a port
	Path    string   // a pattern of http.ServeMux without method and host
	Headers []Header // all of them
	Tiers   []string
	Not     []Exception // none of them
}

// Header is a condition on one field of a request's header.
type Header struct {
	Name   string   // canonical
	Values []string // any line is one of these; empty: the field is there
}

// Soft is an overrun that a rule allows for a time, while a limit is exhausted.
type Soft struct {
	Over float64       // the part of the limit's Rate, at least one unit; none if zero
	For  time.Duration // over which it may be spent, from the first unit of it
}

// Units is what a request costs under this rule; 0 spends nothing. A header of
// the request that is missing, twice there or no number is not believed: it costs
// what the rule says then.
func (r *Rule) Units(req *Request) int64 { return r.cost.of(req) }

// CountsBytes reports whether the units are the bytes of the content.
func (r *Rule) CountsBytes() bool {
	return len(r.cost.from) == 1 && r.cost.from[0].length && r.cost.unit == 1 && !r.estimates
}

// Key is the key of a request under this rule; not ok if the rule does not apply
// to it, as it lacks what the key is made of.
func (r *Rule) Key(req *Request) (key string, ok bool) {
	var room [128]byte
	b, ok := r.AppendKey(room[:0], req)
	return string(b), ok
}

// AppendKey appends the key to b. It allocates nothing where b has the room, no
// header has many lines and no part is so long that it is hashed. If it is not
// ok, it appends nothing.
func (r *Rule) AppendKey(b []byte, req *Request) (_ []byte, ok bool) { return r.key.append(b, req) }

// admits reports whether a request meets the rule's conditions, but for its path and
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
	if m.all {
		return true
	}
	for i := range r.When.Not {
		if r.When.Not[i].has(m) {
			return false
		}
	}
	return true
}

// ForTier reports whether requests of a tier, one of Set.Tiers or none, can meet the
// rule.
func (r *Rule) ForTier(tier string) bool {
	if len(r.When.Tiers) > 0 && !slices.Contains(r.When.Tiers, tier) {
		return false
	}
	for i := range r.When.Not {
		e := &r.When.Not[i]
		if slices.Contains(e.Tiers, tier) && len(e.Methods)+len(e.Hosts)+len(e.Paths)+len(e.Headers) == 0 {
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

// methodOf is the set of one method; all that are not named share one.
func methodOf(name string) methods {
	if i := slices.Index(methodNames, name); i >= 0 {
		return 1 << i
	}
	return 1 << len(methodNames)
}

// Limit is one limit of a rule.
type Limit struct {
	Name  string // the rule's, or "rule/limit"
	Index int    // among all limits of the Set, in the order of the file

	set    *Set
	base   weir.Limit
	tiers  []weir.Limit // in the order of Set.tiers; nil if no tier changes the numbers
	soft   Soft
	line   int // of its algorithm, or of itself
	column int
}

// For is the limit for a tier. A tier changes numbers and never the name: a key
// that changes its tier keeps its count.
func (l *Limit) For(tier string) weir.Limit { return l.of(l.variant(tier)) }

// InFlight reports whether requests hold its units until they end.
func (l *Limit) InFlight() bool { return l.base.Algorithm == weir.InFlight }

// of is one of the limit's variants: 0 is as the file says, and i is that of the
// tier i-1.
func (l *Limit) of(variant int) weir.Limit {
	if variant == 0 {
		return l.base
	}
	return l.tiers[variant-1]
}

func (l *Limit) variant(tier string) int {
	if l.tiers == nil {
		return 0
	}
	return l.set.tier(tier) + 1
}

// softOf is the limit on the overrun over another, if there may be one.
func (s Soft) of(l weir.Limit) (_ weir.Limit, ok bool) {
	if s.Over == 0 {
		return weir.Limit{}, false
	}
	return weir.Limit{
		Name: l.Name + "/soft", Algorithm: weir.FixedWindow, Rate: max(1, int64(s.Over*float64(l.Rate))), Per: s.For,
		Scope: l.Scope, Partition: l.Partition, NoLeases: l.NoLeases, Durable: l.Durable, Version: l.Version, SecretKeys: l.SecretKeys,
	}, true
}

// Capacity is the most units that one ask of a limit can be granted.
func Capacity(l weir.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// Describe is a limit's numbers in the words of a file, like "1000 per 1h,
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
	return b.String()
}

package rules

import (
	"time"

	"github.com/weir-go/weir"
)

// Rule is one rule of a Set. It is shared, and must not be changed.
type Rule struct {
	Name   string
	Index  int // in Set.Rules
	When   Condition
	By     string  // what the key is made of, as in the file: "ip", "user|header:X-Plan"
	Limits []Limit // at least one; all must allow

	Shadow bool          // counted and reported, never enforced
	Queue  time.Duration // how long a request may wait for its turn; with it, there is one Limit, a LeakyBucket. None if zero
	Soft   Soft
}

// Condition says which requests a rule is for. What is empty does not matter.
type Condition struct {
	Methods []string // upper case; GET is HEAD too
	Hosts   []string // lower case, without a port
	Path    string   // a pattern of http.ServeMux without method and host
	Headers []Header // all of them
	Tiers   []string
}

// Header is a condition on one field of a request's header.
type Header struct {
	Name   string   // canonical
	Values []string // any line is one of these; empty: the field is there
}

// Soft is an overrun that a rule allows for a time, while a limit is exhausted.
type Soft struct {
	Over float64       // the part of the limit's Rate; none if zero
	For  time.Duration // over which it may be spent, from the first unit of it
}

// Limit is one limit of a rule.
type Limit struct {
	Name  string // the rule's, or "rule/limit"
	Index int    // among all limits of the Set

	base  weir.Limit
	soft  weir.Limit            // no Rate if there is none
	tiers map[string]weir.Limit // those with other numbers
}

// For is the limit for a tier. A tier changes numbers and never the name: a key
// that changes its tier keeps its count.
func (l *Limit) For(tier string) weir.Limit { panic("rules: not yet") }

// Capacity is the most units that one ask of a limit can be granted.
func Capacity(l weir.Limit) int64 { panic("rules: not yet") }

// Units is what a request costs under this rule; 0 spends nothing.
func (r *Rule) Units(req *Request) int64 { panic("rules: not yet") }

// Key is the key of a request under this rule; not ok if the rule does not apply
// to it, as it lacks what the key is made of.
func (r *Rule) Key(req *Request) (key string, ok bool) { panic("rules: not yet") }

// AppendKey appends the key to b, and allocates nothing where b has the room.
// If it is not ok, it appends nothing.
func (r *Rule) AppendKey(b []byte, req *Request) (_ []byte, ok bool) { panic("rules: not yet") }

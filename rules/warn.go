package rules

import (
	"sync/atomic"

	"github.com/weir-go/weir/internal/strictyaml"
)

// warn reads the part of a limit at which warnings begin, or returns the part of the rule.
func warn(v strictyaml.Value, ofRule float64) float64 {
	if !v.Present() {
		return ofRule
	}
	part := v.Unquoted().Percent()
	if v.IsText() && part == 0 && isZero(v.Text()) {
		v.Errorf("warn is %s: use more than 0%%, or no warn", v.Text())
	}
	return part
}

// newWarnings returns a counter for each rule with warnings. It keeps the counters of an earlier version.
func (s *Set) newWarnings(before map[string]*atomic.Uint64) map[string]*atomic.Uint64 {
	counters := make(map[string]*atomic.Uint64)
	for i, l := range s.limits {
		if l.Warn > 0 {
			carry(counters, before, s.ruleOf[i].Name)
		}
	}
	return counters
}

// carry adds a value for a key to a map: the value of an earlier map or, if it has none, a new value.
func carry[K comparable, V any](to, before map[K]*V, key K) {
	if to[key] = before[key]; to[key] == nil {
		to[key] = new(V)
	}
}

// Warns reports whether a rule has warnings. A nil Snapshot has none.
func (s *Snapshot) Warns() bool { return s != nil && len(s.warnings) > 0 }

// CountWarning counts a request that a rule with warnings has warned.
func (s *Snapshot) CountWarning(r *Rule) { s.warnings[r.Name].Add(1) }

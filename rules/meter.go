package rules

import "github.com/weir-go/weir/internal/adapt"

// newMeters returns a meter for each rule with Adapt. It keeps the meters of an earlier version.
func (s *Set) newMeters(before map[string]*adapt.Meter) map[string]*adapt.Meter {
	meters := make(map[string]*adapt.Meter)
	for name := range s.adaptive {
		carry(meters, before, name)
	}
	return meters
}

// Measures reports whether any rule has a meter. A nil Snapshot has no rules.
func (s *Snapshot) Measures() bool { return s != nil && len(s.meters) > 0 }

// Meter returns the meter of a rule, or nil if the rule has no Adapt.
func (s *Snapshot) Meter(r *Rule) *adapt.Meter {
	if r.Adapt == nil {
		return nil
	}
	return s.meters[r.Name]
}

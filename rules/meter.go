package rules

import "github.com/weir-go/weir/internal/adapt"

// newMeters returns the meters of a Set, by Rule.Index. They continue those of the version before, unless it is
// nil.
func (s *Set) newMeters(before *Snapshot) []*adapt.Meter {
	if s.adaptive == nil {
		return nil
	}
	meters := make([]*adapt.Meter, len(s.rules))
	for name, r := range s.adaptive {
		meters[r.Index] = new(adapt.Meter)
		if before != nil && before.adaptive[name] != nil {
			meters[r.Index] = before.meters[before.adaptive[name].Index]
		}
	}
	return meters
}

// Measures reports whether a rule has a meter. A nil Snapshot has no rules.
func (s *Snapshot) Measures() bool { return s != nil && s.meters != nil }

// Meter returns the meter of a rule, or nil if the rule has no Adapt.
func (s *Snapshot) Meter(r *Rule) *adapt.Meter {
	if s.meters == nil {
		return nil
	}
	return s.meters[r.Index]
}

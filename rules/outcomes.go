package rules

import "github.com/weir-go/weir"

// LimitOutcomes is what one limit of a rule has decided on a node since it started. While a
// rule is a shadow, its denials are what an operator reads before it enforces them.
type LimitOutcomes struct {
	Rule, Limit string        // Limit is as in weir.Stats.Limits: the rule's name, or rule/limit
	Shadow      bool          // whether the rule is a shadow now
	Enforced    weir.Outcomes // while it was none
	Shadowed    weir.Outcomes // while it was one: what it would have denied, and did not
}

// Outcomes returns what each limit of the rules has decided by the counters of a node, in
// the order of the rules. Limits that the node does not count apart have zeros:
// weir.OtherLimits has them together.
func (s *Set) Outcomes(stats weir.Stats) (all []LimitOutcomes) {
	for _, r := range s.rules {
		for i := range r.Limits {
			name := r.Limits[i].Name
			of := LimitOutcomes{Rule: r.Name, Limit: name, Shadow: r.Shadow, Shadowed: stats.ShadowLimits[name]}
			for _, o := range stats.Limits[name] {
				of.Enforced.Allowed += o.Allowed
				of.Enforced.Denied += o.Denied
			}
			all = append(all, of)
		}
	}
	return all
}

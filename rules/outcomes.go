package rules

import "github.com/weir-go/weir"

// LimitOutcomes counts the decisions about a limit of a rule on a node since its start.
// Operators read the denials of a shadow rule before they enforce it.
type LimitOutcomes struct {
	Rule, Limit string        // Limit is as in weir.Stats.Limits: the name of the rule, or rule/limit
	Mode        Mode          // mode of the rule now
	Enforced    weir.Outcomes // decisions about keys for which the rule was enforced at the time
	Shadowed    weir.Outcomes // decisions about other keys, as if the rule had been enforced
}

// Outcomes returns the decisions about each limit of the rules, from the counters of a node, in
// the order of the rules. They are zero for limits that the node does not count separately.
// weir.OtherLimits has the sum of their decisions.
func (s *Set) Outcomes(stats weir.Stats) (all []LimitOutcomes) {
	for _, r := range s.rules {
		for i := range r.Limits {
			name := r.Limits[i].Name
			of := LimitOutcomes{Rule: r.Name, Limit: name, Mode: s.modes[r.Index], Shadowed: stats.ShadowLimits[name]}
			for _, o := range stats.Limits[name] {
				of.Enforced.Allowed += o.Allowed
				of.Enforced.Denied += o.Denied
			}
			all = append(all, of)
		}
	}
	return all
}

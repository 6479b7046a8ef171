package metrics

import (
	"strconv"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// OfRules returns the metrics that are read from a node and its rules together.
func OfRules() []Family[RuleDenials] { return ofRules }

var ofRules = []Family[RuleDenials]{
	{Name: "weir_rule_denials_total", Help: "Denials by rule and mode. The mode is shadow for the denials of shadows, which are not enforced. (other) has the denials of limits without a series of their own.",
		Kind: Counter, Labels: []string{"rule", "mode"}, Read: func(s *RuleDenials, emit Emit) {
			for rule, n := range s.ByRule {
				emit(float64(n.Enforced), quoteInvalid(rule), "enforce")
				emit(float64(n.Shadowed), quoteInvalid(rule), "shadow")
			}
		}},
	{Name: "weir_rule_tier_denials_total", Help: "Denials to requests and callers of the check API by rule, tier and mode, if the rules have tiers. The tier is empty for requests without a tier.",
		Kind: Counter, Labels: []string{"rule", "tier", "mode"}, Read: func(s *RuleDenials, emit Emit) {
			for _, n := range s.ByTier {
				emit(float64(n.Enforced), n.Rule, n.Tier, "enforce")
				emit(float64(n.Shadowed), n.Rule, n.Tier, "shadow")
			}
		}},
}

// Denials contains the numbers of the enforced denials of a rule, and of the denials of its
// shadows.
type Denials struct{ Enforced, Shadowed uint64 }

// RuleDenials contains the denials of the rules in force.
type RuleDenials struct {
	ByRule map[string]Denials
	ByTier []rules.TierDenials
}

// ReadDenials returns the denials of each rule in force, including rules without denials.
// Limits beyond the bound of weir.Stats are counted together as weir.OtherLimits. If these
// have denied a check, the result contains weir.OtherLimits, because limits of rules can be
// among them.
func ReadDenials(node *weir.Node, book *rules.Book) RuleDenials {
	denials, stats, now := make(map[string]Denials), node.Stats(), book.Current()
	for _, of := range now.Outcomes(stats) {
		sum := denials[of.Rule]
		denials[of.Rule] = Denials{sum.Enforced + of.Enforced.Denied, sum.Shadowed + of.Shadowed.Denied}
	}
	others := Denials{Shadowed: stats.ShadowLimits[weir.OtherLimits].Denied}
	for _, o := range stats.Limits[weir.OtherLimits] {
		others.Enforced += o.Denied
	}
	if others != (Denials{}) {
		denials[weir.OtherLimits] = others // no rule can have this name
	}
	return RuleDenials{denials, now.TierDenials()}
}

// OfBook returns the metrics of a rules file.
func OfBook() []Family[rules.BookStats] { return ofBook }

var ofBook = []Family[rules.BookStats]{
	{Name: "weir_rules_info", Help: "Always 1. The labels have the version of the rules in force, and the first 12 hexadecimal digits of the SHA-256 of their text.",
		Kind: Gauge, Labels: []string{"version", "hash"}, Read: func(s *rules.BookStats, emit Emit) {
			emit(1, strconv.FormatUint(s.Version, 10), s.Hash)
		}},
	gauge("weir_rules_in_force", "1 if the current rules are in force. 0 if the text of the source was refused, unreadable or missing, or if a published text cannot be in force.", func(s *rules.BookStats) bool { return s.LastError == nil && s.RefusedText == nil }),
	split("weir_rules_blocked_total", "Requests that were refused because their client or key is blocked, by the kind of the block: ip, user, api_key or key.", Counter, "kind", func(s *rules.BookStats) map[string]uint64 { return s.Blocked }),
	split("weir_rule_warnings_total", "Admitted requests that were warned, by rule, because at least the part of a limit in warn was used.", Counter, "rule", func(s *rules.BookStats) map[string]uint64 { return s.Warnings }),
	gauge("weir_rules_suggestions", "Suggestions to raise the limits of keys that are denied steadily. It is equal on all nodes.", func(s *rules.BookStats) int { return s.Suggestions }),
	{Name: "weir_rule_factor", Help: "The factor of the numbers of a rule with adapt. It is equal on all nodes, and 1 if the numbers are those of the file.",
		Kind: Gauge, Labels: []string{"rule"}, Read: func(s *rules.BookStats, emit Emit) {
			for rule, factor := range s.Factors {
				emit(factor, rule)
			}
		}},
	{Name: "weir_rule_factor_changes_total", Help: "Changes of the factor of a rule with adapt, by reason: slow, errors or queue lower the factor, recovered raises it, other is unknown to this release. Each node counts all changes that it has seen.",
		Kind: Counter, Labels: []string{"rule", "reason"}, Read: func(s *rules.BookStats, emit Emit) {
			for rule, changes := range s.FactorChanges {
				for reason, n := range changes {
					emit(float64(n), rule, quoteInvalid(reason))
				}
			}
		}},
}

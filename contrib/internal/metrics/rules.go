package metrics

import (
	"strconv"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// OfRules returns the metrics that are read from a node and its rules together.
func OfRules() []Family[map[string]Denials] { return ofRules }

var ofRules = []Family[map[string]Denials]{
	{Name: "weir_rule_denials_total", Help: "Denials by rule and mode. The mode is shadow for the denials of shadows, which are not enforced. (other) has the denials of limits without a series of their own.",
		Kind: Counter, Labels: []string{"rule", "mode"}, Read: func(s *map[string]Denials, emit Emit) {
			for rule, n := range *s {
				emit(float64(n.Enforced), quoteInvalid(rule), "enforce")
				emit(float64(n.Shadowed), quoteInvalid(rule), "shadow")
			}
		}},
}

// Denials contains the denials of a rule, and the denials that were not enforced because
// of shadow mode.
type Denials struct{ Enforced, Shadowed uint64 }

// DenialsByRule returns the denials of each rule in force, including rules without
// denials. The result contains weir.OtherLimits if these limits have denied a check,
// because they can include limits of rules.
func DenialsByRule(node *weir.Node, book *rules.Book) map[string]Denials {
	denials, stats := make(map[string]Denials), node.Stats()
	for _, of := range book.Current().Outcomes(stats) {
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
	return denials
}

// OfBook returns the metrics of a rules file.
func OfBook() []Family[rules.BookStats] { return ofBook }

var ofBook = []Family[rules.BookStats]{
	{Name: "weir_rules_info", Help: "Always 1. The labels have the version of the rules in force, and the first 12 hexadecimal digits of the SHA-256 of their text.",
		Kind: Gauge, Labels: []string{"version", "hash"}, Read: func(s *rules.BookStats, emit Emit) {
			emit(1, strconv.FormatUint(s.Version, 10), s.Hash)
		}},
	gauge("weir_rules_in_force", "1 if the current rules file is in force. 0 if the file was refused, unreadable or missing.", func(s *rules.BookStats) bool { return s.LastError == nil }),
	split("weir_rules_blocked_total", "Requests that were refused because their client or key is blocked, by the kind of the block: ip, user, api_key or key.", Counter, "kind", func(s *rules.BookStats) map[string]uint64 { return s.Blocked }),
}

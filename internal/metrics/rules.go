package metrics

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// OfRules are the metrics that are read from a node and its rules together.
func OfRules() []Family[map[string]Denials] { return ofRules }

var ofRules = []Family[map[string]Denials]{
	{Name: "weir_rule_denials_total", Help: "Denials by a rule in force; (other) has those of limits without their own series.",
		Kind: Counter, Labels: []string{"rule"}, Read: func(s *map[string]Denials, emit Emit) {
			for rule, n := range *s {
				emit(float64(n.Enforced), label(rule))
			}
		}},
	{Name: "weir_rule_shadow_denials_total", Help: "Denials by a rule as a shadow, not enforced; (other) as above.",
		Kind: Counter, Labels: []string{"rule"}, Read: func(s *map[string]Denials, emit Emit) {
			for rule, n := range *s {
				emit(float64(n.Shadowed), label(rule))
			}
		}},
}

// Denials are those of a rule: what it denied, and what it would have denied as a shadow.
type Denials struct{ Enforced, Shadowed uint64 }

// DenialsByRule has each rule in force, whatever it has denied. It has weir.OtherLimits
// if these have denied anything, because some of them can be limits of rules.
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

// OfBook are the metrics of a rules file.
func OfBook() []Family[rules.BookStats] { return ofBook }

var ofBook = []Family[rules.BookStats]{
	gauge("weir_rules_version", "Version of the rules in force; exact below 2^53.", func(s *rules.BookStats) uint64 { return s.Version }),
	{Name: "weir_rules_info", Help: "Always 1; hash is the first 12 hexadecimal digits of the SHA-256 of the text in force.",
		Kind: Gauge, Labels: []string{"hash"}, Read: func(s *rules.BookStats, emit Emit) { emit(1, s.Hash) }},
	gauge("weir_rules_in_force", "1 if the current file is in force, 0 if it was refused, unreadable or missing.", func(s *rules.BookStats) bool { return s.LastError == nil }),
	gauge("weir_rules_missing", "1 if the file is missing; the last good version is in force.", func(s *rules.BookStats) bool { return s.Missing }),
	gauge("weir_rules_loaded_timestamp_seconds", "When the version in force was loaded, in Unix time.", func(s *rules.BookStats) time.Time { return s.LoadedAt }),
	counter("weir_rules_loads_total", "Versions loaded.", func(s *rules.BookStats) uint64 { return s.Loads }),
	counter("weir_rules_refused_total", "Versions refused.", func(s *rules.BookStats) uint64 { return s.Refused }),
	gauge("weir_rules", "Rules in force.", func(s *rules.BookStats) int { return s.Rules }),
	gauge("weir_rules_limits", "Limits of the rules in force.", func(s *rules.BookStats) int { return s.Limits }),
	gauge("weir_rules_overrides", "Overrides in force.", func(s *rules.BookStats) int { return s.Overrides }),
}

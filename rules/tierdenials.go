package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// TierDenials counts the denials of a rule to requests of a tier on this node, since the Book was made or a
// text added the rule or the tier. A request that is denied by two limits of the rule is counted twice.
type TierDenials struct {
	Rule, Tier string // Tier is empty for requests without a tier
	Enforced   uint64
	Shadowed   uint64 // denials that were not enforced, because the rule was a shadow for the key
}

// tierDenials counts the denials of a rule to requests of a tier.
type tierDenials struct{ enforced, shadowed atomic.Uint64 }

// ruleTier identifies a tierDenials.
type ruleTier struct{ rule, tier string }

// newTierDenials returns a counter for each rule and each tier of s, and for each rule without a tier. It
// keeps the counters of an earlier version. If s has no tiers, it returns nil, because each denial is also
// counted by limit.
func (s *Set) newTierDenials(before map[ruleTier]*tierDenials) map[ruleTier]*tierDenials {
	if len(s.tiers) == 0 {
		return nil
	}
	counters := make(map[ruleTier]*tierDenials)
	for _, r := range s.rules {
		for _, tier := range append([]string{""}, s.tiers...) {
			carry(counters, before, ruleTier{r.Name, tier})
		}
	}
	return counters
}

// CountDenial counts a denial of a rule to a request of a tier. m is the mode of the rule for the key.
func (s *Snapshot) CountDenial(r *Rule, tier string, m Mode) {
	if of := s.Meter(r); of != nil {
		of.RecordDenial()
	}
	switch of := s.denials[ruleTier{r.Name, s.Tier(tier)}]; {
	case of == nil:
	case m == Shadow:
		of.shadowed.Add(1)
	default:
		of.enforced.Add(1)
	}
}

// TierDenials returns the denials by rule and tier, sorted by both, without pairs that have none. There
// are none for files without tiers.
func (s *Snapshot) TierDenials() (all []TierDenials) {
	order := slices.SortedFunc(maps.Keys(s.denials), func(a, b ruleTier) int {
		return cmp.Or(strings.Compare(a.rule, b.rule), strings.Compare(a.tier, b.tier))
	})
	for _, id := range order {
		of := s.denials[id]
		if d := (TierDenials{id.rule, id.tier, of.enforced.Load(), of.shadowed.Load()}); d.Enforced+d.Shadowed > 0 {
			all = append(all, d)
		}
	}
	return all
}

package rules

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
)

// Adaptation is the state of a rule with Adapt, which all nodes share.
type Adaptation struct {
	Rule   string
	Factor float64   // a Snapshot returns the factor in steps of 0.01, and FactorChanges as it was published
	Reason string    // reason of the last change; empty if the factor never changed, or the published value has ended
	At     time.Time // time of the last change; zero if Reason is empty
}

// adaptation is a published Adaptation. Its text is that of an adapt.State. An adaptation ends unless it is
// published again.
type adaptation struct {
	Control
	Adaptation
}

const (
	adaptPrefix = "adapt/" // the name of the rule follows
	maxChanges  = 20       // maximum number of changes of factors that a Book remembers
	otherReason = "other"
)

// changeReasons are the reasons by which changes are counted. A later release may publish other reasons, which
// are counted as otherReason.
var changeReasons = [...]string{string(adapt.Slow), string(adapt.Errors), string(adapt.Queue), string(adapt.Recovered), otherReason}

// UnmarshalJSON reads a published State.
func (a *adaptation) UnmarshalJSON(value []byte) error {
	state, err := adapt.State{}.Follow(value, time.Time{})
	a.Control.Until, a.Adaptation = state.Until, Adaptation{Factor: state.Factor, Reason: string(state.Reason), At: state.At}
	return err
}

func (a *adaptation) setName(name string) error {
	if a.Rule = name; !slices.Contains(changeReasons[:], a.Adaptation.Reason) {
		a.Adaptation.Reason = otherReason
	}
	return nil
}

func (a *adaptation) apply(_ *Book, s *Snapshot) {
	if s.adaptive[a.Rule] != nil {
		s.adapted[a.Rule] = a.Adaptation
	}
}

// factorOf returns the factor of a rule, in percent.
func (s *Snapshot) factorOf(r *Rule) int64 {
	if r.Adapt == nil {
		return 100
	}
	factor := r.Adapt.Max
	if a, known := s.adapted[r.Name]; known {
		factor = min(max(a.Factor, r.Adapt.Min), r.Adapt.Max)
	}
	return int64(math.Round(factor * 100))
}

// Afford returns the units that a request spends under l, which is a Limiter that LimiterFor returned. If the
// request costs more than l can grant, but not more than the Capacity of the limit without the factor of the
// rule, the request spends the whole limit.
func (c *Count) Afford(units int64, l *weir.Limiter) int64 {
	if units > c.full {
		return units
	}
	return min(units, Capacity(l.Limit()))
}

// Adaptation returns the state of a rule. ok is false for a rule without Adapt.
func (s *Snapshot) Adaptation(r *Rule) (a Adaptation, ok bool) {
	if r.Adapt == nil {
		return a, false
	}
	a = s.adapted[r.Name]
	a.Rule, a.Factor = r.Name, float64(s.factorOf(r))/100
	return a, true
}

// Adaptations returns the states of all rules with Adapt, sorted by rule.
func (s *Snapshot) Adaptations() (all []Adaptation) {
	for _, r := range s.adaptive {
		a, _ := s.Adaptation(r)
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Adaptation) int { return strings.Compare(a.Rule, b.Rule) })
	return all
}

// recordAdaptations counts and logs the changes of factors since an earlier Snapshot, except those that the end
// of a published value causes. The log is limited. The caller must hold mu.
func (b *Book) recordAdaptations(before, now map[string]Adaptation) {
	for rule, a := range now {
		if was, known := before[rule]; known && a.Factor == was.Factor || b.current.Load() == nil {
			continue
		}
		if b.changed[rule] == nil {
			b.changed[rule] = make(map[string]uint64)
		}
		b.changed[rule][a.Reason]++
		b.changes = append(b.changes, a)
		b.changes = b.changes[max(0, len(b.changes)-maxChanges):]
		if unlogged, due := b.rescaled.Due(time.Now()); due {
			b.log.Info("the factor of a rule has changed", "rule", rule, "factor", a.Factor, "reason", a.Reason, "unlogged", unlogged)
		}
	}
}

// FactorChanges returns the last changes of factors that this node has seen, at most 20, newest first. The end of
// a published value is not among them.
func (b *Book) FactorChanges() []Adaptation {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes := slices.Clone(b.changes)
	slices.Reverse(changes)
	return changes
}

// factorStats sets the factors of all rules with Adapt, and the number of their changes. The caller must hold
// mu.
func (b *Book) factorStats(s *BookStats, now *Snapshot) {
	s.Factors, s.FactorChanges = make(map[string]float64), make(map[string]map[string]uint64)
	for _, a := range now.Adaptations() {
		s.Factors[a.Rule] = a.Factor
		s.FactorChanges[a.Rule] = make(map[string]uint64)
		for _, reason := range changeReasons {
			s.FactorChanges[a.Rule][reason] = b.changed[a.Rule][reason]
		}
	}
}

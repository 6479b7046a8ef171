package rules

import (
	"fmt"
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
	Factor float64   // of the numbers in force, in steps of 0.01
	Reason string    // reason of the last change; empty if the factor never changed
	At     time.Time // time of the last change
}

// adaptation is a published state of a rule with Adapt.
type adaptation struct {
	Control // is zero: the value has no end
	state   Adaptation
}

const (
	adaptPrefix = "adapt/"
	maxChanges  = 20 // maximum number of changes of factors that a Book remembers
	otherReason = "other"
)

// changeReasons are the reasons by which changes are counted. A later release may publish others.
var changeReasons = [...]adapt.Reason{adapt.Slow, adapt.Errors, adapt.Queue, adapt.Recovered, otherReason}

// factorChange is a kind of changes of factors.
type factorChange struct{ rule, reason string }

// readAdaptation reads the published value of the name of a rule.
func readAdaptation(name string, value []byte) (controlled, error) {
	state, err := adapt.State{}.Follow(value, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("rules: %s: %w", name, err)
	}
	if !slices.Contains(changeReasons[:], state.Reason) {
		state.Reason = otherReason
	}
	at := time.UnixMilli(min(max(state.At.UnixMilli(), 0), 1000*lastSecond))
	return &adaptation{state: Adaptation{name, state.Factor, string(state.Reason), at}}, nil
}

func (a *adaptation) apply(_ *Book, s *Snapshot) {
	if s.adaptive[a.state.Rule] != nil {
		s.adapted[a.state.Rule] = a
	}
}

// factorOf returns the factor of a rule, in percent.
func (s *Snapshot) factorOf(r *Rule) int64 {
	if r.Adapt == nil {
		return 100
	}
	factor := r.Adapt.Max
	if a := s.adapted[r.Name]; a != nil {
		factor = min(max(a.state.Factor, r.Adapt.Min), r.Adapt.Max)
	}
	return int64(math.Round(factor * 100))
}

// setCounts makes the Limiters of the rules whose numbers differ from those of the counts in s: the factor has
// changed, or the open time windows, which were wasOpen. Counts in use continue with the new numbers.
func (s *Snapshot) setCounts(b *Book, wasOpen uint64) {
	isOwn := false // s may change counts and factors, which it shares with earlier Snapshots
	for _, r := range s.rules {
		factor := s.factorOf(r)
		isTimed := s.open != wasOpen && slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.times != nil })
		if factor == s.factors[r.Index] && !isTimed {
			continue
		}
		if !isOwn {
			s.counts, s.factors, isOwn = slices.Clone(s.counts), slices.Clone(s.factors), true
		}
		s.factors[r.Index] = factor
		for i := range r.Limits {
			full, l := r.Limits[i].at(s.open), s.InForce(&r.Limits[i])
			counts, err := newCounts(b.node, l)
			if err != nil { // the node is closed
				return
			}
			for v := range counts {
				counts[v].full = Capacity(full.numbers(v))
			}
			s.counts[l.Index] = counts
		}
	}
}

// Afford returns the units that a request spends at l, the Limiter of For. A request that costs more than its
// limit grants only because of the factor of the rule spends the whole limit.
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
	if of := s.adapted[r.Name]; of != nil {
		a = of.state
	}
	a.Rule, a.Factor = r.Name, float64(s.factors[r.Index])/100
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

// recordAdaptations counts and logs the changes of factors since an earlier Snapshot. The log is limited. The
// caller must hold mu.
func (b *Book) recordAdaptations(before, now map[string]*adaptation) {
	for rule, of := range now {
		a := of.state
		if was := before[rule]; was != nil && a.Factor == was.state.Factor || b.current.Load() == nil {
			continue
		}
		b.changed[factorChange{rule, a.Reason}]++
		b.changes = append(b.changes, a)
		b.changes = b.changes[max(0, len(b.changes)-maxChanges):]
		if unlogged, due := b.rescaled.Due(time.Now()); due {
			b.log.Info("the factor of a rule has changed", "rule", rule, "factor", a.Factor, "reason", a.Reason, "unlogged", unlogged)
		}
	}
}

// FactorChanges returns the last changes of factors that this node has seen, at most 20, newest first.
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
			s.FactorChanges[a.Rule][string(reason)] = b.changed[factorChange{a.Rule, string(reason)}]
		}
	}
}

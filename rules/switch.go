package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
)

// Switch replaces the mode that the file gives a rule, on all nodes.
type Switch struct {
	Control
	Rule string `json:"-"` // name of the rule, or AllRules
	Mode Mode   `json:"mode"`
}

// AllRules stands for all rules in a Switch. The Switch of a rule takes precedence over the Switch of all
// rules, and each takes precedence over the file.
const AllRules = "*"

const switchPrefix = "switch/" // the name of the rule follows

func (w *Switch) setName(name string) error {
	if w.Rule = name; w.Mode < Off || name == "" {
		return fmt.Errorf("rules: the switch %q has no mode or no rule", name)
	}
	return nil
}

func (w *Switch) apply(_ *Book, s *Snapshot) {
	if s.switches == nil {
		s.switches = make(map[string]*Switch)
	}
	s.switches[w.Rule] = w
}

// Switch sets the mode of a rule, or of AllRules, on all nodes, and replaces an earlier switch of the
// same name: the last writer wins. Switch sets the fields Rule and At of w. The switch is in force on
// this node at once, and on other nodes when it arrives there. While nodes cannot reach each other, each
// side obeys its own switch. The error is weir.ErrInvalid for an invalid switch, or an error of
// weir.Node.Publish.
func (b *Book) Switch(rule string, w Switch) error {
	known := listNames(b.Current().rules, nameOfRule)
	switch {
	case rule != AllRules && !slices.Contains(known, rule):
		return fmt.Errorf("%w Switch: there is no rule %q: %s", weir.ErrInvalid, rule, enum.Suggest(rule, known))
	case w.Mode < Off || w.Mode > Shadow:
		return fmt.Errorf("%w Switch: Mode is %d: use Enforce, Shadow, Off or EnforcePart", weir.ErrInvalid, w.Mode)
	}
	if err := w.prepare("Switch", b.now()); err != nil {
		return err
	}
	return b.publish(switchPrefix+rule, w)
}

// RestoreRule deletes the switch of a rule, or of AllRules, on all nodes. Without a switch, RestoreRule
// does nothing. The rule need not be in the file any more. The error is that of weir.Node.Publish.
func (b *Book) RestoreRule(rule string) error { return b.withdraw(switchPrefix + rule) }

// Switches returns the switches of operators, sorted by rule. They include switches of rules that are not in the
// file. A switch that has just ended may be among them.
func (b *Book) Switches() []Switch {
	var all []Switch
	for _, w := range b.Current().switches {
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Switch) int { return strings.Compare(a.Rule, b.Rule) })
	return all
}

// SwitchOf returns the switch that a rule obeys: its own, or that of AllRules.
func (s *Snapshot) SwitchOf(r *Rule) (w Switch, ok bool) {
	if found := cmp.Or(s.switches[r.Name], s.switches[AllRules]); found != nil {
		return *found, true
	}
	return Switch{}, false
}

// setModes sets the modes of all rules from the file and the switches of s.
func (s *Snapshot) setModes() {
	set := *s.Set // a Set never changes
	set.modes = make([]Mode, len(set.rules))
	for i, r := range set.rules {
		set.modes[i] = set.modeInFile(r)
		if w, ok := s.SwitchOf(r); ok {
			set.modes[i] = w.Mode
		}
	}
	s.Set = &set
}

// logSwitches logs the switches that differ from those of an earlier Snapshot.
func (b *Book) logSwitches(before, now map[string]*Switch) {
	for _, rule := range slices.Sorted(maps.Keys(now)) {
		if w := now[rule]; w != before[rule] {
			b.log.Info("the switch of a rule is in force", "rule", rule, "mode", w.Mode.String(), "until", w.untilText(), "by", w.By, "reason", w.Reason)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(before)) {
		if now[rule] == nil {
			b.log.Info("the switch of a rule has ended", "rule", rule, "mode", before[rule].Mode.String())
		}
	}
}

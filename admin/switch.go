package admin

import (
	"errors"
	"net/http"
	"slices"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// switchAnswer is a switch of a rule, or of all rules.
type switchAnswer struct {
	Rule string `json:"rule"`
	Mode string `json:"mode"`
	controlAnswer
}

func showSwitch(w rules.Switch) *switchAnswer {
	return &switchAnswer{w.Rule, w.Mode.String(), showControl(&w.Control)}
}

type switchesAnswer struct {
	Switches []*switchAnswer `json:"switches"`
}

// switches returns the switches of operators.
func (a *api) switches(*request) (int, any, error) {
	return http.StatusOK, switchesAnswer{showAll(a.book.Switches(), showSwitch)}, nil
}

// setSwitch sets the mode of a rule, or of all rules.
func (a *api) setSwitch(r *request) (int, any, error) {
	var (
		rule string
		w    rules.Switch
	)
	if err := r.body(append([]field{{name: "rule", into: &rule, required: true}, {name: "mode", into: &w.Mode, required: true}}, r.controlFields(&w.Control)...)...); err != nil {
		return 0, nil, err
	}
	if err := checkRule(r.rules, rule); err != nil {
		return 0, nil, err
	}
	if err := a.book.Switch(rule, w); err != nil {
		return 0, nil, err
	}
	all := a.book.Switches()
	i := slices.IndexFunc(all, func(w rules.Switch) bool { return w.Rule == rule })
	if i < 0 {
		return 0, nil, errors.New("the switch was set, and another request removed it at once")
	}
	a.log.Info("an operator set a switch", controlAttributes(&w.Control, r, "rule", rule, "mode", w.Mode.String())...)
	return http.StatusOK, showSwitch(all[i]), nil
}

// checkRule returns a refusal for the name of a rule that does not exist.
func checkRule(s *rules.Snapshot, name string) error {
	var known []string
	for _, r := range s.Rules() {
		if r.Name == name {
			return nil
		}
		known = append(known, r.Name)
	}
	if name == rules.AllRules {
		return nil
	}
	return refuse(http.StatusNotFound, "there is no rule %q: %s", name, enum.Suggest(name, known))
}

// deleteSwitch removes the switch of a rule, or of all rules. The rule need not be in the file any more.
func (a *api) deleteSwitch(r *request) (int, any, error) {
	var rule string
	if err := r.parameters(field{name: "rule", into: &rule, required: true}); err != nil {
		return 0, nil, err
	}
	if err := a.book.RestoreRule(rule); err != nil {
		return 0, nil, err
	}
	a.log.Info("an operator removed a switch", "rule", rule, "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}

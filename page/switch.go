package page

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/rules"
)

// maxSwitchMinutes is the maximum time until the end of a switch that a viewer sets. Package rules also
// accepts a switch without an end.
const maxSwitchMinutes = 7 * 24 * 60

// switchRule switches a rule, or all rules, on all nodes. An empty mode removes the switch.
func (p *Page) switchRule(w http.ResponseWriter, r *http.Request) {
	if p.book == nil {
		http.Error(w, "this page cannot switch rules", http.StatusNotFound)
		return
	}
	var what struct {
		Rule    string `json:"rule"`
		Mode    string `json:"mode"`
		Minutes int    `json:"minutes"`
		By      string `json:"by"`
		Reason  string `json:"reason"`
	}
	if !readBody(w, r, &what) {
		return
	}
	err := error(nil)
	switch {
	case what.Mode == "":
		err = p.book.RestoreRule(what.Rule)
	case what.Minutes < 1 || what.Minutes > maxSwitchMinutes:
		http.Error(w, "minutes: use 1 to 10080", http.StatusBadRequest)
		return
	case what.By == "":
		http.Error(w, "by: name yourself, for the log", http.StatusBadRequest)
		return
	default:
		s := rules.Switch{Control: rules.Control{Until: time.Now().Add(time.Duration(what.Minutes) * time.Minute), By: what.By, Reason: what.Reason}}
		if err = s.Mode.UnmarshalText([]byte(what.Mode)); err == nil {
			err = p.book.Switch(what.Rule, s)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// switchable returns the names that a viewer may switch, or nil.
func (p *Page) switchable() []string {
	if p.book == nil {
		return nil
	}
	names := []string{rules.AllRules}
	for _, r := range p.book.Current().Rules() {
		names = append(names, r.Name)
	}
	return names
}

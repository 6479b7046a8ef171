package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// switchCommand sets, removes or lists switches.
type switchCommand struct {
	asking
	Rule string `arg:"" optional:"" help:"name of the rule, or '*' for all rules; lists the switches if empty"`
	Mode string `arg:"" optional:"" help:"enforce, shadow, off, or the percentage of the keys for which the rule is enforced, such as 10%%"`
	controlling
	Remove bool `help:"remove the switch, so that the mode in the file applies"`
}

// Help shows the uses.
func (*switchCommand) Help() string {
	return "All members obey the switch within a second. The switch of a rule takes precedence over that of all rules:\n\n  weir switch login shadow -for 1h -reason 'an incident'\n  weir switch '*' off\n  weir switch login -remove\n  weir switch"
}

// Validate returns an error unless the arguments name a switch to set or to remove, or nothing.
func (q *switchCommand) Validate() error {
	switch {
	case q.Remove && (q.Mode != "" || q.isSet()):
		return errors.New("-remove is set with a mode, -for, -by or -reason: leave these out")
	case q.Remove && q.Rule == "":
		return errors.New("-remove is set without a rule: name the rule, or '*'")
	case q.Rule != "" && q.Mode == "" && !q.Remove:
		return fmt.Errorf("the mode of %s is missing: use enforce, shadow, off or a percentage, or set -remove", q.Rule)
	case q.Rule == "" && q.isSet():
		return errors.New("-for, -by or -reason is set without a rule: name the rule, or '*'")
	}
	return q.checkEnd()
}

func (q *switchCommand) ask(ctx context.Context, c *client) (int, error) {
	switch {
	case q.Rule == "":
		return q.list(ctx, c)
	case q.Remove:
		return c.remove(ctx, "/v1/switches?"+url.Values{"rule": {q.Rule}}.Encode(), "no switch")
	}
	return q.set(ctx, c, "/v1/switches", "switch", map[string]string{"rule": q.Rule, "mode": q.Mode}, q.control())
}

// list prints the switches that have not ended.
func (q *switchCommand) list(ctx context.Context, c *client) (int, error) {
	type item struct {
		Rule, Mode string
		At         time.Time
		control
	}
	var answer struct{ Switches []item }
	return ok, q.print(ctx, c, http.MethodGet, "/v1/switches", nil, &answer, func() {
		printTable(c.stdout, "RULE\tMODE\tEND\tBY\tAT\tREASON", answer.Switches, func(w item) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", w.Rule, w.Mode, &w.control, w.By, w.At.Format(time.RFC3339), w.Reason)
		})
	})
}

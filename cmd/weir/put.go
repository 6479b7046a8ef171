package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/admin"
)

// putCommand publishes a rules file to all members.
type putCommand struct {
	asking
	File   string `arg:"" help:"a rules file, or a directory or URL of rules, with a higher version than the rules in force"`
	By     string `help:"author of the rules, for the log"`
	Reason string `help:"reason for the rules, for the log"`
}

// Help shows a use.
func (*putCommand) Help() string {
	return "All members apply the rules within a second, in place of rules with a lower version. They stay in force after a restart of all members that have -rules_cache or -snapshots:\n\n  weir rules put rules.yaml -by jo -reason 'twice the load'"
}

func (q *putCommand) ask(ctx context.Context, c *client) (int, error) {
	rules, err := readRules(q.File)
	if err != nil {
		return 0, err
	}
	of := control{By: q.By, Reason: q.Reason}
	var answer admin.PublishedText
	return ok, q.print(ctx, c, http.MethodPut, "/v1/rules", of.fields(map[string]string{"text": string(rules.Bytes)}), &answer, func() {
		fmt.Fprintf(c.stdout, "version %d (%s) is in force\n", answer.Version, answer.Hash)
		for _, warning := range answer.Warnings {
			fmt.Fprintf(c.stdout, "warning: %s\n", warning)
		}
	})
}

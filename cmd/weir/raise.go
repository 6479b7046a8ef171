package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin"
)

// raiseListCommand prints the suggestions for hot keys.
type raiseListCommand struct{ asking }

func (q *raiseListCommand) ask(ctx context.Context, c *client) (int, error) {
	var answer admin.Suggestions
	return ok, q.print(ctx, c, http.MethodGet, "/v1/suggestions", nil, &answer, func() {
		printTable(c.stdout, "LIMIT\tKEY\tID\tDENIED\tSINCE\tNOW\tSUGGESTED RATE", answer.Suggestions, func(s admin.Suggestion) string {
			return fmt.Sprintf("%s\t%s\t%s\t%.0f %%\t%s\t%s\t%d", s.Limit, keyOrDash(s.Key), s.ID, 100*s.Denied, s.Since.Format(time.RFC3339), s.Policy, s.Rate)
		})
	})
}

// raiseAcceptCommand sets the override that is suggested for a key.
type raiseAcceptCommand struct {
	asking
	Limit string `arg:"" help:"name of a limit of the rules, such as api/hourly"`
	ID    string `arg:"" name:"id" help:"the id of the key in weir raise list"`
	controlling
}

// Validate returns an error for a negative -for.
func (q *raiseAcceptCommand) Validate() error { return q.checkEnd() }

func (q *raiseAcceptCommand) ask(ctx context.Context, c *client) (int, error) {
	var set struct{ Rate int64 }
	of := q.control()
	question := of.fields(map[string]string{"limit": q.Limit, "id": q.ID})
	return ok, q.print(ctx, c, http.MethodPost, "/v1/suggestions", question, &set, func() {
		fmt.Fprintf(c.stdout, "an override with a rate of %d is in force %s\n", set.Rate, &of)
	})
}

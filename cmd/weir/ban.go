package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/admin"
)

// banListCommand prints the bans of all members.
type banListCommand struct{ asking }

func (q *banListCommand) run(stdout, _ io.Writer) (int, error) {
	return q.ask("ban list", stdout, func(ctx context.Context, c *client) (int, error) {
		var answer admin.Bans
		text, _, err := c.call(ctx, http.MethodGet, "/v1/bans", nil, &answer)
		switch {
		case err != nil:
			return 0, err
		case q.JSON:
			stdout.Write(text)
			return ok, nil
		}
		if len(answer.Missing) > 0 {
			fmt.Fprintf(stdout, "without the bans of %s, which did not answer\n", strings.Join(answer.Missing, ", "))
		}
		return ok, printTable(stdout, "LIMIT\tKEY\tID\tEND", answer.Bans, func(b admin.Ban) string {
			key := "-"
			if b.Key != nil {
				key = shown(*b.Key)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s", b.Limit, key, b.ID, b.Until.Format(time.RFC3339))
		})
	})
}

// banReleaseCommand releases a key from its ban.
type banReleaseCommand struct {
	asking
	Limit string `arg:"" help:"name of a limit of the rules, such as api/hourly"`
	Name  string `arg:"" optional:"" name:"key" help:"key of the count, such as a user or an address"`
	ID    string `name:"id" help:"the id of the key in weir ban list, in place of the key"`
}

// Validate returns an error unless either a key or an id is set.
func (q *banReleaseCommand) Validate() error {
	if (q.Name == "") == (q.ID == "") {
		return errors.New("set either a key or -id, the id of the key in weir ban list")
	}
	return nil
}

func (q *banReleaseCommand) run(stdout, _ io.Writer) (int, error) {
	return q.ask("ban release", stdout, func(ctx context.Context, c *client) (int, error) {
		query := url.Values{"limit": {q.Limit}, "key": {q.Name}}
		if q.ID != "" {
			query = url.Values{"limit": {q.Limit}, "id": {q.ID}}
		}
		return c.reset(ctx, "/v1/bans?"+query.Encode(), q.JSON, "the key is released on all members")
	})
}

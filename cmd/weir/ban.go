package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/admin"
)

// banListCommand prints the bans of all members.
type banListCommand struct{ asking }

func (q *banListCommand) ask(ctx context.Context, c *client) (int, error) {
	var answer admin.Bans
	return ok, q.print(ctx, c, http.MethodGet, "/v1/bans", nil, &answer, func() {
		if len(answer.Missing) > 0 {
			fmt.Fprintf(c.stdout, "without the bans of %s, which did not answer\n", strings.Join(answer.Missing, ", "))
		}
		printTable(c.stdout, "LIMIT\tKEY\tID\tEND", answer.Bans, func(b admin.Ban) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", b.Limit, keyOrDash(b.Key), b.ID, b.Until.Format(time.RFC3339))
		})
	})
}

// keyOrDash returns the text of a key for a table, or a dash if the response does not have the text.
func keyOrDash(key *string) string {
	if key == nil {
		return "-"
	}
	return shown(*key)
}

// banReleaseCommand releases a key from its ban, and deletes its count.
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

func (q *banReleaseCommand) ask(ctx context.Context, c *client) (int, error) {
	query := url.Values{"limit": {q.Limit}, "key": {q.Name}}
	if q.ID != "" {
		query = url.Values{"limit": {q.Limit}, "id": {q.ID}}
	}
	return q.reset(ctx, c, "/v1/bans?"+query.Encode(), "the key is released on all members")
}

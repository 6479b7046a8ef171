package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-go/weir/admin"
)

// overrideCommand sets or removes the override of a key.
type overrideCommand struct {
	asking
	countOf
	Rate   int64         `help:"units in each period, in place of the rate of the limit"`
	Per    string        `placeholder:"DURATION" help:"the period, such as 1h; the period of the limit if empty"`
	Burst  int64         `help:"capacity of a token_bucket or leaky_bucket; the rate of the override if 0"`
	For    time.Duration `help:"duration of the override; no end if 0"`
	By     string        `help:"author of the override, for the log"`
	Remove bool          `help:"remove the override"`
}

// Help shows both uses.
func (*overrideCommand) Help() string {
	return "All members apply the override within a second:\n\n  weir override api/hourly alice -rate 5000 -for 2h\n  weir override api/hourly alice -remove"
}

// Validate returns an error unless the flags give either a rate or -remove.
func (q *overrideCommand) Validate() error {
	switch {
	case q.Remove && (q.Rate != 0 || q.Per != "" || q.Burst != 0 || q.For != 0 || q.By != ""):
		return errors.New("-remove is set with -rate, -per, -burst, -for or -by: leave these out")
	case !q.Remove && q.Rate <= 0:
		return errors.New("-rate is missing: set -rate to the units of each period, or set -remove")
	case q.For < 0:
		return fmt.Errorf("-for is %v: use a duration of at least 0", q.For)
	}
	return nil
}

func (q *overrideCommand) run(stdout, _ io.Writer) (int, error) {
	return q.ask("override", stdout, func(ctx context.Context, c *client) (int, error) {
		if q.Remove {
			query := url.Values{"limit": {q.Limit}, "key": {q.countOf.Key}}
			if _, _, err := c.call(ctx, http.MethodDelete, "/v1/overrides?"+query.Encode(), nil, nil); err != nil {
				return 0, err
			}
			fmt.Fprintln(stdout, "no override")
			return ok, nil
		}
		question := struct {
			Limit string     `json:"limit"`
			Key   string     `json:"key"`
			Rate  int64      `json:"rate"`
			Per   string     `json:"per,omitempty"`
			Burst int64      `json:"burst,omitempty"`
			Until *time.Time `json:"until,omitempty"`
			By    string     `json:"by,omitempty"`
		}{Limit: q.Limit, Key: q.countOf.Key, Rate: q.Rate, Per: q.Per, Burst: q.Burst, By: q.By}
		if q.For > 0 {
			until := time.Now().Add(q.For).UTC().Truncate(time.Second)
			question.Until = &until
		}
		text, _, err := c.call(ctx, http.MethodPost, "/v1/overrides", &question, nil)
		switch {
		case err != nil:
			return 0, err
		case q.JSON:
			stdout.Write(text)
		case question.Until != nil:
			fmt.Fprintf(stdout, "the override is in force until %s\n", question.Until.Format(time.RFC3339))
		default:
			fmt.Fprintln(stdout, "the override is in force, without an end")
		}
		return ok, nil
	})
}

// topCommand prints the most requested, denied and held keys of all members.
type topCommand struct {
	asking
	N int `default:"10" help:"number of keys in each list"`
}

func (q *topCommand) run(stdout, _ io.Writer) (int, error) {
	return q.ask("top", stdout, func(ctx context.Context, c *client) (int, error) {
		var top admin.Top
		text, _, err := c.call(ctx, http.MethodGet, fmt.Sprintf("/v1/top?n=%d", q.N), nil, &top)
		switch {
		case err != nil:
			return 0, err
		case q.JSON:
			stdout.Write(text)
		default:
			printTable(stdout, "ASKED MOST\tKEY\tCHECKS, ABOUT", top.Asked, func(k admin.TopKey) string {
				return fmt.Sprintf("%s\t%s\t%d", k.Limit, nameOf(k), k.Asks)
			})
			(&cluster{Top: top}).printTop(stdout)
		}
		return ok, nil
	})
}

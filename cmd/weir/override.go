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

// overrideCommand sets or removes the override of a key.
type overrideCommand struct {
	asking
	countOf
	Rate  *int64 `placeholder:"UNITS" help:"units in each period, in place of the rate of the limit; 0 blocks the key"`
	Per   string `placeholder:"DURATION" help:"the period, such as 1h; the period of the limit if empty"`
	Burst int64  `help:"capacity of a token_bucket or leaky_bucket; the rate of the override if 0"`
	controlling
	Used   string `enum:"keep,reset" default:"keep" help:"keep the used units of the key, or reset them"`
	Remove bool   `help:"remove the override"`
}

// controlling are the flags of commands that set a value on all nodes until its end.
type controlling struct {
	For    time.Duration `help:"time until its end; no end if 0"`
	By     string        `help:"its author, for the log"`
	Reason string        `help:"its reason, for the log"`
}

// control is the part of a request that has the values of controlling.
type control struct {
	Until  *time.Time `json:"until,omitempty"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func (q *controlling) isSet() bool { return *q != controlling{} }

// checkEnd returns an error for a negative time.
func (q *controlling) checkEnd() error {
	if q.For < 0 {
		return fmt.Errorf("-for is %v: use a duration of at least 0", q.For)
	}
	return nil
}

func (q *controlling) control() control {
	c := control{By: q.By, Reason: q.Reason}
	if q.For > 0 {
		until := time.Now().Add(q.For).UTC().Truncate(time.Second)
		c.Until = &until
	}
	return c
}

// String returns the end of the value.
func (c *control) String() string {
	if c.Until == nil {
		return "without an end"
	}
	return "until " + c.Until.Format(time.RFC3339)
}

// Help shows both uses.
func (*overrideCommand) Help() string {
	return "All members apply the override within a second:\n\n  weir override api/hourly alice -rate 5000 -for 2h\n  weir override api/hourly alice -remove"
}

// Validate returns an error unless the flags give either a rate or -remove.
func (q *overrideCommand) Validate() error {
	switch {
	case q.Remove && (q.Rate != nil || q.Per != "" || q.Burst != 0 || q.Used != "keep" || q.isSet()):
		return errors.New("-remove is set with -rate, -per, -burst, -used, -for, -by or -reason: leave these out")
	case !q.Remove && q.Rate == nil:
		return errors.New("-rate is missing: set -rate to the units of each period, or set -remove")
	case q.Rate != nil && *q.Rate < 0:
		return fmt.Errorf("-rate is %d: use 0, which blocks the key, or more", *q.Rate)
	}
	return q.checkEnd()
}

func (q *overrideCommand) run(stdout, _ io.Writer) (int, error) {
	return q.ask("override", stdout, func(ctx context.Context, c *client) (int, error) {
		if q.Remove {
			query := url.Values{"limit": {q.Limit}, "key": {q.countOf.Key}}
			return c.remove(ctx, "/v1/overrides?"+query.Encode(), "no override")
		}
		question := struct {
			Limit string `json:"limit"`
			Key   string `json:"key"`
			Rate  int64  `json:"rate"`
			Per   string `json:"per,omitempty"`
			Burst int64  `json:"burst,omitempty"`
			Used  string `json:"used"`
			control
		}{q.Limit, q.countOf.Key, *q.Rate, q.Per, q.Burst, q.Used, q.control()}
		var set struct {
			NotReached []string `json:"not_reached"`
		}
		return q.printAnswer(ctx, c, http.MethodPost, "/v1/overrides", &question, &set, func() error {
			_, err := fmt.Fprintf(stdout, "the override is in force %s\n", &question.control)
			if len(set.NotReached) > 0 {
				fmt.Fprintf(stdout, "members that did not reset the count: %s; repeat the command\n", strings.Join(set.NotReached, ", "))
			}
			return err
		})
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
		return q.printAnswer(ctx, c, http.MethodGet, fmt.Sprintf("/v1/top?n=%d", q.N), nil, &top, func() error {
			err := printTable(stdout, "ASKED MOST\tKEY\tCHECKS, ABOUT", top.Asked, func(k admin.TopKey) string {
				return fmt.Sprintf("%s\t%s\t%d", k.Limit, nameOf(k), k.Asks)
			})
			(&cluster{Top: top}).printTop(stdout)
			return err
		})
	})
}

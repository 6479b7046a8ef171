package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	For    time.Duration `help:"time for which the change is in force; without an end if 0"`
	By     string        `help:"author of the change, for the log"`
	Reason string        `help:"reason for the change, for the log"`
}

// control is the part of a request that has the values of controlling.
type control struct {
	Until  *time.Time `json:"until,omitempty"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func (q *controlling) isSet() bool { return *q != controlling{} }

// checkEnd returns an error for a negative -for.
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

// fields returns the fields of a request that has the given fields and those of c.
func (c *control) fields(values map[string]string) map[string]any {
	all := map[string]any{"by": c.By, "reason": c.Reason}
	for name, value := range values {
		all[name] = value
	}
	if c.Until != nil {
		all["until"] = c.Until
	}
	return all
}

// set sets a value, and prints its end.
func (a *asking) set(ctx context.Context, c *client, path, what string, values map[string]string, of control) (int, error) {
	return ok, a.print(ctx, c, http.MethodPut, path, of.fields(values), nil, func() {
		fmt.Fprintf(c.stdout, "the %s is in force %s\n", what, &of)
	})
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

func (q *overrideCommand) ask(ctx context.Context, c *client) (int, error) {
	count := map[string]string{"limit": q.Limit, "key": q.countOf.Key}
	if q.Remove {
		return c.remove(ctx, "/v1/overrides?"+encode(count), "no override")
	}
	of := q.control()
	question := of.fields(count)
	question["rate"], question["burst"], question["used"] = q.Rate, q.Burst, q.Used
	if q.Per != "" {
		question["per"] = q.Per
	}
	var set struct {
		NotReached []string `json:"not_reached"`
	}
	return ok, q.print(ctx, c, http.MethodPost, "/v1/overrides", question, &set, func() {
		fmt.Fprintf(c.stdout, "the override is in force %s\n", &of)
		if len(set.NotReached) > 0 {
			fmt.Fprintf(c.stdout, "members that did not reset the count: %s; repeat the command\n", strings.Join(set.NotReached, ", "))
		}
	})
}

// topCommand prints the most requested, denied and held keys of all members.
type topCommand struct {
	asking
	N int `default:"10" help:"number of keys in each list"`
}

func (q *topCommand) ask(ctx context.Context, c *client) (int, error) {
	var top admin.Top
	return ok, q.print(ctx, c, http.MethodGet, fmt.Sprintf("/v1/top?n=%d", q.N), nil, &top, func() {
		printTable(c.stdout, "ASKED MOST\tKEY\tCHECKS, ABOUT", top.Asked, func(k admin.TopKey) string {
			return fmt.Sprintf("%s\t%s\t%d", k.Limit, nameOf(k), k.Asks)
		})
		(&cluster{Top: top}).printTop(c.stdout)
	})
}

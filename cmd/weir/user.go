package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// userCommand shows or changes all limits of a client.
type userCommand struct {
	asking
	Name     string   `arg:"" optional:"" help:"a user"`
	IP       string   `name:"ip" placeholder:"ADDRESS" help:"an address, in place of a user"`
	APIKey   string   `name:"api_key" placeholder:"KEY" help:"an API key, in place of a user"`
	Tier     string   `help:"tier of the client; the default tier if empty"`
	Reset    bool     `help:"delete all counts of the client"`
	Block    bool     `help:"refuse all requests of the client"`
	Unblock  bool     `help:"remove the block of the client"`
	Multiply *float64 `placeholder:"FACTOR" help:"set an override for each limit of the client: the numbers of the limit, multiplied"`
	Restore  bool     `help:"remove the overrides of all limits of the client"`
	controlling
}

// Help shows the uses.
func (*userCommand) Help() string {
	return "The limits are those of the rules whose key is the user, the address or the API key alone:\n\n  weir user alice\n  weir user alice -reset\n  weir user alice -multiply 5 -for 2h\n  weir user -api_key KEY -block -reason leaked"
}

// values returns the fields of a request that name the client.
func (q *userCommand) values() map[string]string {
	return (&blocked{IP: q.IP, User: q.Name, APIKey: q.APIKey}).values()
}

// Validate returns an error unless the flags name a client, and at most one change.
func (q *userCommand) Validate() error {
	changes := 0
	for _, is := range []bool{q.Reset, q.Block, q.Unblock, q.Multiply != nil, q.Restore} {
		if is {
			changes++
		}
	}
	switch {
	case len(q.values()) != 1:
		return errors.New("name one client: a user, -ip or -api_key")
	case changes > 1:
		return errors.New("several changes are set: use one of -reset, -block, -unblock, -multiply and -restore")
	case q.isSet() && !q.Block && q.Multiply == nil:
		return errors.New("-for, -by or -reason is set without -block or -multiply: leave these out")
	}
	return q.checkEnd()
}

func (q *userCommand) ask(ctx context.Context, c *client) (int, error) {
	values := q.values()
	switch {
	case q.Unblock:
		return c.remove(ctx, "/v1/blocks?"+encode(values), "no block")
	case q.Block:
		return q.set(ctx, c, "/v1/blocks", "block", values, q.control())
	}
	if q.Tier != "" {
		values["tier"] = q.Tier
	}
	switch {
	case q.Reset:
		return q.change(ctx, c, http.MethodDelete, "/v1/clients/counts?"+encode(values), nil, "count deleted")
	case q.Restore:
		return q.change(ctx, c, http.MethodDelete, "/v1/clients/overrides?"+encode(values), nil, "override removed")
	case q.Multiply != nil:
		of := q.control()
		question := of.fields(values)
		question["multiply"] = *q.Multiply
		return q.change(ctx, c, http.MethodPut, "/v1/clients/overrides", question, "override set")
	}
	return q.show(ctx, c, values)
}

func encode(values map[string]string) string {
	query := make(url.Values)
	for name, value := range values {
		query.Set(name, value)
	}
	return query.Encode()
}

// uncovered lists the rules whose keys have further parts besides the client, so that the
// client alone does not identify a count.
type uncovered []struct{ Rule, Key string }

func (u uncovered) print(w io.Writer) {
	for _, of := range u {
		fmt.Fprintf(w, "not covered: %s, whose key is %s\n", of.Rule, of.Key)
	}
}

// change requests a change, and prints a line for each changed limit.
func (q *userCommand) change(ctx context.Context, c *client, method, path string, question any, what string) (int, error) {
	var answer struct {
		Limits     []string
		NotCovered uncovered `json:"not_covered"`
		NotReached []string  `json:"not_reached"`
	}
	err := q.print(ctx, c, method, path, question, &answer, func() {
		for _, limit := range answer.Limits {
			fmt.Fprintf(c.stdout, "%s: %s\n", limit, what)
		}
		answer.NotCovered.print(c.stdout)
	})
	if len(answer.NotReached) > 0 {
		err = fmt.Errorf("the reset did not reach %s, which may still have counts: repeat the reset when they are reachable", strings.Join(answer.NotReached, ", "))
	}
	return ok, err
}

// show prints the limits of the client.
func (q *userCommand) show(ctx context.Context, c *client, values map[string]string) (int, error) {
	type limit struct {
		verdict
		Blocked  bool
		Override *struct{ control }
	}
	type status struct {
		Exempt bool
		Block  *struct {
			Kind string
			control
		}
		Limits     []limit
		Next       string
		NotCovered uncovered `json:"not_covered"`
	}
	var all []limit
	for {
		var page status
		text, _, err := c.call(ctx, http.MethodGet, "/v1/clients?"+encode(values), nil, &page)
		if err != nil {
			return 0, err
		}
		if q.JSON {
			c.stdout.Write(text)
		}
		if all = append(all, page.Limits...); page.Next != "" {
			values["after"] = page.Next
			continue
		}
		if q.JSON {
			return ok, nil
		}
		if page.Exempt {
			fmt.Fprintln(c.stdout, "the client is exempt")
		}
		if b := page.Block; b != nil {
			fmt.Fprintf(c.stdout, "the client is blocked by its %s %s (%s)\n", b.Kind, &b.control, b.Reason)
		}
		printTable(c.stdout, "LIMIT\tLEFT\tOF\tALL LEFT AT\tPOLICY", all, func(l limit) string {
			notes := l.Policy
			if l.Blocked {
				notes += ", blocked"
			}
			if l.Override != nil {
				notes += ", by an override " + l.Override.String()
			}
			return fmt.Sprintf("%s\t%d\t%d\t%s\t%s", l.Name, l.Remaining, l.Limit, l.ResetAt.Format("2006-01-02T15:04:05Z"), notes)
		})
		page.NotCovered.print(c.stdout)
		return ok, nil
	}
}

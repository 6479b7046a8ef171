package main

import (
	"context"
	"fmt"
	"net/http"
)

// reserveCommand spends an estimate, and prints the reservation.
type reserveCommand struct {
	asking
	countOf
	Units int64  `default:"1" help:"the estimate in units"`
	Tier  string `help:"the tier of the key"`
}

// Help describes how to settle the reservation.
func (*reserveCommand) Help() string {
	return "The command prints the reservation to standard output, and the units left to standard error:\n\n  r=$(weir reserve tokens alice -units 2000) && weir settle tokens alice \"$r\" 1312"
}

func (q *reserveCommand) ask(ctx context.Context, c *client) (int, error) {
	question := taking{Limit: q.Limit, Key: q.countOf.Key, Units: q.Units, Tier: q.Tier}
	var answer struct {
		verdict
		Reservation string `json:"reservation"`
	}
	err := q.print(ctx, c, http.MethodPost, "/v1/reserve", &question, &answer, func() {
		if answer.Reservation != "" {
			fmt.Fprintln(c.stdout, answer.Reservation)
		}
		answer.verdict.print(c.stderr, "reserved", "denied")
	})
	return answer.code(), err
}

// settleCommand replaces the estimate of a reservation by the actual cost.
type settleCommand struct {
	reaching
	countOf
	Reservation string `arg:"" help:"the output of weir reserve; if it is empty, no estimate was spent, and weir settle does nothing"`
	Units       int64  `arg:"" help:"the actual cost in units; 0 cancels the reservation"`
	Tier        string `help:"the tier of the key"`
}

func (q *settleCommand) ask(ctx context.Context, c *client) (int, error) {
	if q.Reservation == "" {
		return ok, nil
	}
	question := taking{Limit: q.Limit, Key: q.countOf.Key, Units: q.Units, Tier: q.Tier, Reservation: q.Reservation}
	_, _, err := c.call(ctx, http.MethodPost, "/v1/settle", &question, nil)
	return ok, err
}

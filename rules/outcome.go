package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Statuses is a set of statuses of responses, such as 401 and the range 500 to 599.
type Statuses []statusRange

type statusRange struct{ first, last int }

// Contains reports whether a status is in the set.
func (s Statuses) Contains(status int) bool {
	return slices.ContainsFunc(s, func(r statusRange) bool { return r.first <= status && status <= r.last })
}

// String returns the set as it is written in a file, like "401, 5xx".
func (s Statuses) String() string {
	var all []string
	for _, r := range s {
		if r.first == r.last {
			all = append(all, strconv.Itoa(r.first))
		} else {
			all = append(all, fmt.Sprintf("%dxx", r.first/100))
		}
	}
	return strings.Join(all, ", ")
}

// Counts reports whether a request is charged if its response had the status. Status 0 means
// that the client left before a response was sent. Such a request is charged.
func (r *Rule) Counts(status int) bool {
	switch {
	case status == 0:
		return true
	case len(r.Count) > 0:
		return r.Count.Contains(status)
	}
	return !r.RefundOn.Contains(status)
}

// Reserves reports whether the units are spent before the response, and settled when the request
// ends.
func (r *Rule) Reserves() bool { return len(r.Count)+len(r.RefundOn) > 0 || r.Settle != nil }

// outcome reads the statuses for which requests are charged.
func (p *parser) outcome(r *Rule, count, refundOn strictyaml.Value) {
	r.Count, r.RefundOn = statuses(count), statuses(refundOn)
	refuse(refundOn, conflict{count.Present(), "refund_on in a rule with count: remove refund_on or count, because count already selects the requests that are refunded"})
	p.checkReserving(r, "count", count)
	p.checkReserving(r, "refund_on", refundOn)
}

// checkReserving reports an error for a field that makes a rule reserve units, if the rule cannot do so.
func (p *parser) checkReserving(r *Rule, field string, v strictyaml.Value) {
	refuse(v,
		conflict{r.Queue > 0, field + " in a rule with queue: put " + field + " and queue into two rules, because units of a queued request cannot be refunded"},
		conflict{r.Soft.Over > 0, field + " in a rule with soft: put " + field + " and soft into two rules, because an overrun cannot be refunded"},
		conflict{r.isHeld(), field + " in a rule whose limits are all in_flight: remove " + field + ", because their units are released after each response"})
}

// statuses reads a status or a list of statuses.
func statuses(v strictyaml.Value) (all Statuses) {
	if !v.Present() {
		return nil
	}
	for _, item := range readItems(v.Map(outcomeFields...).Get("status").Required()) {
		text := item.Literal()
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSuffix(text, "xx"))
		switch whole := strings.HasSuffix(text, "xx"); {
		case err == nil && whole && len(text) == 3 && 1 <= n && n <= 5:
			all = append(all, statusRange{n * 100, n*100 + 99})
		case err == nil && !whole && 100 <= n && n <= 599:
			all = append(all, statusRange{n, n})
		default:
			item.Errorf("status is %q: use one from 100 to 599, or all of a kind, like 5xx", text)
		}
	}
	return all
}

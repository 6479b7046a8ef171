package admin

import (
	"time"

	"github.com/weir-go/weir/rules"
)

// The bounds of rules.Control.
const (
	maxAuthorBytes = 128
	maxReasonBytes = 256
)

// controlAnswer has the fields that the answers about values of operators have in common.
type controlAnswer struct {
	Until  *time.Time `json:"until,omitempty"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	At     time.Time  `json:"at"`
}

func showControl(c *rules.Control) controlAnswer {
	a := controlAnswer{By: c.By, Reason: c.Reason, At: c.At.UTC()}
	if !c.Until.IsZero() {
		until := c.Until.UTC()
		a.Until = &until
	}
	return a
}

// controlFields returns the fields of a request that sets a value of an operator. It also sets c.By to the
// name of the client, which is the author unless the request has a field by.
func (r *request) controlFields(c *rules.Control) []field {
	c.By = shorten(r.by)
	return []field{{name: "until", into: &c.Until}, {name: "by", into: &c.By, most: maxAuthorBytes}, {name: "reason", into: &c.Reason, most: maxReasonBytes}}
}

// controlAttributes returns the attributes of the log line about a value that an operator has set.
func controlAttributes(c *rules.Control, r *request, more ...any) []any {
	until := "forever"
	if !c.Until.IsZero() {
		until = c.Until.UTC().Format(time.RFC3339Nano)
	}
	return append(more, "until", until, "by", c.By, "reason", c.Reason, "client", r.by, "addr", r.RemoteAddr)
}

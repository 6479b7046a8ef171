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

// controlAnswer is the part that the answers about values of operators have in common.
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

// controlFields returns the fields of a request that sets a value of an operator.
func controlFields(c *rules.Control) []field {
	return []field{{name: "until", into: &c.Until}, {name: "by", into: &c.By}, {name: "reason", into: &c.Reason}}
}

// checkControl returns the faults of a Control. Without an author, it sets the author to the client.
func checkControl(c *rules.Control, r *request) (w faults) {
	if c.By == "" {
		c.By = shorten(r.by)
	}
	if !c.Until.IsZero() && !c.Until.After(time.Now()) {
		w.add("until is %s: it is past", c.Until.UTC().Format(time.RFC3339))
	}
	if len(c.By) > maxAuthorBytes {
		w.add("by has %d bytes: use at most %d", len(c.By), maxAuthorBytes)
	}
	if len(c.Reason) > maxReasonBytes {
		w.add("reason has %d bytes: use at most %d", len(c.Reason), maxReasonBytes)
	}
	return w
}

// controlAttributes returns the attributes of the log line about a value that an operator has set.
func controlAttributes(c *rules.Control, r *request, more ...any) []any {
	until := "forever"
	if !c.Until.IsZero() {
		until = c.Until.UTC().Format(time.RFC3339Nano)
	}
	return append(more, "until", until, "by", c.By, "reason", c.Reason, "client", r.by, "addr", r.RemoteAddr)
}

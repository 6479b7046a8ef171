package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// StatusClientGone is the Status of an Outcome whose request was canceled before its
// limits had decided, mostly because the client has disconnected. It is nginx's 499: a
// client's doing, which nobody reads, and no failure of this server.
const StatusClientGone = 499

// ErrNoEnd is the Err of an Outcome if a limit of algorithm in_flight cannot hold units, because no
// event ends the request. It is weir.ErrInvalid.
type ErrNoEnd struct{ Limit string }

func (e *ErrNoEnd) Unwrap() error { return weir.ErrInvalid }

func (e *ErrNoEnd) Error() string {
	return fmt.Sprintf("%v limit %q: it is in_flight, and nothing tells here when the request ends, as with a proxy's question; hold its units by Middleware.Handler, Begin or BeginCheck, or by POST /v1/request with a ttl, or keep such requests out of its rule", weir.ErrInvalid, e.Limit)
}

// Outcome is what became of a request that met a rule.
type Outcome struct {
	Snapshot *rules.Snapshot // that it was judged by, alone
	Status   int             // what it was answered with: 429, 413, 503, 400 or StatusClientGone; 0 if it went on
	Verdicts []Verdict       // on each limit that it met, in the order of the file
	Waited   time.Duration   // in a queue

	// Err is why it could not be judged, and nil if it was. With StatusClientGone it is
	// context.Canceled; with 400 it says what is ambiguous in the path; with 503 the
	// node is closed and not all of its limits are FailOpen, or the request met more
	// limits than rules.MaxMet.
	Err error
}

// fail notes why a request cannot be judged.
func (o *Outcome) fail(err error) {
	o.Err, o.Status = err, http.StatusServiceUnavailable
	if errors.Is(err, context.Canceled) {
		o.Status = StatusClientGone
	}
}

// Verdict is the answer of one limit.
type Verdict struct {
	Rule     *rules.Rule
	Limiter  *weir.Limiter // the numbers are those of the tier, or of an override
	Key      string
	Units    int64
	Decision weir.Decision // zero where nothing was asked, as another limit can never grant what the request costs
	Soft     bool          // the limit is exhausted, and the overrun that the rule allows has admitted the request

	// Overrun counts what the rule allows beyond the limit. It is nil if the rule allows nothing.
	Overrun *weir.Limiter

	policy string // as a header field has it; empty under ByLimiter and Judge, which compute it
	asked  way
	limit  *rules.Limit // nil under ByLimiter and Judge
	begin  int          // of its key among all
	end    int
}

// way is how a limit is asked.
type way uint8

const (
	together way = iota // with the others, for units that stay spent
	inTurn              // the request waits for its turn
	forHold             // for units that the request holds until it ends
	ahead               // for units that are settled when the request ends
)

// askedBy is how a request asks a limit of the rule. Of one that nobody ends, what is spent
// ahead stays spent.
func (s *scratch) askedBy(rule *rules.Rule, inFlight, reserves bool) way {
	switch {
	case rule.Queue > 0:
		return inTurn
	case inFlight:
		return forHold
	case reserves && s.ends:
		return ahead
	}
	return together
}

// Soft reports whether the request went on only because a rule allows an overrun.
func (o *Outcome) Soft() bool {
	for i := range o.Verdicts {
		if o.Verdicts[i].Soft {
			return o.Status == 0
		}
	}
	return false
}

// Violated appends the names of the limits that the request was denied by.
func (o *Outcome) Violated(names []string) []string {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.denies() {
			names = append(names, v.Decision.Name)
		}
	}
	return names
}

// RetryAfter is how long to wait until the same request could be admitted, zero if
// it was, or can never be.
func (o *Outcome) RetryAfter() (longest time.Duration) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.denies() {
			longest = max(longest, v.Decision.RetryAfter)
		}
	}
	return longest
}

// LacksAddress reports whether a key of the request has the sign for an address that
// is not known: all requests without one share it.
func (o *Outcome) LacksAddress() bool {
	for i := range o.Verdicts {
		if strings.Contains(o.Verdicts[i].Key, `\-`) {
			return true
		}
	}
	return false
}

// denies reports whether an enforced limit has denied.
func (v *Verdict) denies() bool {
	return !v.Rule.Shadow && !v.Decision.Allowed && v.Decision.Name != ""
}

// limiter returns what the request is asked of, which counts a shadow's decisions apart.
func (v *Verdict) limiter() *weir.Limiter {
	if v.Rule.Shadow {
		return v.Limiter.Shadow()
	}
	return v.Limiter
}

// known reports whether the answer tells something of the count.
func (v *Verdict) known() bool {
	uncounted := v.Decision.Source == weir.FailedOpen && v.Decision.Limit == 0
	return !v.Rule.Shadow && v.Decision.Source != 0 && v.Decision.Source != weir.FailedClosed && !uncounted
}

// Unserved is what a limit's policy says where its node is closed, so that nothing can
// be counted: FailedOpen, which knows no Limit, if the limit is FailOpen, and else
// FailedClosed.
func Unserved(l weir.Limit) weir.Decision {
	if l.Partition == weir.FailOpen {
		return weir.Decision{Name: l.Name, Allowed: true, Source: weir.FailedOpen}
	}
	return weir.Decision{Name: l.Name, Source: weir.FailedClosed}
}

package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// StatusClientGone is the Status of an Outcome whose request was canceled before its limits had
// decided, usually because the client has disconnected. The value is 499, as in nginx. No client reads
// this status, which is not a failure of this server.
const StatusClientGone = 499

// ErrNoEnd is the Err of an Outcome if an in_flight limit cannot hold units, because the called
// function does not learn when the request ends. It wraps weir.ErrInvalid.
type ErrNoEnd struct{ Limit string }

func (e *ErrNoEnd) Unwrap() error { return weir.ErrInvalid }

func (e *ErrNoEnd) Error() string {
	return fmt.Sprintf("%v limit %q: it is in_flight, and this call does not learn when the request ends, like a proxy's auth request; use Middleware.Handler, Begin or BeginCheck, or POST /v1/request with a ttl, or exclude such requests from its rule", weir.ErrInvalid, e.Limit)
}

// Outcome is the result for a request that met a rule, or was refused without one.
type Outcome struct {
	Snapshot *rules.Snapshot // the rules that were used; nil with ByLimiter
	Status   int             // status of the response: 429, 413, 503, 403, 400 or StatusClientGone; 0 if the request is admitted
	Verdicts []Verdict       // a Verdict of each limit that the request met, in the order of the file
	Waited   time.Duration   // time in queues
	Block    *rules.Block    // the Block that refused the request with 403, so that it met no limit; nil otherwise

	// Err is the reason why the limits could not decide, or nil. With StatusClientGone the reason is
	// context.Canceled. With 400 it names the ambiguous part of the path or of a key. With 503 there are
	// several reasons: the node is closed, and an enforced limit is not FailOpen; the request met more
	// limits than rules.MaxMet; the error is ErrNoEnd; or the deadline of the context passed in a queue.
	Err error

	blockedFor time.Duration // time until the end of Block
	texts      *ownTexts     // nil if the default texts are used
	warned     bool          // a Verdict is Warned
}

// refuseBy sets the outcome of a request that a Block refuses. The request meets no limit.
func (o *Outcome) refuseBy(b *rules.Block, now time.Time) {
	clear(o.Verdicts)
	o.Verdicts = o.Verdicts[:0]
	o.block(b, now)
}

func (o *Outcome) block(b *rules.Block, now time.Time) {
	o.Status, o.Block, o.blockedFor = http.StatusForbidden, b, b.TimeLeft(now)
	o.Snapshot.RecordRefusal(b)
}

// RefuseBlocked looks for a Block of the keys of the enforced Verdicts, and of the clients that these
// keys name. If there is one, RefuseBlocked sets the Status to 403, the Block, and the Decision of the
// Verdict to a denial, and returns true. It is for callers that ask limits of the rules by keys, without
// a rules.Request.
func (o *Outcome) RefuseBlocked(now time.Time) bool {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		l, _, ok := o.Snapshot.Limit(v.Limiter.Limit().Name)
		if !ok || v.Mode != rules.Enforce {
			continue
		}
		if b := cmp.Or(o.Snapshot.KeyBlock(l, v.Key), o.Snapshot.ClientBlock(l, v.Key)); b != nil {
			o.block(b, now)
			v.Decision = weir.Decision{Name: l.Name, RetryAfter: o.blockedFor}
			return true
		}
	}
	return false
}

// fail sets the outcome of a request on which the limits could not decide.
func (o *Outcome) fail(err error) {
	o.Err, o.Status = err, http.StatusServiceUnavailable
	if errors.Is(err, context.Canceled) {
		o.Status = StatusClientGone
	}
}

// Verdict is the result of a limit.
type Verdict struct {
	Rule     *rules.Rule
	Mode     rules.Mode    // mode of the rule for the key: Enforce, Shadow or, only in Judge, Off
	Limiter  *weir.Limiter // Limiter with the numbers in force for the key and the tier
	Key      string
	Tier     string // tier of the request; rules.Set.Tier returns the tier whose numbers apply
	Units    int64
	Decision weir.Decision // zero if the limit was not asked, for example because another limit denied
	Critical bool          // the request may spend the kept units of the limit
	Soft     bool          // the limit is exhausted, and the overrun of the rule has admitted the request
	Warned   bool          // the request is admitted, and the part rules.Limit.Warn of the limit, or more, is used

	// Overrun counts the overrun of the rule, and is nil if the rule has none.
	Overrun *weir.Limiter

	policy string // item of the field RateLimit-Policy; computed later if empty
	asked  way
	limit  *rules.Limit // nil under ByLimiter, and under Judge if no rule has warnings
	begin  int          // start and end of its key in scratch.keys
	end    int
}

// way is the kind of request to a limit.
type way uint8

const (
	together way = iota // take units that stay spent, together with other limits
	inTurn              // wait for a turn in the queue
	forHold             // hold units until the request ends
	ahead               // reserve units that are settled when the request ends
	unasked             // do not ask
)

// askedBy returns the kind of request to a limit. If the end of the request is unknown, reserved units
// stay spent. A shadow does not wait.
func (s *scratch) askedBy(v *Verdict, inFlight, reserves bool) way {
	switch {
	case v.Rule.Queue > 0 && v.Mode == rules.Enforce:
		return inTurn
	case inFlight:
		return forHold
	case reserves && s.ends:
		return ahead
	}
	return together
}

// Banned reports whether a limit denies the request because its key is banned.
func (o *Outcome) Banned() bool {
	if o.Status == 0 {
		return false
	}
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Decision.Banned && v.denies() {
			return true
		}
	}
	return false
}

// Soft reports whether the request is admitted only because a rule allows an overrun.
func (o *Outcome) Soft() bool {
	for i := range o.Verdicts {
		if o.Verdicts[i].Soft {
			return o.Status == 0
		}
	}
	return false
}

// Violated appends the names of the limits that denied the request.
func (o *Outcome) Violated(names []string) []string {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.denies() {
			names = append(names, v.Decision.Name)
		}
	}
	return names
}

// RetryAfter returns the time until the same request could be admitted. RetryAfter returns
// zero if the request was admitted or can never be admitted, or if the limits could not decide. For
// a Block it is the time until its end.
func (o *Outcome) RetryAfter() (longest time.Duration) {
	longest = o.blockedFor
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.denies() {
			longest = max(longest, v.Decision.RetryAfter)
		}
	}
	return longest
}

// LacksAddress reports whether a key has the sign \- in place of a missing part. Call it only for a
// request whose address is unknown. All requests without an address share such a key.
func (o *Outcome) LacksAddress() bool {
	for i := range o.Verdicts {
		if strings.Contains(o.Verdicts[i].Key, `\-`) {
			return true
		}
	}
	return false
}

// Texts returns the texts of the rules for this denial, or nil if the default texts are used. Problem and
// Body have the texts.
func (o *Outcome) Texts() *rules.Denied {
	if o.texts == nil {
		return nil
	}
	return o.texts.Denied
}

// denies reports whether an enforced limit has denied.
func (v *Verdict) denies() bool {
	return v.Mode == rules.Enforce && !v.Decision.Allowed && v.Decision.Name != ""
}

// limiter returns the Limiter to ask. The Limiter of a shadow counts its decisions separately.
func (v *Verdict) limiter() *weir.Limiter {
	if v.Mode == rules.Shadow {
		return v.Limiter.Shadow()
	}
	return v.Limiter
}

// hasState reports whether the decision reveals the state of the count.
func (v *Verdict) hasState() bool {
	uncounted := v.Decision.Source == weir.FailedOpen && v.Decision.Limit == 0
	return v.Mode == rules.Enforce && v.Decision.Source != 0 && v.Decision.Source != weir.FailedClosed && !uncounted
}

// Unserved returns the decision of a limit whose node is closed. Such a node cannot count units, so
// the decision has no Limit. Its Source is FailedOpen if the limit is FailOpen, and FailedClosed
// otherwise.
func Unserved(l weir.Limit) weir.Decision {
	if l.Partition == weir.FailOpen {
		return weir.Decision{Name: l.Name, Allowed: true, Source: weir.FailedOpen}
	}
	return weir.Decision{Name: l.Name, Source: weir.FailedClosed}
}

// Unasked returns the decision of a limit whose rule is off: all units are allowed, and none are counted.
func Unasked(l weir.Limit) weir.Decision {
	return weir.Decision{Name: l.Name, Allowed: true, Limit: rules.Capacity(l), Remaining: rules.Capacity(l)}
}

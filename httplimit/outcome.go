package httplimit

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Outcome is what became of a request that met a rule.
type Outcome struct {
	Snapshot *rules.Snapshot // that it was judged by, alone
	Status   int             // what it was answered with: 429, 413, 503 or 400; 0 if it went on
	Verdicts []Verdict       // on each limit that it met, in the order of the file
	Waited   time.Duration   // in a queue
	Err      error           // why it could not be judged: the node is closed, the client is gone, or it met more limits than rules.MaxMet. With it Status is 503; or 400, and it says what is ambiguous in the path
}

// Verdict is the answer of one limit.
type Verdict struct {
	Rule     *rules.Rule
	Limiter  *weir.Limiter // the numbers are those of the tier, or of an override
	Key      string
	Units    int64
	Decision weir.Decision // zero where nothing was asked, as another limit can never grant what the request costs
	Soft     bool          // the limit is exhausted, and the overrun that the rule allows has admitted the request

	overrun *weir.Limiter // that may admit it, or has
	policy  string        // as a field tells it; empty where no Snapshot has it
	queued  bool          // the request waits for its turn
	begin   int           // of its key among all
	end     int
}

// Soft says that the request went on only because a rule allows an overrun.
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

// denies says that an answer was given, by a limit that is enforced, and is no.
func (v *Verdict) denies() bool {
	return !v.Rule.Shadow && !v.Decision.Allowed && v.Decision.Name != ""
}

// known says that the answer tells something of the count.
func (v *Verdict) known() bool {
	return !v.Rule.Shadow && v.Decision.Source != 0 && v.Decision.Source != weir.FailedClosed
}

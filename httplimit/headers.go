package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
)

// The de facto fields, as http.Header has their names, in which case does not
// matter.
const (
	limitField     = "X-Ratelimit-Limit"
	remainingField = "X-Ratelimit-Remaining"
	resetField     = "X-Ratelimit-Reset" // in Unix seconds
	softField      = "X-Ratelimit-Soft"
)

// maxFields is how many fields there are at most.
const maxFields = 7

// answerFields are the fields of an answer so far, those of a Middleware before this one
// among them.
type answerFields interface {
	Field(name string) string
}

// fields returns the fields that say what was decided, until s is used again:
// X-RateLimit-* of the strictest limit, RateLimit and RateLimit-Policy of all, and
// Retry-After of a denial that time mends. The limits are those of this request's
// Outcome and of the Middlewares before this one, which the answer names already. Limits that
// are not enforced are not told, nor the state of one whose count is not known. All values
// are parts of one text.
func (m *Middleware) fields(s *scratch, before answerFields) (names, values []string) {
	o := &s.outcome
	b := s.header[:0]
	var (
		ends [maxFields]int
		n    int
	)
	end := func(name string) {
		s.names[n], ends[n] = name, len(b)
		n++
	}
	if !m.o.NoXHeaders {
		now := m.now()
		if d, ok := s.strictest(now); ok && leads(&d, resetOf(now, &d), before) {
			b = strconv.AppendInt(b, d.Limit, 10)
			end(limitField)
			b = strconv.AppendInt(b, d.Remaining, 10)
			end(remainingField)
			b = strconv.AppendInt(b, resetOf(now, &d), 10)
			end(resetField)
		}
	}
	if !m.o.NoIETFHeaders {
		begin := len(b)
		b = o.appendOthers(b, before.Field(ratelimit.PolicyField))
		for i := range o.Verdicts {
			if v := &o.Verdicts[i]; !v.Rule.Shadow {
				b = v.appendPolicy(separate(b, begin))
			}
		}
		if len(b) > begin {
			end(ratelimit.PolicyField)
		}
		begin = len(b)
		b = o.appendOthers(b, before.Field(ratelimit.StateField))
		for i := range o.Verdicts {
			if v := &o.Verdicts[i]; v.known() {
				b = ratelimit.AppendState(separate(b, begin), &v.Decision, v.Limiter)
			}
		}
		if len(b) > begin {
			end(ratelimit.StateField)
		}
	}
	if o.Soft() {
		b = append(b, "true"...)
		end(softField)
	}
	if o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable {
		b = strconv.AppendInt(b, o.retryAfter(), 10)
		end(retryAfterField)
	}
	s.header = b
	text, values := string(b), make([]string, n)
	begin := 0
	for i := range n {
		values[i] = text[begin:ends[i]]
		begin = ends[i]
	}
	return s.names[:n], values
}

// resetOf is the X-RateLimit-Reset of a decision whose ResetAfter is the one that clients get.
func resetOf(now time.Time, d *weir.Decision) int64 {
	return ratelimit.Seconds(time.Duration(now.UnixNano()) + d.ResetAfter)
}

// leads reports whether X-RateLimit-* are of this decision, and not of the limit of a
// Middleware before, which has set them: it denies, or has less left, or as much and comes
// back later.
func leads(d *weir.Decision, reset int64, before answerFields) bool {
	told := before.Field(remainingField)
	if told == "" { // as mostly; to parse it would allocate an error
		return true
	}
	remaining, err := strconv.ParseInt(told, 10, 64)
	if !d.Allowed || err != nil || d.Remaining != remaining {
		return !d.Allowed || err != nil || d.Remaining < remaining
	}
	resetBefore, err := strconv.ParseInt(before.Field(resetField), 10, 64)
	return err != nil || reset > resetBefore
}

// appendOthers appends the items of a field that a Middleware before has set, but for limits
// that this Outcome has too.
func (o *Outcome) appendOthers(b []byte, field string) []byte {
	return ratelimit.AppendItems(b, field, func(name string) bool {
		for i := range o.Verdicts {
			if o.Verdicts[i].Limiter.Limit().Name == name {
				return true
			}
		}
		return false
	})
}

func (v *Verdict) appendPolicy(b []byte) []byte {
	if v.policy == "" {
		return ratelimit.AppendPolicy(b, v.Limiter.Limit(), v.Rule.CountsBytes())
	}
	return append(b, v.policy...)
}

// separate goes on to the next item of a list.
func separate(b []byte, begin int) []byte {
	if len(b) > begin {
		b = append(b, ", "...)
	}
	return b
}

// strictest is the answer to show of those that tell something, with the ResetAfter
// that clients are told.
func (s *scratch) strictest(now time.Time) (weir.Decision, bool) {
	s.decisions = s.decisions[:0]
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.known() {
			d := v.Decision
			d.ResetAfter = ratelimit.ResetAt(now, &d, v.Limiter).Sub(now)
			s.decisions = append(s.decisions, d)
		}
	}
	return s.decisions.Strictest(), len(s.decisions) > 0
}

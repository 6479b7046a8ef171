package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
)

// The de facto standard fields, with their names in http.Header. The case of a name does not
// matter.
const (
	limitField     = "X-Ratelimit-Limit"
	remainingField = "X-Ratelimit-Remaining"
	resetField     = "X-Ratelimit-Reset" // a time in Unix seconds
	softField      = "X-Ratelimit-Soft"
	bannedField    = "X-Ratelimit-Banned"
	warningField   = "X-Ratelimit-Warning"
)

// maxFields is the maximum number of fields.
const maxFields = 9

// answerFields are the present fields of a response, including the fields of an earlier Middleware.
type answerFields interface {
	Field(name string) string
}

// fields returns the header fields for the outcome: X-RateLimit-* of the strictest limit, RateLimit and
// RateLimit-Policy of all limits, Retry-After of a denial that ends with time, and one field each for an
// overrun, for warnings and for a ban. The fields also describe the limits of earlier Middlewares, which the
// argument before has. They omit limits that are not enforced, and the state of a limit whose count is
// unknown. The names are valid until s is used again. All values are substrings of a single string.
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
		if d, ok := s.strictest(now); ok && isStricter(&d, resetOf(now, &d), before) {
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
			if v := &o.Verdicts[i]; v.Mode == rules.Enforce {
				b = v.appendPolicy(appendSeparator(b, begin))
			}
		}
		if len(b) > begin {
			end(ratelimit.PolicyField)
		}
		begin = len(b)
		b = o.appendOthers(b, before.Field(ratelimit.StateField))
		for i := range o.Verdicts {
			if v := &o.Verdicts[i]; v.hasState() {
				b = ratelimit.AppendState(appendSeparator(b, begin), &v.Decision, v.Limiter)
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
	if o.warned {
		begin := len(b)
		b = o.appendOthers(b, before.Field(warningField))
		for i := range o.Verdicts {
			if v := &o.Verdicts[i]; v.Warned {
				b = ratelimit.AppendUsed(appendSeparator(b, begin), &v.Decision)
			}
		}
		end(warningField)
	}
	if o.Banned() {
		b = append(b, "true"...)
		end(bannedField)
	}
	if o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable || o.blockedFor > 0 {
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

// resetOf returns the X-RateLimit-Reset of a decision: the time at which the whole limit is available.
func resetOf(now time.Time, d *weir.Decision) int64 {
	return ratelimit.Seconds(time.Duration(now.UnixNano()) + d.ResetAfter)
}

// isStricter reports whether X-RateLimit-* should describe the decision d instead of the limit of an
// earlier Middleware. This is so if d denies, has fewer units left, or has as many units left and a later
// reset.
func isStricter(d *weir.Decision, reset int64, before answerFields) bool {
	told := before.Field(remainingField)
	if told == "" { // the usual case; parsing would allocate an error
		return true
	}
	remaining, err := strconv.ParseInt(told, 10, 64)
	if !d.Allowed || err != nil || d.Remaining != remaining {
		return !d.Allowed || err != nil || d.Remaining < remaining
	}
	resetBefore, err := strconv.ParseInt(before.Field(resetField), 10, 64)
	return err != nil || reset > resetBefore
}

// appendOthers appends the items of a field that an earlier Middleware has set, without the items
// for limits of this Outcome.
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

// appendSeparator appends a separator unless the list is empty.
func appendSeparator(b []byte, begin int) []byte {
	if len(b) > begin {
		b = append(b, ", "...)
	}
	return b
}

// strictest returns the decision to show among the decisions with a known count. Its ResetAfter ends
// at the time that ratelimit.ResetAt returns.
func (s *scratch) strictest(now time.Time) (weir.Decision, bool) {
	s.decisions = s.decisions[:0]
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.hasState() {
			d := v.Decision
			d.ResetAfter = ratelimit.ResetAt(now, &d, v.Limiter).Sub(now)
			s.decisions = append(s.decisions, d)
		}
	}
	return s.decisions.Strictest(), len(s.decisions) > 0
}

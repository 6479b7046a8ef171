package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Admission has the holds of an admitted request at in_flight limits, its reservations at
// limits that are settled when the request ends, and its measurement under rules with adapt.
type Admission struct {
	m         *Middleware
	functions ExchangeFunctions // used instead of the functions of the options; may be nil
	r         *http.Request     // nil if the request is not from net/http
	holds     []*weir.Hold
	charges   []charge
	texts     []heldText
	wrapped   *response // nil without Wrap
	released  sync.Once // releases the holds
	settled   sync.Once // settles the charges
	measure   *measure  // nil if the request meets no rule with adapt
}

// charge is a reservation at one limit of a rule. The charges of a rule share a bill, whose
// cost settles all of them.
type charge struct {
	bill        *bill
	reservation *weir.Reservation
	key         string
}

// Ended describes the end of a request.
type Ended struct {
	// Status is the status of the response: 101 for a hijacked connection, and 500 if the
	// handler panicked before it sent a response. Status is 0 if the client left before a status
	// was sent.
	Status int
	// Aborted reports whether the response may be incomplete because the handler panicked or the
	// client left.
	Aborted bool
	Header  http.Header // header of the response
}

// ensureAdmission returns the Admission of the request, and creates it if necessary.
func (s *scratch) ensureAdmission(m *Middleware) *Admission {
	if s.admission == nil {
		s.admission = &Admission{m: m, functions: s.functions}
	}
	return s.admission
}

// keep adds a hold to the Admission of the request, unless the limit denied the hold.
func (s *scratch) keep(m *Middleware, h *weir.Hold) {
	if h.Decision().Allowed {
		a := s.ensureAdmission(m)
		a.holds = append(a.holds, h)
	}
}

// admit requests the holds and then the reservations of the request, limit by limit,
// until a limit denies.
func (m *Middleware) admit(ctx context.Context, s *scratch) error {
	for _, way := range [...]way{forHold, ahead} {
		for i := range s.outcome.Verdicts {
			v := &s.outcome.Verdicts[i]
			if v.asked != way {
				continue
			}
			if err := m.admitBy(ctx, s, v); err != nil {
				return err
			}
			v.Decision.Shadow = v.Mode == rules.Shadow
			if v.denies() {
				return nil
			}
		}
	}
	return nil
}

// admitBy requests the hold or the reservation at a limit.
func (m *Middleware) admitBy(ctx context.Context, s *scratch, v *Verdict) (err error) {
	l := v.Limiter.Limit()
	switch most := rules.Capacity(l); {
	case v.asked == forHold && !s.ends && v.Mode == rules.Enforce:
		return &ErrNoEnd{l.Name}
	case v.asked == forHold && !s.ends:
		v.Decision, err = v.limiter().Peek(ctx, v.Key)
	case v.asked == forHold && v.Units > most: // only possible for a shadow
		v.Decision = weir.Decision{Name: l.Name, Limit: most, Source: weir.Owner}
	case v.asked == forHold && s.ttl > 0:
		v.Decision, err = s.holdFor(ctx, m, v, (*weir.Limiter).HoldFor)
	case v.asked == forHold:
		var h *weir.Hold
		if h, err = v.limiter().Hold(ctx, v.Key, v.Units); err == nil {
			v.Decision = h.Decision()
			s.keep(m, h)
		}
	default:
		var of *weir.Reservation
		if of, err = v.limiter().Reserve(ctx, v.Key, v.Units); err == nil {
			v.Decision = of.Decision()
			if v.Decision.Allowed {
				s.ensureAdmission(m).charge(v.Rule, of, v.Key)
			}
		}
	}
	return err
}

// charge adds a reservation. The reservations of a rule must be added consecutively.
func (a *Admission) charge(rule *rules.Rule, reservation *weir.Reservation, key string) {
	if n := len(a.charges); n > 0 && a.charges[n-1].bill.rule == rule {
		a.charges = append(a.charges, charge{a.charges[n-1].bill, reservation, key})
		return
	}
	a.charges = append(a.charges, charge{&bill{rule: rule}, reservation, key})
}

// bills calls f with the bill of each rule.
func (a *Admission) bills(f func(*bill)) {
	for i := range a.charges {
		if b := a.charges[i].bill; i == 0 || a.charges[i-1].bill != b {
			f(b)
		}
	}
}

// abandon returns the held and reserved units of a request that is not admitted.
func (s *scratch) abandon() {
	a := s.admission
	s.admission = nil
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; (v.asked == forHold || v.asked == ahead) && v.Decision.Allowed {
			v.Decision.Remaining += v.Units
		}
	}
	a.release()
	a.settled.Do(func() {
		for i := range a.charges {
			a.giveBack(&a.charges[i])
		}
	})
}

func (a *Admission) release() {
	a.released.Do(func() {
		for _, h := range a.holds {
			h.Release()
		}
		a.releaseTexts()
	})
}

func (a *Admission) giveBack(c *charge) {
	a.logEnd(c.reservation.Decision().Name, c.reservation.Cancel(a.ctx()))
}

// ctx returns a context that is not cancelled when the request ends, because the request is
// settled after that.
func (a *Admission) ctx() context.Context {
	if a.r == nil {
		return context.Background()
	}
	return context.WithoutCancel(a.r.Context())
}

// logEnd logs the error of the call that ended a hold or a reservation at a limit, unless the node
// is closed.
func (a *Admission) logEnd(limit string, err error) {
	if err != nil && !errors.Is(err, weir.ErrClosed) {
		a.m.logUnsettled(limit, err)
	}
}

// Wrap returns a ResponseWriter for the handler of r, to be used instead of w. The result reads the
// cost in the response. It has the methods Flush, Hijack and Push if w has them; but it has Push only
// together with Flush, and never both Push and Hijack. http.ResponseController finds the other methods
// of w. Call Wrap at most once. For a nil Admission, Wrap returns w.
func (a *Admission) Wrap(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if a == nil {
		return w
	}
	a.r, a.wrapped = r, &response{ResponseWriter: w, a: a}
	return a.wrapped.withOptionalMethods()
}

// End releases the holds, and settles the reservations according to the end of the request.
// After Wrap, the status that was sent takes precedence over e.Status, and e.Header is ignored. If the
// handler has hijacked the connection, the request ends when the connection is closed, or at once if
// e.Aborted is true. Until the connection is closed, End only settles the reservations of an Exchange
// with ExchangeFunctions. Further calls, and calls on a nil Admission, do nothing. End does not wait
// for other nodes.
func (a *Admission) End(e Ended) {
	if a == nil {
		return
	}
	failed := isFailure(e.Status)
	if w := a.wrapped; w != nil {
		if w.hijacked && !e.Aborted {
			if a.functions != nil {
				a.settleAll(hijackedEnd())
			}
			return
		}
		w.fillEnd(&e)
	}
	a.RecordResponse(e.Status)
	a.recordEnd(failed && (a.r == nil || a.r.Context().Err() == nil))
	a.end(&e)
}

func (a *Admission) end(e *Ended) {
	a.release()
	a.settleAll(e)
}

func (a *Admission) settleAll(e *Ended) {
	a.settled.Do(func() {
		for i := range a.charges {
			a.settle(&a.charges[i], e)
		}
	})
}

func (a *Admission) counts(rule *rules.Rule, e *Ended) bool {
	switch {
	case a.m.o.Count == nil || a.m.one == nil && len(rule.Count)+len(rule.RefundOn) == 0:
		return rule.Counts(e.Status)
	case a.functions != nil:
		return a.functions.Count(rule, e)
	}
	return a.m.o.Count(a.r, rule, e)
}

// serve calls the handler next for the request. The request ends when next returns or panics, or when the
// connection that next has hijacked is closed.
func (a *Admission) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	w = a.Wrap(w, r)
	e := Ended{Status: http.StatusInternalServerError, Aborted: true} // a panic
	defer func() { a.End(e) }()
	next.ServeHTTP(w, r)
	e = Ended{Status: http.StatusOK} // sent by the server for a handler that wrote nothing
}

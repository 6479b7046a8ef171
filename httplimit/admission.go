package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Admission is what a request that goes on has until it ends: holds of in_flight limits, and
// reservations of limits that are settled then.
type Admission struct {
	m         *Middleware
	functions ExchangeFunctions // in the place of those of the options; nil without them
	r         *http.Request     // nil if this is no request of net/http
	holds     []*weir.Hold
	charges   []charge
	texts     []heldText
	wrapped   *response // nil without Wrap
	released  sync.Once // the holds are
	settled   sync.Once // the charges are
}

// charge is a reservation, and the bill that settles it, which is the same for all limits of
// a rule.
type charge struct {
	bill        *bill
	reservation *weir.Reservation
	key         string
}

// Ended is how a request ended.
type Ended struct {
	// Status is that of the response, 101 for a connection that was hijacked, and 500 if the
	// handler panicked before it sent one. It is 0 if the client left before.
	Status int
	// Aborted reports whether the response may be incomplete: the handler panicked, or the
	// client left.
	Aborted bool
	Header  http.Header // of the response
}

// kept returns the Admission of the request, which has something to keep now.
func (s *scratch) kept(m *Middleware) *Admission {
	if s.admission == nil {
		s.admission = &Admission{m: m, functions: s.functions}
	}
	return s.admission
}

// keep adds a hold to the request's Admission.
func (s *scratch) keep(m *Middleware, h *weir.Hold) {
	if h.Decision().Allowed {
		a := s.kept(m)
		a.holds = append(a.holds, h)
	}
}

// admit asks the limits for what the request has until it ends, one after the other, until
// one denies. Holds come first, and then reservations.
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
			v.Decision.Shadow = v.Rule.Shadow
			if v.denies() {
				return nil
			}
		}
	}
	return nil
}

// admitBy asks one limit.
func (m *Middleware) admitBy(ctx context.Context, s *scratch, v *Verdict) (err error) {
	l := v.Limiter.Limit()
	switch most := rules.Capacity(l); {
	case v.asked == forHold && !s.ends && !v.Rule.Shadow:
		return &ErrNoEnd{l.Name}
	case v.asked == forHold && !s.ends:
		v.Decision, err = v.limiter().Peek(ctx, v.Key)
	case v.asked == forHold && v.Units > most: // of a shadow
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
				s.kept(m).charge(v.Rule, of, v.Key)
			}
		}
	}
	return err
}

// charge adds a reservation, those of a rule one after the other.
func (a *Admission) charge(rule *rules.Rule, of *weir.Reservation, key string) {
	if n := len(a.charges); n > 0 && a.charges[n-1].bill.rule == rule {
		a.charges = append(a.charges, charge{a.charges[n-1].bill, of, key})
		return
	}
	a.charges = append(a.charges, charge{&bill{rule: rule}, of, key})
}

// bills calls f with the bill of each rule.
func (a *Admission) bills(f func(*bill)) {
	for i := range a.charges {
		if b := a.charges[i].bill; i == 0 || a.charges[i-1].bill != b {
			f(b)
		}
	}
}

// abandon gives back what a request has that does not go on.
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

// ctx is the request's, which need not last as long as what it has is settled.
func (a *Admission) ctx() context.Context {
	if a.r == nil {
		return context.Background()
	}
	return context.WithoutCancel(a.r.Context())
}

// logEnd logs the error of the call that ended a reservation of limit. If the node is closed,
// the error has already been logged.
func (a *Admission) logEnd(limit string, err error) {
	if err != nil && !errors.Is(err, weir.ErrClosed) {
		a.m.logUnsettled(limit, err)
	}
}

// Wrap returns the ResponseWriter to which the handler of r writes, in place of w: it reads
// what the response says of its cost, and passes on all that w offers. Call it once at most.
// Of a nil Admission it is w.
func (a *Admission) Wrap(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if a == nil {
		return w
	}
	a.r, a.wrapped = r, &response{ResponseWriter: w, a: a}
	return a.wrapped.full()
}

// End releases the holds, and settles the reservations by how the request ended. After Wrap,
// the status that was sent goes before that of e, and the Header of e is not used; a request
// whose connection was hijacked ends only when that is closed, unless e is Aborted. With
// ExchangeFunctions its reservations are settled at once. To call End again does nothing, as with
// a nil Admission. It waits for no other node.
func (a *Admission) End(e Ended) {
	if a == nil {
		return
	}
	if w := a.wrapped; w != nil {
		if w.hijacked && !e.Aborted {
			if a.functions != nil {
				a.settleAll(hijackedEnd())
			}
			return
		}
		w.ended(&e)
	}
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

// serve has next answer the request, which ends when next returns or panics, or when the
// connection that next has hijacked is closed.
func (a *Admission) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	w = a.Wrap(w, r)
	e := Ended{Status: http.StatusInternalServerError, Aborted: true} // a panic
	defer func() { a.End(e) }()
	next.ServeHTTP(w, r)
	e = Ended{Status: http.StatusOK} // which the server sends for a handler that wrote nothing
}

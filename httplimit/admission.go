package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/weir-go/weir"
)

// Admission is what a request that goes on has until it ends: units of in_flight limits.
type Admission struct {
	m     *Middleware
	holds []*weir.Hold
	once  sync.Once // it ended
}

// keep adds a hold to the request's Admission.
func (s *scratch) keep(m *Middleware, h *weir.Hold) {
	if !h.Decision().Allowed {
		return
	}
	if s.admission == nil {
		s.admission = &Admission{m: m}
	}
	s.admission.holds = append(s.admission.holds, h)
}

// endless is the error of what cannot hold units, as nothing tells when it ends.
func endless(limit string) error {
	return fmt.Errorf("%w limit %q: it is in_flight, and nothing tells here when the request ends; only Middleware.Handler holds its units", weir.ErrInvalid, limit)
}

// hold asks the in_flight limits, one after the other, until one denies.
func (m *Middleware) hold(ctx context.Context, s *scratch) error {
	for i := range s.outcome.Verdicts {
		v := &s.outcome.Verdicts[i]
		if v.asked != forHold {
			continue
		}
		l := v.Limiter.Limit()
		switch {
		case !s.ends && !v.Rule.Shadow:
			return endless(l.Name)
		case !s.ends:
			var err error
			if v.Decision, err = v.Limiter.Peek(ctx, v.Key); err != nil {
				return err
			}
		case v.Units > l.Rate: // of a shadow
			v.Decision = weir.Decision{Name: l.Name, Limit: l.Rate, Source: weir.Owner}
		default:
			h, err := v.Limiter.Hold(ctx, v.Key, v.Units)
			if err != nil {
				return err
			}
			v.Decision = h.Decision()
			s.keep(m, h)
		}
		v.Decision.Shadow = v.Rule.Shadow
		if v.denies() {
			return nil
		}
	}
	return nil
}

// release gives back what the request has. To call it again does nothing.
func (a *Admission) release() {
	a.once.Do(func() {
		for _, h := range a.holds {
			h.Release()
		}
	})
}

// serve has next answer the request, which ends when next returns or panics, or when the
// connection that next has hijacked is closed.
func (a *Admission) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	rw := &response{ResponseWriter: w, a: a}
	panics := true
	defer func() {
		if panics || !rw.hijacked {
			a.release()
		}
	}()
	next.ServeHTTP(rw.full(), r)
	panics = false
}

package httplimit

import (
	"context"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// heldText is the text of a hold, with which a client ends the hold.
type heldText struct {
	limiter   *weir.Limiter
	key, text string
}

// holdFor calls ask, which is Limiter.HoldFor or Limiter.WaitHoldFor, and records the text of the hold.
func (s *scratch) holdFor(ctx context.Context, m *Middleware, v *Verdict, ask func(*weir.Limiter, context.Context, string, int64, time.Duration) (string, weir.Decision, error)) (weir.Decision, error) {
	text, d, err := ask(v.limiter(), ctx, v.Key, v.Units, s.ttl)
	if text != "" {
		a := s.ensureAdmission(m)
		a.texts = append(a.texts, heldText{v.Limiter, v.Key, text})
	}
	return d, err
}

// releaseTexts releases the holds of a request that a different limit denied.
func (a *Admission) releaseTexts() {
	for _, h := range a.texts {
		ctx, cancel := context.WithTimeout(context.Background(), refundTimeout)
		a.logEnd(h.limiter.Limit().Name, h.limiter.ReleaseHold(ctx, h.key, h.text))
		cancel()
	}
}

// CheckFor is like Check, for a request that its client ends with the returned texts. The client
// releases a hold with Limiter.ReleaseHold, and settles a reservation with Limiter.OpenReservation. Held
// units also return at the end of ttl, unless Limiter.RenewHold extends it. ttl is as in
// Limiter.HoldFor. If ttl is 0, CheckFor is the same as Check.
func (m *Middleware) CheckFor(ctx context.Context, r *rules.Request, ttl time.Duration) (o Outcome, holds, reservations []CarriedText) {
	s := &scratch{request: *r, ends: ttl > 0, ttl: ttl}
	m.decide(ctx, s)
	if a := s.admission; a != nil {
		for _, h := range a.texts {
			holds = append(holds, CarriedText{h.limiter.Limit().Name, h.key, h.text})
		}
		for _, c := range a.charges {
			reservations = append(reservations, CarriedText{c.reservation.Decision().Name, c.key, c.reservation.Text()})
		}
	}
	return s.outcome, holds, reservations
}

// CarriedText is the text of a hold or of a reservation, with its limit and key.
type CarriedText struct{ Limit, Key, Text string }

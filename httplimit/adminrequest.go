package httplimit

import (
	"context"
	"time"

	"github.com/weir-go/weir"
)

// heldText is a hold that a client ends by its text.
type heldText struct {
	limiter   *weir.Limiter
	key, text string
}

// holdFor asks a Limiter's HoldFor or WaitHoldFor on behalf of a client.
func (s *scratch) holdFor(ctx context.Context, m *Middleware, v *Verdict, ask func(*weir.Limiter, context.Context, string, int64, time.Duration) (string, weir.Decision, error)) (weir.Decision, error) {
	text, d, err := ask(v.limiter(), ctx, v.Key, v.Units, s.ttl)
	if text != "" {
		a := s.kept(m)
		a.texts = append(a.texts, heldText{v.Limiter, v.Key, text})
	}
	return d, err
}

// releaseTexts ends the holds of a request that does not go on.
func (a *Admission) releaseTexts() {
	for _, h := range a.texts {
		ctx, cancel := context.WithTimeout(context.Background(), refundTimeout)
		a.logEnd(h.limiter.Limit().Name, h.limiter.ReleaseHold(ctx, h.key, h.text))
		cancel()
	}
}

// carried is a hold of a request, as release and renew take it, or a reservation, as settle
// takes it with the units.
type carried struct {
	Limit       string `json:"limit"`
	Key         string `json:"key"`
	Tier        string `json:"tier,omitempty"`
	Hold        string `json:"hold,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// carried returns what the request has until its client ends it.
func (s *scratch) carried() (holds, reservations []carried) {
	if s.admission == nil {
		return nil, nil
	}
	tier := s.outcome.Snapshot.Tier(s.request.Tier)
	for _, h := range s.admission.texts {
		holds = append(holds, carried{Limit: h.limiter.Limit().Name, Key: h.key, Tier: tier, Hold: h.text})
	}
	for _, c := range s.admission.charges {
		reservations = append(reservations, carried{Limit: c.reservation.Decision().Name, Key: c.key, Tier: tier, Reservation: c.reservation.Text()})
	}
	return holds, reservations
}

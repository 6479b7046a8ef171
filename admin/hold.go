package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/enum"
)

// What a hold may last without a renewal.
const (
	adminHoldTTL      = 30 * time.Second // where the question leaves it out
	adminLeastHoldTTL = time.Second
	adminMostHoldTTL  = time.Hour
)

// heldAnswer is what an in-flight limit says, or any limit of an estimate. ExpiresAt is there,
// and a Hold or a Reservation, if units are held or spent.
type heldAnswer struct {
	Take
	Hold        string     `json:"hold,omitempty"`
	Reservation string     `json:"reservation,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// hold holds units of one in-flight limit of the rules. They come back by release, or once
// ttl has passed since the last renewal.
func (a *admin) hold(r *adminRequest) (int, any, error) {
	ttl := adminHoldTTL
	v, o, err := r.onePossible(adminField{name: "ttl", into: &ttl})
	if err == nil {
		err = holdTTL(ttl)
	}
	if err != nil {
		return 0, nil, err
	}
	var answer heldAnswer
	begun := time.Now()
	if mustAsk(o, v) {
		if answer.Hold, v.Decision, err = limiterOf(v).HoldFor(r.Context(), v.Key, v.Units, ttl); err != nil {
			return 0, nil, err
		}
	}
	if answer.Hold != "" {
		answer.ExpiresAt = expiry(begun.Add(ttl))
	}
	answer.Take = answerOfOne(o, r.w.Header())
	return http.StatusOK, answer, nil
}

// holdTTL returns an error for a ttl that no hold may have.
func holdTTL(ttl time.Duration) error {
	if ttl < adminLeastHoldTTL || ttl > adminMostHoldTTL {
		return adminRefusal(http.StatusBadRequest, "ttl is %s: use %s to %s", enum.Duration(ttl), enum.Duration(adminLeastHoldTTL), enum.Duration(adminMostHoldTTL))
	}
	return nil
}

// expiry is a time as the API shows it, rounded down: a client that renews or settles before
// it is not too late.
func expiry(at time.Time) *time.Time {
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}

// carriedText reads a text of hold or reserve, in the field of that name, and returns the
// limit that it is about.
func (r *adminRequest) carriedText(field string, more ...adminField) (v httplimit.Verdict, text string, err error) {
	v, err = r.oneCount(append(more, adminField{name: field, into: &text, required: true})...)
	if err == nil {
		err = r.checkKind(v.Limiter.Limit())
	}
	return v, text, err
}

// renew lets a hold go on.
func (a *admin) renew(r *adminRequest) (int, any, error) {
	ttl := adminHoldTTL
	v, text, err := r.carriedText("hold", adminField{name: "ttl", into: &ttl})
	if err == nil {
		err = holdTTL(ttl)
	}
	if err == nil {
		err = v.Limiter.RenewHold(r.Context(), v.Key, text, ttl)
	}
	if errors.Is(err, weir.ErrExpired) {
		err = adminRefusal(http.StatusGone, "the hold is released, lost or over, and its units may be others': stop what it is for, and take a new one")
	}
	return http.StatusNoContent, nil, unanswered(err)
}

// unanswered returns what tells a client to ask again where err is that other nodes did not
// answer.
func unanswered(err error) error {
	switch {
	case err == nil, errors.As(err, new(*adminError)), errors.Is(err, weir.ErrInvalid), errors.Is(err, weir.ErrClosed), errors.Is(err, context.Canceled):
		return err
	}
	return adminRefusal(http.StatusGatewayTimeout, "no node that would know has answered: ask again")
}

// release gives back what a hold has. To do so again does nothing.
func (a *admin) release(r *adminRequest) (int, any, error) {
	v, text, err := r.carriedText("hold")
	if err == nil {
		err = v.Limiter.ReleaseHold(r.Context(), v.Key, text)
	}
	return http.StatusNoContent, nil, unanswered(err)
}

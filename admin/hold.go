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
	defaultHoldTTL = 30 * time.Second // where the question leaves it out
	minHoldTTL     = time.Second
	maxHoldTTL     = time.Hour
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
func (a *api) hold(r *request) (int, any, error) {
	ttl := defaultHoldTTL
	v, o, err := r.readPossible(field{name: "ttl", into: &ttl})
	if err == nil {
		err = checkHoldTTL(ttl)
	}
	if err != nil {
		return 0, nil, err
	}
	var answer heldAnswer
	begun := time.Now()
	if mustAsk(o, v) {
		if answer.Hold, v.Decision, err = askedLimiter(v).HoldFor(r.Context(), v.Key, v.Units, ttl); err != nil {
			return 0, nil, err
		}
	}
	if answer.Hold != "" {
		answer.ExpiresAt = truncateTime(begun.Add(ttl))
	}
	answer.Take = showOnly(o, r.w.Header())
	return http.StatusOK, answer, nil
}

// checkHoldTTL returns an error for a ttl that no hold may have.
func checkHoldTTL(ttl time.Duration) error {
	if ttl < minHoldTTL || ttl > maxHoldTTL {
		return refuse(http.StatusBadRequest, "ttl is %s: use %s to %s", enum.Duration(ttl), enum.Duration(minHoldTTL), enum.Duration(maxHoldTTL))
	}
	return nil
}

// truncateTime is a time as the API shows it, rounded down: a client that renews or settles before
// it is not too late.
func truncateTime(at time.Time) *time.Time {
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}

// readCarried reads a text of hold or reserve, in the field of that name, and returns the
// limit that it is about.
func (r *request) readCarried(name string, more ...field) (v httplimit.Verdict, text string, err error) {
	v, err = r.readCount(append(more, field{name: name, into: &text, required: true})...)
	if err == nil {
		err = r.checkKind(v.Limiter.Limit())
	}
	return v, text, err
}

// renew lets a hold go on.
func (a *api) renew(r *request) (int, any, error) {
	ttl := defaultHoldTTL
	v, text, err := r.readCarried("hold", field{name: "ttl", into: &ttl})
	if err == nil {
		err = checkHoldTTL(ttl)
	}
	if err == nil {
		err = v.Limiter.RenewHold(r.Context(), v.Key, text, ttl)
	}
	if errors.Is(err, weir.ErrExpired) {
		err = refuse(http.StatusGone, "the hold is released, lost or over, and its units may be others': stop what it is for, and take a new one")
	}
	return http.StatusNoContent, nil, translateUnanswered(err)
}

// translateUnanswered returns what tells a client to ask again where err is that other nodes did not
// answer.
func translateUnanswered(err error) error {
	switch {
	case err == nil, errors.As(err, new(*refusal)), errors.Is(err, weir.ErrInvalid), errors.Is(err, weir.ErrClosed), errors.Is(err, context.Canceled):
		return err
	}
	return refuse(http.StatusGatewayTimeout, "no node that would know has answered: ask again")
}

// release gives back what a hold has. To do so again does nothing.
func (a *api) release(r *request) (int, any, error) {
	v, text, err := r.readCarried("hold")
	if err == nil {
		err = v.Limiter.ReleaseHold(r.Context(), v.Key, text)
	}
	return http.StatusNoContent, nil, translateUnanswered(err)
}

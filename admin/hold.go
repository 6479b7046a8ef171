package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

// A hold that is not renewed lasts for its TTL.
const (
	defaultHoldTTL = 30 * time.Second // TTL of a request without a ttl
	minHoldTTL     = time.Second
	maxHoldTTL     = time.Hour
)

// heldAnswer is the response to hold, for an in_flight limit, and to reserve, for other limits. Hold
// and ExpiresAt are set if units are held, and Reservation and ExpiresAt if units are reserved.
type heldAnswer struct {
	Take
	Hold        string     `json:"hold,omitempty"`
	Reservation string     `json:"reservation,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// hold holds units of an in_flight limit of the rules. The units come back by release, or once ttl has
// passed since the last renewal.
func (a *api) hold(r *request) (int, any, error) {
	ttl := defaultHoldTTL
	v, o, err := r.readPossible(false, ttlField(&ttl))
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
	countDenial(o, v)
	if answer.Hold != "" {
		answer.ExpiresAt = truncateTime(begun.Add(ttl))
	}
	answer.Take = showOnly(o, r.w.Header())
	return http.StatusOK, answer, nil
}

// ttlField returns the field for the ttl of a hold.
func ttlField(into *time.Duration) field {
	return field{name: "ttl", into: into, least: int64(minHoldTTL), most: int64(maxHoldTTL)}
}

// truncateTime rounds a time down to the millisecond that the API shows, and returns nil for the zero Time. A
// client that renews or settles before the rounded time is therefore not too late.
func truncateTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}

// readCarried returns the text of a hold or reservation, from the field of the given name, and a Verdict
// with its limit and key. The kind of the limit suits the path.
func (r *request) readCarried(name string, more ...field) (v httplimit.Verdict, text string, err error) {
	v, err = r.readCount(append(more, field{name: name, into: &text, required: true})...)
	if err == nil {
		err = r.checkKind(v.Limiter.Limit())
	}
	return v, text, err
}

// renewed is the response to renew.
type renewed struct {
	Units     int64      `json:"units"` // the units that are held
	ExpiresAt *time.Time `json:"expires_at"`
}

// renew sets the end of a hold to ttl from now. If the hold has more units than the field units, renew returns
// the units above it.
func (a *api) renew(r *request) (int, any, error) {
	ttl, units := defaultHoldTTL, int64(maxUnits)
	v, text, err := r.readCarried("hold", ttlField(&ttl), field{name: "units", into: &units})
	if err == nil && (units < 1 || units > maxUnits) {
		err = refuse(http.StatusBadRequest, "units is %d: keep 1 to %d, or end the hold by POST /v1/release", units, int64(maxUnits))
	}
	answer := renewed{ExpiresAt: truncateTime(time.Now().Add(ttl))}
	if err == nil {
		answer.Units, err = v.Limiter.ShrinkHold(r.Context(), v.Key, text, units, ttl)
	}
	if errors.Is(err, weir.ErrExpired) {
		err = refuse(http.StatusGone, "the hold was released, lost or not renewed in time, and other callers may have its units: stop the work that it is for, and request a new hold")
	}
	return http.StatusOK, answer, translateUnanswered(err)
}

// translateUnanswered returns err if it is nil or one of the known errors. Any other error means that other
// nodes did not answer. For it, translateUnanswered returns a refusal that tells the client to ask again.
func translateUnanswered(err error) error {
	switch {
	case err == nil, errors.As(err, new(*refusal)), errors.Is(err, weir.ErrInvalid), errors.Is(err, weir.ErrClosed), errors.Is(err, context.Canceled):
		return err
	}
	return refuse(http.StatusGatewayTimeout, "no node that could know the answer has responded: ask again")
}

// release returns the units of a hold. A second release of a hold has no effect.
func (a *api) release(r *request) (int, any, error) {
	v, text, err := r.readCarried("hold")
	if err == nil {
		err = v.Limiter.ReleaseHold(r.Context(), v.Key, text)
	}
	return http.StatusNoContent, nil, translateUnanswered(err)
}

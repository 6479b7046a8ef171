package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

// reserve spends an estimate of the cost under a limit of the rules. settle replaces the estimate by the cost.
func (a *api) reserve(r *request) (int, any, error) {
	v, o, err := r.readPossible(true)
	if err != nil {
		return 0, nil, err
	}
	var answer heldAnswer
	if mustAsk(o, v) {
		spent, err := reserve(r.Context(), v)
		if err != nil {
			return 0, nil, err
		}
		if spent.Decision().Allowed {
			answer.Reservation, answer.ExpiresAt = spent.Text(), truncateTime(spent.Expires())
		}
	}
	countDenial(o, v)
	answer.Take = showOnly(o, r.w.Header())
	return http.StatusOK, answer, nil
}

// reserve reserves the units of v under its limit. If the limit denies, reserve asks the overrun of the rule.
func reserve(ctx context.Context, v *httplimit.Verdict) (*weir.Reservation, error) {
	spent, err := askedLimiter(v).Reserve(ctx, v.Key, v.Units)
	v.Decision = spent.Decision()
	if err != nil || !mayOverrun(v) || v.Units > v.Overrun.Limit().Rate {
		return spent, err
	}
	over, err := v.Overrun.Reserve(ctx, v.Key, v.Units)
	if err == nil && over.Decision().Allowed {
		v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
		return over, nil
	}
	return spent, err
}

// settle replaces the estimate of a reservation by the cost. A reservation is settled only once.
func (a *api) settle(r *request) (int, any, error) {
	var units int64
	v, text, err := r.readCarried("reservation", field{name: "units", into: &units, required: true, most: maxUnits})
	if err != nil {
		return 0, nil, err
	}
	reservation, err := openReservation(&v, text)
	if err == nil {
		err = reservation.Settle(r.Context(), units)
	}
	switch {
	case errors.Is(err, weir.ErrSettled):
		err = refuse(http.StatusConflict, "the reservation is settled or cancelled already: this has changed nothing")
	case errors.Is(err, weir.ErrExpired):
		err = refuse(http.StatusGone, "the reservation has expired: its estimate stays spent")
	}
	return http.StatusNoContent, nil, translateUnanswered(err)
}

// openReservation opens a text of a reservation under the limit of v, or under the overrun of its rule.
func openReservation(v *httplimit.Verdict, text string) (*weir.Reservation, error) {
	spent, err := v.Limiter.OpenReservation(v.Key, text)
	switch {
	case !errors.Is(err, weir.ErrInvalid):
		return spent, err
	case v.Overrun == nil:
		return nil, errForeignReservation
	}
	over, overErr := v.Overrun.OpenReservation(v.Key, text)
	if errors.Is(overErr, weir.ErrInvalid) {
		return nil, errForeignReservation
	}
	return over, overErr
}

var errForeignReservation = refuse(http.StatusBadRequest, "the text belongs to no reservation of this limit, key and cluster: send it as POST /v1/reserve returned it, with the same limit and key")

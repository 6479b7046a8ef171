package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/reserve"
	"github.com/weir-go/weir/internal/wire"
)

// Reservation is an estimate that was spent before the actual cost is known. Its methods are
// safe for concurrent use. A denied Reservation has spent nothing.
//
// Settle or Cancel takes effect once. If neither is called, the estimate stays spent. Once the Reservation has
// expired, Stats counts it as Unsettled, unless Text was called.
type Reservation struct {
	l        *Limiter
	units    int64
	decision Decision
	made     reserve.Reservation // set only if the estimate was allowed
}

// Reserve spends an estimate, which has the range of units of AllowN. Reserve is like AllowN, but
// never spends units of a lease. The Reservation is never nil. Its Decision is a denial if
// the estimate was denied, and with every error.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	var (
		a   wire.Ask
		r   wire.Result
		err error
	)
	v := &Reservation{l: l, units: estimate}
	if err = l.checkInto(ctx, wire.OpTake, key, estimate, &a, &r, &v.decision); err == nil && v.decision.Allowed {
		l.node.clients.reservations.Make(&v.made, &a, &r)
	}
	return v, err
}

// Decision returns the decision about the estimate.
func (v *Reservation) Decision() Decision { return v.decision }

// Units returns the estimate.
func (v *Reservation) Units() int64 { return v.units }

// Expires returns the time until which the Reservation can be settled. After the estimate is spent, it can
// be settled for Per, for twice Per with SlidingWindow, or for the time in which an empty bucket refills,
// but for at least a minute and at most an hour. The result is the zero Time for a denied Reservation.
func (v *Reservation) Expires() time.Time {
	if !v.decision.Allowed {
		return time.Time{}
	}
	return v.made.Expires()
}

// Settle refunds the units by which the estimate exceeds the actual cost, or debits the units by
// which the estimate falls short, in the window in which the estimate was spent. Settle waits for an answer only
// if the Reservation was carried (Text), so ctx may otherwise be done. The cost is 0 or more. A debt is bounded
// as in Debit. The count does not change if that window has ended, or after a Reset. If the owner does not
// answer, units that Settle would refund may stay spent.
//
// The error is ErrInvalid for a negative cost or a denied Reservation, ErrSettled for the second
// call, ErrExpired, or ErrClosed. For a carried Reservation, the error may also be ErrUnavailable or
// the error of ctx: the Reservation is then not settled, and it is safe to try again.
func (v *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 && v.decision.Allowed {
		return fmt.Errorf("%w actual: %d: settle 0 units or more", ErrInvalid, actual)
	}
	if err := v.checkUsable(); err != nil {
		return err
	}
	return v.made.Settle(ctx, v.l.numbersNow(), actual)
}

// Cancel refunds the whole estimate, like Settle with 0.
func (v *Reservation) Cancel(ctx context.Context) error {
	if err := v.checkUsable(); err != nil {
		return err
	}
	return v.made.Cancel(ctx, v.l.numbersNow())
}

// checkUsable returns an error if the Reservation was denied or the node is closed.
func (v *Reservation) checkUsable() error {
	if !v.decision.Allowed {
		return fmt.Errorf("%w Reservation: it was denied, so that there is nothing to settle", ErrInvalid)
	}
	if v.l.node.env.Ended() {
		return ErrClosed
	}
	return nil
}

// Text returns the Reservation as a sealed text, which any process can open with Limiter.OpenReservation.
// A Reservation that is carried in this way can be settled once in the whole cluster, at the cost of an
// additional check. The text is empty if the Reservation was denied, is settled or has expired.
//
// The key of the seal is derived from Config.Secrets: the first secret seals, and all secrets open.
// Without Secrets the key is derived from Config.Seed. Without a Seed only this node can open the text.
func (v *Reservation) Text() string {
	if !v.decision.Allowed {
		return ""
	}
	return v.made.Text()
}

// OpenReservation opens the text of a Reservation of this limit and key that was made in this
// region. The Decision of the result contains only Allowed, Limit and Name. The error is ErrInvalid
// for a text of another limit, key, region or cluster, ErrExpired, or ErrClosed.
func (l *Limiter) OpenReservation(key, text string) (*Reservation, error) {
	var a wire.Ask
	if err := l.prepareCounted(context.Background(), key, 1, &a); err != nil {
		return nil, err
	}
	v := &Reservation{l: l, decision: Decision{Allowed: true, Limit: a.Limit.Usable(), Name: l.limit.Name}}
	switch err := l.node.clients.reservations.Open(&v.made, &a, text); {
	case errors.Is(err, reserve.ErrForeign):
		return nil, fmt.Errorf("%w text: it is not of a reservation of this limit, key and cluster", ErrInvalid)
	case err != nil:
		return nil, err
	}
	v.units = v.made.Units()
	return v, nil
}

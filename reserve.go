package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/reserve"
	"github.com/weir-go/weir/internal/wire"
)

// Reservation is units that were spent ahead of a cost which is known only afterwards. Its
// methods are safe for concurrent use. One that was denied has spent nothing.
//
// Settle or Cancel takes effect once. An estimate that nobody settles stays spent, and
// Stats counts it.
type Reservation struct {
	l        *Limiter
	units    int64
	decision Decision
	made     reserve.Reservation // if it was allowed
}

// Reserve spends an estimate, 1 to what the limit can ever grant, as AllowN does but of no
// lease, and returns what settles it. It is never nil. Where the estimate is denied, or with
// an error, its Decision is a denial.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	var (
		a   wire.Ask
		r   wire.Result
		err error
	)
	v := &Reservation{l: l, units: estimate}
	if err = l.checked(ctx, wire.OpTake, key, estimate, &a, &r, &v.decision); err == nil && v.decision.Allowed {
		l.node.clients.reservations.Make(&v.made, &a, &r)
	}
	return v, err
}

// Decision is the answer to the estimate.
func (v *Reservation) Decision() Decision { return v.decision }

// Units is the estimate.
func (v *Reservation) Units() int64 { return v.units }

// Expires is until when the reservation can be settled: as long as its units count, which is
// Per, twice Per for SlidingWindow, or the time in which a bucket refills, but for a minute at
// least and an hour at most. It is the zero Time of a denied Reservation.
func (v *Reservation) Expires() time.Time {
	if !v.decision.Allowed {
		return time.Time{}
	}
	return v.made.Expires()
}

// Settle gives back what the estimate exceeds the actual cost by, 0 or more, or debits what
// it falls short by, in the window in which the estimate was spent. It has no effect on the
// count if that window is over, or the count was reset since. It waits for no answer, and
// ctx may be done, unless the Reservation is carried (Text). What it gives back stays spent if
// the owner does not answer.
//
// The error is ErrInvalid for a cost below zero or a denied Reservation, ErrSettled the
// second time, or ErrExpired. Of a carried one it may be ErrUnavailable or that of ctx: then
// nothing was settled, and to try again is safe.
func (v *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 && v.decision.Allowed {
		return fmt.Errorf("%w actual: %d: settle 0 units or more", ErrInvalid, actual)
	}
	if err := v.usable(); err != nil {
		return err
	}
	return v.made.Settle(ctx, v.l.numbersNow(), actual)
}

// Cancel gives the whole estimate back. It is Settle of 0.
func (v *Reservation) Cancel(ctx context.Context) error {
	if err := v.usable(); err != nil {
		return err
	}
	return v.made.Cancel(ctx, v.l.numbersNow())
}

// usable returns the error of a Reservation that nothing can be done with.
func (v *Reservation) usable() error {
	if !v.decision.Allowed {
		return fmt.Errorf("%w Reservation: it was denied, so that there is nothing to settle", ErrInvalid)
	}
	if v.l.node.env.Ended() {
		return ErrClosed
	}
	return nil
}

// Text returns the Reservation as a sealed text, which another process can open by
// Limiter.OpenReservation. A Reservation that was carried is settled once in the whole
// cluster, at the price of one more check. It is empty of one that was denied, is settled or
// has expired.
//
// The key is derived from Config.Secrets: the first one seals, and each opens. Without
// Secrets it is derived from Config.Seed, and without that only this node opens the text.
func (v *Reservation) Text() string {
	if !v.decision.Allowed {
		return ""
	}
	return v.made.Text()
}

// OpenReservation opens the text of a Reservation of this limit and key, which was made in
// this region. Its Decision says no more than that it was allowed. The error is ErrInvalid
// for a text of another limit, key or cluster, and ErrExpired.
func (l *Limiter) OpenReservation(key, text string) (*Reservation, error) {
	var a wire.Ask
	if err := l.ask(context.Background(), key, 1, &a); err != nil {
		return nil, err
	}
	v := &Reservation{l: l, decision: Decision{Allowed: true, Limit: a.Limit.Capacity(), Name: l.limit.Name}}
	switch err := l.node.clients.reservations.Open(&v.made, &a, text); {
	case errors.Is(err, reserve.ErrForeign):
		return nil, fmt.Errorf("%w text: it is of no reservation of this limit, key and cluster", ErrInvalid)
	case err != nil:
		return nil, err
	}
	v.units = v.made.Units()
	return v, nil
}

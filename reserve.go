package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

// Errors of a Reservation that was used before or is too old.
var (
	ErrSettled = errors.New("weir: the reservation is settled or cancelled already")
	ErrExpired = errors.New("weir: the reservation has expired") // the estimate stays spent
)

// Reservation is units that were spent ahead of a cost which is known only afterwards. Its
// methods are safe for concurrent use. One that was denied has spent nothing.
//
// Settle or Cancel takes effect once. An estimate that nobody settles stays spent, and
// Stats counts it.
type Reservation struct {
	l        *Limiter
	ask      wire.Ask // that gives it back
	decision Decision
	settled  atomic.Bool
}

// Reserve spends an estimate, 1 to what the limit can ever grant, as AllowN does, and
// returns what settles it. It is never nil. Where the estimate is denied, or with an error,
// its Decision is a denial.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	v := &Reservation{l: l}
	d, err := l.AllowN(ctx, key, estimate)
	v.decision = d
	if err != nil {
		return v, err
	}
	return v, l.ask(ctx, key, estimate, &v.ask)
}

// Decision is the answer to the estimate.
func (v *Reservation) Decision() Decision { return v.decision }

// Units is the estimate.
func (v *Reservation) Units() int64 { return v.ask.Units }

// Expires is until when the reservation can be settled.
func (v *Reservation) Expires() time.Time { return time.Now().Add(time.Hour) }

// Settle gives back what the estimate exceeds the actual cost by, 0 or more, or debits what
// it falls short by, in the window in which the estimate was spent. It waits for no answer,
// unless the Reservation is carried (Text). The error is ErrInvalid for a cost below zero or
// a denied Reservation, ErrSettled the second time, or ErrExpired.
func (v *Reservation) Settle(ctx context.Context, actual int64) error {
	switch {
	case !v.decision.Allowed:
		return fmt.Errorf("%w Reservation: it was denied, so that there is nothing to settle", ErrInvalid)
	case actual < 0:
		return fmt.Errorf("%w actual: %d: settle 0 units or more", ErrInvalid, actual)
	case v.settled.Swap(true):
		return ErrSettled
	}
	a := v.ask
	switch {
	case actual < a.Units:
		a.Units -= actual
		v.l.node.tell(wire.OpRefund, 0, &a)
	case actual > a.Units:
		a.Units = actual - a.Units
		v.l.node.tell(wire.OpDebit, 0, &a)
	}
	return nil
}

// Cancel gives the whole estimate back. It is Settle of 0.
func (v *Reservation) Cancel(ctx context.Context) error { return v.Settle(ctx, 0) }

// Text returns the Reservation as a sealed text, which another process can open by
// Limiter.OpenReservation. A Reservation that was carried is settled once in the whole
// cluster, at the price of one more check.
func (v *Reservation) Text() string { return "" }

// OpenReservation opens the text of a Reservation of this limit and key. The error is
// ErrInvalid for a text of another limit, key or cluster, and ErrExpired.
func (l *Limiter) OpenReservation(key, text string) (*Reservation, error) {
	return nil, fmt.Errorf("%w text: it is none of this cluster", ErrInvalid)
}

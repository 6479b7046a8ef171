// Package reserve manages the reservations of a node: units that are spent before the actual cost
// is known.
//
// A Reservation takes effect only once. As long as only this process has the Reservation, its
// state prevents a second effect. Once a Reservation is carried, other nodes may have the text.
// In that case the marker prevents a second effect: a count of a single unit, which is granted to
// only one holder of the text.
package reserve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/wire"
)

// Errors of a Reservation that was used before, and of a text that contains no reservation.
var (
	ErrSettled = errors.New("weir: the reservation is settled or cancelled already")
	ErrForeign = errors.New("weir: the text is not of a reservation of this limit, key and cluster")
)

const (
	// A Reservation can be settled as long as its units count, within these bounds.
	leastLife   = time.Minute
	longestLife = time.Hour
	// markerSlack is how long a marker outlasts the text of its Reservation. Sometimes only the
	// times of day of two nodes show how old a text is. The text can then seem younger than it is,
	// by the difference between the clocks.
	markerSlack = time.Minute
)

// Config contains the dependencies of Reservations.
type Config struct {
	Clock    env.Clock
	Identity identity.Identity
	Region   string      // the region that counts the units
	Box      *sealed.Box // seals texts
	Salt     bucket.Salt // distinguishes the IDs of markers from the IDs of other nodes
	Run      *epoch.Clock
	Checks   env.Checks
}

// Reservations makes and counts the reservations of a node. Its methods are safe for concurrent
// use.
type Reservations struct {
	cfg     Config
	markers atomic.Uint64 // number of carried reservations

	settled, canceled, carried  atomic.Uint64
	unitsReturned, unitsDebited atomic.Uint64
	open                        open
}

// Stats contains numbers of reservations.
type Stats struct {
	Made, Settled, Canceled, Carried, Unsettled uint64
	UnitsReturned, UnitsDebited                 uint64
}

// New returns the Reservations of a node that has made none yet.
func New(cfg Config) *Reservations { return &Reservations{cfg: cfg} }

// Stats returns the present counters.
func (m *Reservations) Stats() Stats {
	return Stats{
		Made: m.open.made.Load(), Settled: m.settled.Load(), Canceled: m.canceled.Load(), Carried: m.carried.Load(),
		Unsettled: m.open.unsettled(m.cfg.Clock.Monotonic()), UnitsReturned: m.unitsReturned.Load(), UnitsDebited: m.unitsDebited.Load(),
	}
}

// Reservation describes a number of units that were spent. Its methods are safe for concurrent
// use. The zero Reservation must not be used: Make or Open initializes it.
type Reservation struct {
	of      *Reservations
	ask     wire.Ask     // the ask for the estimate, with the receipt
	by      bucket.Limit // the numbers of a bucket at the time of the receipt
	spent   int64        // the time of the receipt, by the monotonic clock of this node
	expires int64        // end of the time to settle, by the monotonic clock of this node
	life    time.Duration
	sealed  struct { // time at which the text was sealed from which the Reservation was opened
		day int64 // time of day by the clock of the node that sealed the text
		run epoch.Moment
	}

	mu     sync.Mutex
	state  state
	marker bucket.ID // count from which a unit is spent when a carried Reservation is settled
}

// A state only increases.
type state uint8

const (
	reserved state = iota
	carried        // other nodes may have the text
	settled
)

// Make initializes v with the units that were just granted to a.
func (m *Reservations) Make(v *Reservation, a *wire.Ask, r *wire.Result) {
	v.of, v.ask = m, a.WithReceipt(r)
	v.spent = timeOfReceipt(&v.ask, r, m.cfg.Clock.Monotonic())
	v.by = numbersOfReceipt(v.ask.Limit, r)
	v.life = lifetimeOf(v.ask.Limit)
	v.expires = v.ask.Began + int64(v.life)
	m.open.add(v.expires)
}

// Units returns the estimate.
func (v *Reservation) Units() int64 { return v.ask.Units }

// Expires returns the time until which v can be settled.
func (v *Reservation) Expires() time.Time { return time.Unix(0, v.of.cfg.Clock.TimeOfDayAt(v.expires)) }

// Settle replaces the estimate by the actual cost, which is at least 0. The argument numbers has the
// present numbers of the limit. The error is ErrSettled or env.ErrExpired; for a carried Reservation
// it may also be env.ErrUnavailable or an error of Checks.Do, such as the error of ctx. If there is
// an error, Settle has not changed the count.
func (v *Reservation) Settle(ctx context.Context, numbers *bucket.Limit, actual int64) error {
	if err := v.acquire(ctx); err != nil {
		return err
	}
	v.of.settled.Add(1)
	v.replaceEstimate(numbers, actual)
	return nil
}

// Cancel returns the whole estimate, like Settle with a cost of 0.
func (v *Reservation) Cancel(ctx context.Context, numbers *bucket.Limit) error {
	if err := v.acquire(ctx); err != nil {
		return err
	}
	v.of.canceled.Add(1)
	v.replaceEstimate(numbers, 0)
	return nil
}

// acquire takes the right to settle v, which only one caller gets.
func (v *Reservation) acquire(ctx context.Context) error {
	v.mu.Lock()
	was, expired := v.state, v.isExpired()
	if was == reserved && !expired {
		v.state = settled
	}
	v.mu.Unlock()
	switch {
	case was == settled:
		return ErrSettled
	case expired:
		return env.ErrExpired
	case was == reserved:
		v.of.open.remove(v.expires)
		return nil
	}
	err := v.spendMarker(ctx)
	if err == nil || errors.Is(err, ErrSettled) {
		v.mu.Lock()
		v.state = settled
		v.mu.Unlock()
	}
	return err
}

func (v *Reservation) isExpired() bool { return v.of.cfg.Clock.Monotonic() >= v.expires }

// spendMarker spends the single unit of the count that stands for a carried Reservation. Members
// agree about this count as about any limit, so one holder of the text settles the Reservation. The
// marker outlasts the text. A marker is durable if the estimate is durable, so that a stop of all
// nodes keeps both or neither.
func (v *Reservation) spendMarker(ctx context.Context) error {
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: v.life + markerSlack, Durable: v.ask.Limit.Durable}
	a, r := wire.Ask{ID: v.marker, Limit: &limit, Partition: wire.FailClosed, Units: 1}, wire.Result{}
	switch err := v.of.cfg.Checks.Do(ctx, wire.OpTake, &a, &r); {
	case err != nil:
		return err
	case r.Allowed:
		return nil
	case r.Source == wire.FailedClosed:
		return env.ErrUnavailable
	}
	return ErrSettled
}

// replaceEstimate replaces the estimate by the actual cost.
func (v *Reservation) replaceEstimate(numbers *bucket.Limit, actual int64) {
	a, op := v.ask, wire.OpRefund
	a.Units -= actual
	switch {
	case a.Units == 0:
		return
	case a.Units > 0:
		v.of.unitsReturned.Add(uint64(a.Units))
	default:
		op, a.Units = wire.OpDebit, -a.Units
		v.of.unitsDebited.Add(uint64(a.Units))
	}
	a.Limit = numbers
	if op == wire.OpRefund && numbers.IsBucket() && v.by.Rate > 0 {
		a.Limit = &v.by
	}
	if a.Spent.Age = time.Duration(v.of.cfg.Clock.Monotonic() - v.spent); a.Spent.Age == 0 {
		a.Spent.Age = 1
	}
	v.of.cfg.Checks.DoInBackground(op, &a)
}

// timeOfReceipt returns the time of a receipt by the monotonic clock of this node, which received
// the answer at the time now. The result is the start of a window, the time of an entry in a log, or the
// time at which a bucket has drained.
func timeOfReceipt(a *wire.Ask, r *wire.Result, now int64) int64 {
	switch a.Limit.Algorithm {
	case bucket.TokenBucket, bucket.LeakyBucket:
		return a.Began + int64(r.ResetAfter)
	case bucket.SlidingLog:
		return a.Began
	default:
		return a.Began + (now-a.Began)/2 - int64(max(0, r.Age))
	}
}

// numbersOfReceipt returns the numbers with which an owner has answered an ask of a bucket, and a zero
// Limit for other algorithms. A node that does not know new numbers yet asks with the old numbers. The
// answer then shows how fast the level drains by the numbers of the owner.
func numbersOfReceipt(l *bucket.Limit, r *wire.Result) (by bucket.Limit) {
	if !l.IsBucket() {
		return by
	}
	by = *l
	level := r.Limit - r.Remaining // in whole units, rounded up
	drains := func(units int64) float64 { return float64(units) * float64(l.Per) / float64(l.Rate) }
	if reset := float64(r.ResetAfter); level > 0 && r.ResetAfter > 0 && (reset < drains(level-1)-1 || reset > drains(level)+1) {
		by.Rate, by.Per = level, r.ResetAfter
		if by.Validate() != nil {
			return bucket.Limit{}
		}
	}
	return by
}

// lifetimeOf returns how long the units of a limit count, within the bounds of a Reservation.
func lifetimeOf(l *bucket.Limit) time.Duration {
	life := float64(l.Per)
	switch {
	case l.Algorithm == bucket.SlidingWindow:
		life *= 2
	case l.IsBucket():
		life *= float64(l.Capacity()) / float64(l.Rate)
	}
	return time.Duration(min(max(life, float64(leastLife)), float64(longestLife)))
}

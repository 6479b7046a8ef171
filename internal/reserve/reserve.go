// Package reserve owns the reservations of a node: units that were spent ahead of a cost which
// is known only afterwards.
//
// A Reservation takes effect once. As long as this process alone has it, its state sees to
// that. Once it is carried, others may have its text, and a count of one unit does, its marker:
// of all that hold the text, one is granted it.
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

// Errors of a Reservation that was used before, is too old, or cannot be settled now; and of a
// text that is of none.
var (
	ErrSettled     = errors.New("weir: the reservation is settled or cancelled already")
	ErrExpired     = errors.New("weir: the reservation has expired")
	ErrUnavailable = errors.New("weir: no majority of the members answers: try again")
	ErrForeign     = errors.New("weir: the text is of no reservation of this limit, key and cluster")
)

const (
	// A Reservation can be settled as long as its units count, but for these bounds.
	leastLife   = time.Minute
	longestLife = time.Hour
	// markerSlack allows for a difference between the clocks of two nodes, if a text can only be
	// placed by the time of day.
	markerSlack = time.Minute
)

// Config is what Reservations need of the node that they are of.
type Config struct {
	Clock    env.Clock
	Identity identity.Identity
	Region   string      // counts the units
	Box      *sealed.Box // seals texts
	Salt     bucket.Salt // makes the IDs of markers unlike those of other nodes
	Run      *epoch.Clock
	Checks   env.Checks
}

// Reservations makes the reservations of one node, and counts them. Its methods are safe for
// concurrent use.
type Reservations struct {
	cfg     Config
	markers atomic.Uint64 // of those that were carried

	settled, canceled, carried  atomic.Uint64
	unitsReturned, unitsDebited atomic.Uint64
	open                        open
}

// Stats counts reservations.
type Stats struct {
	Made, Settled, Canceled, Carried, Unsettled uint64
	UnitsReturned, UnitsDebited                 uint64
}

// New returns Reservations of which none was made.
func New(cfg Config) *Reservations { return &Reservations{cfg: cfg} }

// Stats returns what was counted.
func (m *Reservations) Stats() Stats {
	return Stats{
		Made: m.open.made.Load(), Settled: m.settled.Load(), Canceled: m.canceled.Load(), Carried: m.carried.Load(),
		Unsettled: m.open.unsettled(m.cfg.Clock.Monotonic()), UnitsReturned: m.unitsReturned.Load(), UnitsDebited: m.unitsDebited.Load(),
	}
}

// Reservation is units that were spent. Its methods are safe for concurrent use. The zero
// Reservation is not to be used: Make or Open fills it.
type Reservation struct {
	of      *Reservations
	ask     wire.Ask     // of the estimate, with the receipt
	by      bucket.Limit // the numbers of the receipt, of a bucket
	spent   int64        // the time of the receipt, and
	expires int64        // until when it can be settled: by the monotonic clock of this node
	life    time.Duration
	sealed  struct { // when the text was sealed that it was opened from
		day int64 // by the clock of that node
		run epoch.Moment
	}

	mu     sync.Mutex
	state  state
	marker bucket.ID // of the count that is spent where the Reservation is settled, if it is carried
}

// state only rises.
type state uint8

const (
	reserved state = iota
	carried        // others may have the text
	settled
)

// Make fills v with the units that a was just granted.
func (m *Reservations) Make(v *Reservation, a *wire.Ask, r *wire.Result) {
	v.of, v.ask = m, a.Taken(r)
	v.spent = timeOfReceipt(&v.ask, r, m.cfg.Clock.Monotonic())
	v.by = judgedBy(v.ask.Limit, r)
	v.life = lifeOf(v.ask.Limit)
	v.expires = v.ask.Began + int64(v.life)
	m.open.add(v.expires)
}

// Units returns the estimate.
func (v *Reservation) Units() int64 { return v.ask.Units }

// Expires returns until when v can be settled.
func (v *Reservation) Expires() time.Time { return time.Unix(0, v.of.cfg.Clock.TimeOfDayAt(v.expires)) }

// Settle replaces the estimate by the actual cost, 0 or more, by what are the numbers of the
// limit now. The error is ErrSettled or ErrExpired, and of a carried one also ErrUnavailable or
// that of ctx: then nothing was settled.
func (v *Reservation) Settle(ctx context.Context, numbers *bucket.Limit, actual int64) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	v.of.settled.Add(1)
	v.end(numbers, actual)
	return nil
}

// Cancel gives the whole estimate back, as Settle does of 0.
func (v *Reservation) Cancel(ctx context.Context, numbers *bucket.Limit) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	v.of.canceled.Add(1)
	v.end(numbers, 0)
	return nil
}

// begin takes the right to settle, which there is once.
func (v *Reservation) begin(ctx context.Context) error {
	v.mu.Lock()
	was, expired := v.state, v.expired()
	if was == reserved && !expired {
		v.state = settled
	}
	v.mu.Unlock()
	switch {
	case was == settled:
		return ErrSettled
	case expired:
		return ErrExpired
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

func (v *Reservation) expired() bool { return v.of.cfg.Clock.Monotonic() >= v.expires }

// spendMarker spends the one unit of a count that stands for a carried Reservation. Members
// agree on that as on any limit, so one holder of the text settles it. The marker outlasts the
// text, and it is durable if the estimate is: a stop of all nodes keeps both or neither.
func (v *Reservation) spendMarker(ctx context.Context) error {
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: v.life + markerSlack, Durable: v.ask.Limit.Durable}
	a, r := wire.Ask{ID: v.marker, Limit: &limit, Partition: wire.FailClosed, Units: 1}, wire.Result{}
	switch err := v.of.cfg.Checks.Do(ctx, wire.OpTake, &a, &r); {
	case err != nil:
		return err
	case r.Allowed:
		return nil
	case r.Source == wire.FailedClosed:
		return ErrUnavailable
	}
	return ErrSettled
}

// end makes the actual cost of the estimate.
func (v *Reservation) end(numbers *bucket.Limit, actual int64) {
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
	v.of.cfg.Checks.DoApart(op, &a)
}

// timeOfReceipt returns the time that a receipt stands for by the monotonic clock of this node,
// which has the answer since now: the start of a window, the time of a log's entry, or when
// a bucket has drained. Where a SlidingWindow has nothing left, ResetAfter does not tell
// where it began, and the middle of what is possible is within half of Per of it.
func timeOfReceipt(a *wire.Ask, r *wire.Result, now int64) int64 {
	switch l := a.Limit; l.Algorithm {
	case bucket.TokenBucket, bucket.LeakyBucket:
		return a.Began + int64(r.ResetAfter)
	case bucket.SlidingLog:
		return a.Began
	default:
		into := max(0, l.Per-r.ResetAfter)
		if l.Algorithm == bucket.SlidingWindow && r.Remaining == 0 {
			into /= 2
		}
		return a.Began + (now-a.Began)/2 - int64(into)
	}
}

// judgedBy returns the numbers by which an owner has answered an ask of a bucket, and none of
// another limit. A node that has yet to hear of new numbers asks by the old ones: the answer shows
// how fast the level drains by those of the owner.
func judgedBy(l *bucket.Limit, r *wire.Result) (by bucket.Limit) {
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

// lifeOf is how long units of a limit count, in the bounds of a Reservation.
func lifeOf(l *bucket.Limit) time.Duration {
	life := float64(l.Per)
	switch {
	case l.Algorithm == bucket.SlidingWindow:
		life *= 2
	case l.IsBucket():
		life *= float64(l.Capacity()) / float64(l.Rate)
	}
	return time.Duration(min(max(life, float64(leastLife)), float64(longestLife)))
}

package weir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Errors of a Reservation that was used before, is too old, or cannot be settled now.
var (
	ErrSettled     = errors.New("weir: the reservation is settled or cancelled already")
	ErrExpired     = errors.New("weir: the reservation has expired") // the estimate stays spent
	ErrUnavailable = errors.New("weir: no majority of the members answers: try again")
)

const (
	// A Reservation can be settled as long as its units count, but for these bounds.
	leastLife   = time.Minute
	longestLife = time.Hour
	// markerSlack is for nodes whose times of day differ.
	markerSlack = time.Minute
)

// Reservation is units that were spent ahead of a cost which is known only afterwards. Its
// methods are safe for concurrent use. One that was denied has spent nothing.
//
// Settle or Cancel takes effect once. An estimate that nobody settles stays spent, and
// Stats counts it.
type Reservation struct {
	l        *Limiter
	ask      wire.Ask // of the estimate, with the receipt
	spent    int64    // the time of the receipt, and
	expires  int64    // until when it can be settled: by the steady clock of this node
	life     time.Duration
	decision Decision

	mu     sync.Mutex
	state  reservationState
	marker bucket.ID // of the count that is spent where the Reservation is settled, if it is carried
}

type reservationState uint8

const (
	reserved reservationState = iota
	carried                   // others may have the text
	settled
)

// Reserve spends an estimate, 1 to what the limit can ever grant, as AllowN does but of no
// lease, and returns what settles it. It is never nil. Where the estimate is denied, or with
// an error, its Decision is a denial.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	v := &Reservation{l: l}
	var r wire.Result
	d, err := l.checked(ctx, wire.OpTake, key, estimate, &v.ask, &r)
	v.decision = d
	v.ask.Units = estimate
	if err != nil || !d.Allowed {
		return v, err
	}
	n := l.node
	v.ask = v.ask.Taken(&r)
	v.ask.Lease = wire.Lease{}
	v.spent = timeOfReceipt(&v.ask, &r, n.env.Steady())
	v.life = lifeOf(v.ask.Limit)
	v.expires = v.ask.Began + int64(v.life)
	n.meters.Reservations.Make(v.expires)
	return v, nil
}

// Decision is the answer to the estimate.
func (v *Reservation) Decision() Decision { return v.decision }

// Units is the estimate.
func (v *Reservation) Units() int64 { return v.ask.Units }

// Expires is until when the reservation can be settled: as long as its units count, which is
// Per, twice Per for SlidingWindow, or the time in which a bucket refills, but for a minute at
// least and an hour at most. It is the zero Time of a denied Reservation.
func (v *Reservation) Expires() time.Time {
	if !v.decision.Allowed {
		return time.Time{}
	}
	return time.Unix(0, v.l.node.env.TimeOfDayAt(v.expires))
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
	if err := v.begin(ctx, actual); err != nil {
		return err
	}
	v.l.node.meters.Reservations.Settled.Add(1)
	v.end(actual)
	return nil
}

// Cancel gives the whole estimate back. It is Settle of 0.
func (v *Reservation) Cancel(ctx context.Context) error {
	if err := v.begin(ctx, 0); err != nil {
		return err
	}
	v.l.node.meters.Reservations.Canceled.Add(1)
	v.end(0)
	return nil
}

// begin takes the right to settle, which there is once.
func (v *Reservation) begin(ctx context.Context, actual int64) error {
	n := v.l.node
	switch {
	case !v.decision.Allowed:
		return fmt.Errorf("%w Reservation: it was denied, so that there is nothing to settle", ErrInvalid)
	case actual < 0:
		return fmt.Errorf("%w actual: %d: settle 0 units or more", ErrInvalid, actual)
	case n.env.Ended():
		return ErrClosed
	}
	v.mu.Lock()
	state, expired := v.state, n.env.Steady() >= v.expires
	if state == reserved && !expired {
		v.state = settled
	}
	v.mu.Unlock()
	switch {
	case state == settled:
		return ErrSettled
	case expired:
		return ErrExpired
	case state == reserved:
		n.meters.Reservations.Close(v.expires)
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

// spendMarker spends the one unit of a count that stands for a carried Reservation. Members
// agree on that as on any limit: of all that hold the text one settles. The count outlasts
// the text.
func (v *Reservation) spendMarker(ctx context.Context) error {
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: v.life + markerSlack}
	limit.Durable = limit.DurableByPer()
	a, r := wire.Ask{ID: v.marker, Limit: &limit, Partition: wire.FailClosed, Units: 1}, wire.Result{}
	switch err := v.l.node.decide(ctx, wire.OpTake, 0, &a, &r); {
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
func (v *Reservation) end(actual int64) {
	n := v.l.node
	a, op := v.ask, wire.OpRefund
	a.Units -= actual
	switch {
	case a.Units == 0:
		return
	case a.Units > 0:
		n.meters.Reservations.UnitsReturned.Add(uint64(a.Units))
	default:
		op, a.Units = wire.OpDebit, -a.Units
		n.meters.Reservations.UnitsDebited.Add(uint64(a.Units))
	}
	a.Limit = v.l.numbersNow()
	if a.ReceiptAge = time.Duration(n.env.Steady() - v.spent); a.ReceiptAge == 0 {
		a.ReceiptAge = 1
	}
	n.apart(op, &a)
}

// apart carries out op where it has to be done, and waits for nobody. Where another member
// answers, an errand asks it, and the member that stands in for it if it does not.
func (n *Node) apart(op wire.Op, a *wire.Ask) {
	v, now := n.handover.View(), n.env.Now()
	way := v.Route(a.ID, n.env.SteadyAt(now))
	if way.Way == view.Here && !n.handover.Fenced(v, now) {
		n.owner.Do(v, view.AsOwner, op, 0, a, now, new(wire.Result))
		n.asker.End(a.ID)
		return
	}
	started := n.env.Try(func(ctx context.Context) {
		_ = n.decide(ctx, op, 0, a, new(wire.Result)) // what cannot be carried out stays spent
		n.asker.End(a.ID)
	})
	if !started {
		n.tell(op, 0, a)
	}
}

// timeOfReceipt returns the time that a receipt stands for by the steady clock of this node,
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

// The text of a Reservation, before it is sealed: marker 16 | receipt 8 | reset number 8 |
// units 8 | time of the receipt 8 | expires 8 | life 8 | granted without authority 1. Times
// are of the day, in nanoseconds, as nodes share no other clock.
const (
	reservationKind  = 1
	reservationBytes = 65
)

// Text returns the Reservation as a sealed text, which another process can open by
// Limiter.OpenReservation. A Reservation that was carried is settled once in the whole
// cluster, at the price of one more check. It is empty of one that was denied, is settled or
// has expired.
//
// The key is derived from Config.Secrets: the first one seals, and each opens. Without
// Secrets it is derived from Config.Seed, and without that only this node opens the text.
func (v *Reservation) Text() string {
	n := v.l.node
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.decision.Allowed || v.state == settled || n.env.Steady() >= v.expires {
		return ""
	}
	if v.state == reserved {
		v.state, v.marker = carried, n.clients.newMarker(n.identity)
		n.meters.Reservations.Close(v.expires)
		n.meters.Reservations.Carried.Add(1)
	}
	b := make([]byte, 0, reservationBytes)
	for _, x := range [...]uint64{
		v.marker.Hi, v.marker.Lo, uint64(v.ask.Receipt), v.ask.ResetNumber, uint64(v.ask.Units),
		uint64(n.env.TimeOfDayAt(v.spent)), uint64(n.env.TimeOfDayAt(v.expires)), uint64(v.life),
	} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	stoodIn := byte(0)
	if v.ask.StoodIn {
		stoodIn = 1
	}
	return n.clients.box.Seal(reservationKind, v.l.bind(v.ask.ID), append(b, stoodIn))
}

// OpenReservation opens the text of a Reservation of this limit and key, which was made in
// this region. Its Decision says no more than that it was allowed. The error is ErrInvalid
// for a text of another limit, key or cluster, and ErrExpired.
func (l *Limiter) OpenReservation(key, text string) (*Reservation, error) {
	v := &Reservation{l: l, state: carried}
	if err := l.ask(context.Background(), key, 1, &v.ask); err != nil {
		return nil, err
	}
	n := l.node
	plain, err := n.clients.box.Open(reservationKind, l.bind(v.ask.ID), text)
	if err != nil || !v.parse(plain) {
		return nil, fmt.Errorf("%w text: it is of no reservation of this limit, key and cluster", ErrInvalid)
	}
	left := v.expires - n.env.TimeOfDay()
	if left <= 0 {
		return nil, ErrExpired
	}
	v.spent += n.env.Steady() - n.env.TimeOfDay()
	v.expires = n.env.Steady() + min(left, int64(v.life))
	v.decision = Decision{Allowed: true, Limit: v.ask.Limit.Capacity(), Name: l.limit.Name}
	return v, nil
}

// parse reads what Text has sealed. The times are those of the day.
func (v *Reservation) parse(plain []byte) bool {
	if len(plain) != reservationBytes {
		return false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(plain[8*i:]) }
	v.marker = bucket.ID{Hi: word(0), Lo: word(1)}
	v.ask.Receipt, v.ask.ResetNumber, v.ask.Units = bucket.Receipt(word(2)), word(3), int64(word(4))
	v.spent, v.expires, v.life = int64(word(5)), int64(word(6)), time.Duration(word(7))
	v.ask.StoodIn = plain[64] == 1
	return v.ask.Units > 0 && v.life >= leastLife && v.life <= longestLife
}

// bind returns what a text is bound to: a count, and the region that counts it.
func (l *Limiter) bind(id bucket.ID) []byte {
	b := identity.Bytes(id)
	return append(b[:], l.node.cfg.Region...)
}

// newMarker returns the ID of a count that nobody else has.
func (c *clients) newMarker(h identity.Identity) bucket.ID {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], c.salt[0])
	binary.LittleEndian.PutUint64(b[8:], c.salt[1])
	binary.LittleEndian.PutUint64(b[16:], c.markers.Add(1))
	return h.ID(identity.Prefix("(reservations)"), string(b[:]))
}

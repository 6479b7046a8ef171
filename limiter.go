package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/wire"
)

// Limiter checks keys against a limit. A Limiter holds no resources, need not be closed, and is safe for
// concurrent use.
//
// The error of a method is ErrInvalid for an invalid argument, ErrClosed after Node.Close, the
// error of a context that was cancelled, or an error that the method states. With every error the
// Decision is a denial, so that a caller may ignore the error. The deadline of a context shortens
// the wait for other nodes. When the deadline passes, this node decides within its share of the
// limit, unless the method states otherwise.
//
// A key is any text of at most 1 KiB. The empty text is valid.
type Limiter struct {
	node    *Node
	limit   Limit
	numbers bucket.Limit
	window  *limits.Windows // nil, except for a Calendar and for a Global FixedWindow
	prefix  []byte          // hashed before each key
	meter   check.Meter
	shadow  bool
	spends  bool // checks may spend the kept units (Limit.Keep)
	// critical is the Limiter for critical checks, whose numbers have no Keep. It is nil if the limit
	// has no Keep, and in a critical Limiter.
	critical *Limiter
}

// Limiter validates l and returns a Limiter for it. The call is cheap, and callers may repeat it
// for each change of a limit. The error is ErrClosed, or ErrInvalid with all invalid fields.
//
// Limits of the same Name share the count of each key. A second Limiter of the Name with another
// Algorithm at the same Version is ErrInvalid, because its checks would be judged by the other
// Algorithm. A node remembers the Algorithms of the first 4,096 names, at the 8 highest Versions of
// each. If Limiters of any nodes have different numbers at the same Version, each check is judged
// as Limit.Version describes. Each such conflict counts in Stats.Conflicts. For each Name and
// Version, a Warn is logged at most once about this node, and once about other nodes. A node sends
// the first 4,096 names, with the highest Version of each, to its neighbors in turn, except limits with Varies. After a change
// the node sends to one neighbor every 5 s until each neighbor has the change, and from then on to
// one neighbor every minute.
func (n *Node) Limiter(l Limit) (*Limiter, error) {
	if n.env.Ended() {
		return nil, ErrClosed
	}
	loc, err := l.check()
	if err != nil {
		return nil, err
	}
	declared := l.declared()
	if err := n.registry.Add(*declared, n.env.Monotonic()); err != nil {
		return nil, invalid("Limit", err)
	}
	made := &Limiter{
		node: n, limit: l, numbers: declared.Numbers(), prefix: identity.Prefix(l.Name),
		meter: check.Meter{Limit: n.meters.Limits.CountersOf(l.Name), SecretKeys: l.SecretKeys, Strikes: declared.Ban.Strikes(l.Version), BanLengths: declared.Ban.For},
	}
	made.openWindows(loc)
	if l.Keep > 0 {
		made.critical = new(*made)
		made.critical.limit.Keep, made.critical.numbers.Keep, made.critical.spends = 0, 0, true
		made.critical.limit.NoLeases = true // because the owner would also lend the kept units
		made.critical.openWindows(loc)
	}
	return made, nil
}

// openWindows sets the window of a limit that needs one. The windows remember the numbers of l, so a Limiter
// with other numbers needs its own windows.
func (l *Limiter) openWindows(loc *time.Location) {
	if l.limit.Calendar != NoCalendar || l.limit.Scope == Global && l.limit.Algorithm == FixedWindow {
		l.window = limits.NewWindows(limits.Unit(l.limit.Calendar), loc)
	}
}

// Shadow returns a Limiter of the same counts, to try the limit out. Its checks are decided, and spend and
// hold units, like the checks of l, but Stats counts them in Shadows instead of Decisions. Its Decisions
// have Shadow set, and the caller should not enforce them. Its AllowN and Reserve accept more units than
// the limit can ever grant, and deny them. An Ask with this Limiter is an Ask with Shadow.
func (l *Limiter) Shadow() *Limiter {
	s := *l
	s.shadow = true
	if l.critical != nil {
		s.critical = l.critical.Shadow()
	}
	return &s
}

// Critical returns a Limiter for the same counts whose checks may also spend the kept units
// (Limit.Keep). If Keep is zero, it returns l. The owner makes each decision of the returned Limiter: it
// has no leases, and does not use cached denials of other checks. Critical does not allocate.
func (l *Limiter) Critical() *Limiter {
	if l.critical == nil {
		return l
	}
	return l.critical
}

// Allow spends a unit if there is room, like AllowN with 1 unit.
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.check(ctx, wire.OpTake, key, 1)
}

// AllowN spends all of the units or none. The number of units is 1 to the maximum that the limit can ever
// grant: the Burst of a bucket, or the Rate if Burst is zero, less Keep. Other numbers are ErrInvalid.
func (l *Limiter) AllowN(ctx context.Context, key string, units int64) (Decision, error) {
	return l.check(ctx, wire.OpTake, key, units)
}

// AllowAtMost spends as many units as there is room for, but at most the given units, which are at least
// 1. The Decision is Allowed if at least one unit was granted. A denial states when one unit is available.
// More units than the limit can ever grant are not an error. A Refund must not exceed the granted units.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, units int64) (d Decision, granted int64, err error) {
	var r wire.Result
	a := wire.Ask{AtMost: true, Leases: true}
	units = min(units, l.numbers.Usable())
	if err = l.checkInto(ctx, wire.OpTake, key, units, &a, &r, &d); d.Allowed {
		granted = a.GrantedUnits(wire.OpTake, &r)
	}
	return d, granted, err
}

// Peek returns the Decision that the owner would make on Allow, and spends nothing. Peek uses no
// lease and no cached denial of this node, and Stats does not count it as a decision.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	return l.check(ctx, wire.OpPeek, key, 1)
}

// PeekN is like Peek, but returns the Decision that the owner would make on AllowN with the given units.
// RetryAfter is the time until so many units are free, if no other check comes. PeekN accepts the units that
// AllowN accepts, and for an InFlight limit the units that Hold accepts.
func (l *Limiter) PeekN(ctx context.Context, key string, units int64) (Decision, error) {
	return l.check(ctx, wire.OpPeek, key, units)
}

// Debit spends units unconditionally, for a cost that is known only afterwards. Debit may leave a debt,
// which is at most the limit itself. The Decision is Allowed unless there is a debt, or the Source is
// FailedClosed. With a debt, RetryAfter is the time until the next unit is available. If the owner does
// not answer in time, another member, or this node, debits the units as well. The debit of the owner is
// refunded when the owner's answer arrives. Both debits count if the debit of the owner left a debt, or if
// the connection breaks before the answer or the answer is more than 10 s late.
func (l *Limiter) Debit(ctx context.Context, key string, units int64) (Decision, error) {
	return l.check(ctx, wire.OpDebit, key, units)
}

// Refund returns units, at least 1, but never more than are used. Refund accepts as many units as
// Debit does. Units that a Debit did not count, because the debt was at its maximum, are not
// returned. If the owner is known to be unreachable, its stand-in returns the units, or this node
// if no stand-in is reachable.
//
// A Refund is applied at most once. If no answer arrives, the units may stay spent, which is not
// an error. If the deadline of ctx passes, Refund returns the error of ctx. The units may have been
// returned in this case, so that a second call may return the units twice.
func (l *Limiter) Refund(ctx context.Context, key string, units int64) error {
	var a wire.Ask
	err := l.prepareCounted(ctx, key, units, &a)
	if err != nil {
		return err
	}
	if l.node.asker.Refund(&a) {
		return nil
	}
	err = l.node.checks.Do(ctx, wire.OpRefund, &a, new(wire.Result))
	l.node.asker.End(a.ID)
	if err != nil {
		return err
	}
	return ctx.Err()
}

// Limit returns the Limit that was given to Node.Limiter, without Keep and leases for a critical
// Limiter.
func (l *Limiter) Limit() Limit { return l.limit }

// Node returns the node that made the Limiter.
func (l *Limiter) Node() *Node { return l.node }

// check executes op, for every method that returns a Decision.
func (l *Limiter) check(ctx context.Context, op wire.Op, key string, units int64) (d Decision, err error) {
	var (
		a wire.Ask
		r wire.Result
	)
	a.Leases = true
	err = l.checkInto(ctx, op, key, units, &a, &r, &d)
	return d, err
}

// checkInto is like check, but fills the ask, its result and the Decision. The caller sets
// a.Leases if a lease may answer.
func (l *Limiter) checkInto(ctx context.Context, op wire.Op, key string, units int64, a *wire.Ask, r *wire.Result, d *Decision) (err error) {
	n := l.node
	begun, leases := n.observeStart(), a.Leases
	if l.limit.Algorithm == InFlight && op != wire.OpPeek {
		err = l.inFlightError()
	} else {
		err = l.prepare(ctx, key, units, a)
	}
	a.Leases = a.Leases && leases
	if err == nil && (op == wire.OpTake || op == wire.OpPeek) && !l.shadow {
		err = l.checkCapacity(units)
	}
	if err == nil {
		if err = n.checks.Do(ctx, op, a, r); err == nil && op != wire.OpPeek {
			n.checks.Count(l.subject(key), a, r)
			if a.BansKeys && op == wire.OpTake {
				n.checks.Strike(l.subject(key), a, r)
			}
		}
	}
	if err != nil {
		n.meters.CountFailure(err)
	}
	l.fillDecision(d, r)
	if n.cfg.Observer != nil {
		e := DecisionEvent{Limiter: l, Key: key, Units: units, Decision: *d, Err: err, Operation: op.Traced(), Peek: op == wire.OpPeek}
		switch {
		case op == wire.OpTake && !leases:
			e.Operation = "reserve"
		case a.AtMost:
			e.Operation = "at_most"
		}
		n.observe(ctx, &e, begun, r.At)
	}
	return err
}

// subject returns the subject of a check.
func (l *Limiter) subject(key string) check.Subject {
	return check.Subject{Meter: &l.meter, Key: key, Shadow: l.shadow}
}

// prepareCounted is like prepare, but refuses an InFlight limit.
func (l *Limiter) prepareCounted(ctx context.Context, key string, units int64, a *wire.Ask) error {
	if l.limit.Algorithm == InFlight {
		return l.inFlightError()
	}
	return l.prepare(ctx, key, units, a)
}

// inFlightError returns the error for a call that would spend or return units of an InFlight limit
// without a hold.
func (l *Limiter) inFlightError() error {
	return fmt.Errorf("%w limit: %q is in_flight: use Hold and Release", ErrInvalid, l.limit.Name)
}

// prepare validates the arguments of the caller and writes them to a.
func (l *Limiter) prepare(ctx context.Context, key string, units int64, a *wire.Ask) error {
	if l.node.env.Ended() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if len(key) > wire.MaxKeyBytes {
		return fmt.Errorf("%w key: %d bytes exceed the limit of %d; pass a hash instead", ErrInvalid, len(key), wire.MaxKeyBytes)
	}
	if units <= 0 {
		return fmt.Errorf("%w units: %d: ask for 1 or more", ErrInvalid, units)
	}
	a.ID, a.Name = l.id(key), l.limit.Name
	a.Limit, a.Partition, a.Units, a.Global = l.numbersNow(), wire.Policy(l.limit.Partition), units, l.limit.Scope == Global
	a.BansKeys, a.Pauses = l.meter.Strikes.Rate > 0, l.limit.Pauses
	a.Leases = !l.limit.NoLeases && !a.BansKeys && !a.Pauses // a node with lent units would admit a banned or paused key
	return nil
}

// numbersNow returns the numbers that judge an ask. With a Calendar, and for a Global FixedWindow,
// they are the numbers of the open window.
func (l *Limiter) numbersNow() *bucket.Limit {
	if l.window != nil {
		return l.window.Numbers(&l.numbers, l.node.env.TimeOfDay())
	}
	return &l.numbers
}

// checkCapacity returns an error if a take of the given units could never be admitted. A debit or a
// refund may have more units.
func (l *Limiter) checkCapacity(units int64) error {
	if most := l.numbers.Usable(); units > most {
		return fmt.Errorf("%w units: %d exceed the %d that limit %q can ever grant: ask for fewer at a time", ErrInvalid, units, most, l.limit.Name)
	}
	return nil
}

// fillDecision writes the Decision for the caller, field by field. The compiler would build a
// literal in a temporary, and copy it in larger pieces than it was written, which stalls the
// processor. The part of a region in a Global limit is not revealed.
func (l *Limiter) fillDecision(d *Decision, r *wire.Result) {
	d.Allowed = r.Allowed
	d.Limit = r.Limit
	if l.limit.Scope == Global && !r.Source.IsShare() && r.Source != 0 {
		d.Limit = l.numbers.Usable()
	}
	d.Remaining = r.Remaining
	d.RetryAfter = r.RetryAfter
	d.ResetAfter = r.ResetAfter
	if l.window != nil && !r.Banned {
		now := l.node.env.TimeOfDay()
		d.RetryAfter, d.ResetAfter = l.window.Align(r.RetryAfter, now), l.window.Align(r.ResetAfter, now)
	}
	d.Name = l.limit.Name
	d.Source = Source(r.Source)
	d.Shadow = l.shadow
	d.Banned, d.Paused = r.Banned && !r.Paused, r.Paused
}

// observeStart returns the start time of a check, or 0 without an Observer.
func (n *Node) observeStart() int64 {
	if n.cfg.Observer == nil {
		return 0
	}
	return n.env.Now()
}

// observe passes a decision to the Observer, unless the limit is stats.Uncounted. The argument begun is the start
// time of the check, and at is the time of the decision, or 0 if that time is unknown.
func (n *Node) observe(ctx context.Context, e *DecisionEvent, begun, at int64) {
	if n.cfg.Observer == nil || e.Limiter.limit.Name == stats.Uncounted {
		return
	}
	e.Took, e.Critical = time.Duration(n.env.Now()-begun), e.Critical || e.Limiter.spends
	if at != 0 {
		e.At = time.Unix(0, at)
	}
	n.cfg.Observer.Decided(ctx, *e)
}

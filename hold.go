package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/holds"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// HoldTerm is how long units stay held without a renewal, such as while the process of the holder
// is frozen, or after it has died. Nodes check once a second, so that the units are available
// within two more seconds.
const HoldTerm = 10 * time.Second

var _ = [1]struct{}{}[HoldTerm-holds.Term] // this line compiles only while the two terms are equal

// Hold is units of an InFlight limit that the caller has until it releases them. Its methods are
// safe for concurrent use. A denied Hold has no units, and its Release does nothing.
//
// The node renews its holds in the background. If the process dies, the units are released HoldTerm
// after the last renewal; if the node is closed, they are released at once.
type Hold struct {
	node     *Node
	held     holds.Hold   // empty if the hold was denied, or if a client has it
	client   holds.Client // the name of the hold of a client, if it was granted
	decision Decision
}

// isGranted reports whether the units are held.
func (h *Hold) isGranted() bool { return h.held.IsGranted() || h.client.Number != 0 }

// Hold requests units of an InFlight limit, 1 to its Rate, which the caller has until Release. If
// fewer units are left, the Decision denies, with a RetryAfter of some milliseconds, because units
// are released at any time. The errors are those of AllowN; a limit of another Algorithm is
// ErrInvalid. The Hold is never nil, and is denied with every error.
func (l *Limiter) Hold(ctx context.Context, key string, units int64) (*Hold, error) {
	return l.hold(ctx, holds.Terms{Number: l.node.clients.holds.Number()}, key, units)
}

// WaitHold is like Hold, but waits until the units are held or ctx is done. Callers on a node
// are served in order of arrival, and nodes take turns. While callers wait, Hold denies. WaitHold
// returns the error of ctx, and context.DeadlineExceeded at once if the deadline would pass before
// the next attempt. The other errors are those of AllowN.
func (l *Limiter) WaitHold(ctx context.Context, key string, units int64) (*Hold, error) {
	return l.waitHold(ctx, key, units, 0)
}

func (l *Limiter) waitHold(ctx context.Context, key string, units int64, ttl time.Duration) (*Hold, error) {
	h := &Hold{node: l.node, decision: Decision{Name: l.limit.Name}}
	terms := holds.Terms{Number: l.node.clients.holds.Number(), Waits: true, TTL: ttl}
	if len(key) > wire.MaxKeyBytes {
		return l.hold(ctx, terms, key, units) // returns ErrInvalid for the key
	}
	next, err := l.node.clients.queues.Turn(ctx, l.id(key))
	defer next()
	asked := false
	defer func() {
		if asked && !h.isGranted() {
			var a wire.Ask
			if l.prepare(context.WithoutCancel(ctx), key, units, &a) == nil {
				l.node.clients.holds.Name(&a, terms)
				l.node.clients.holds.LeaveQueue(&a)
			}
		}
	}()
	for err == nil {
		asked = true
		h, err = l.hold(ctx, terms, key, units)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = nil // Timeout passed before this node knew all holds
		}
		if err != nil || h.decision.Allowed {
			return h, err
		}
		err = l.node.env.Sleep(ctx, min(h.decision.RetryAfter, view.OutageRetry))
	}
	if l.node.env.Ended() {
		err = ErrClosed
	}
	return h, err
}

// hold requests units once.
func (l *Limiter) hold(ctx context.Context, terms holds.Terms, key string, units int64) (*Hold, error) {
	n, h := l.node, &Hold{node: l.node}
	begun := n.observeStart()
	var (
		a wire.Ask
		r wire.Result
	)
	err := l.prepare(ctx, key, units, &a)
	switch {
	case err != nil:
	case l.limit.Algorithm != InFlight:
		err = fmt.Errorf("%w limit: %q is %v: only an in_flight limit has holds; use Allow or Reserve", ErrInvalid, l.limit.Name, l.limit.Algorithm)
	default:
		err = l.checkCapacity(units)
	}
	if err == nil {
		h.client, err = n.checks.Hold(ctx, terms, l.subject(key), &a, &r, &h.held)
	}
	if err != nil {
		n.meters.CountFailure(err)
	}
	l.fillDecision(&h.decision, &r)
	n.observe(ctx, &DecisionEvent{Limiter: l, Key: key, Units: units, Decision: h.decision, Err: err, Operation: wire.OpHold.Traced()}, begun, 0)
	return h, err
}

// Decision returns the result of the request for the hold. If Allowed, the units are held
// until Release, or until the channel of Lost is closed.
func (h *Hold) Decision() Decision { return h.decision }

// Release returns the units. It does not wait for other members. Further calls do nothing.
func (h *Hold) Release() {
	if h.held.IsGranted() {
		h.node.clients.holds.Release(&h.held)
	}
}

// ReleaseN releases some of the units without waiting for other members, and returns the number of units that
// are still held. To release all units or more is the same as Release. A number below 1 releases nothing.
func (h *Hold) ReleaseN(units int64) (held int64) {
	if !h.held.IsGranted() {
		return 0
	}
	return h.node.clients.holds.ReleaseUnits(&h.held, units)
}

// Expires returns the time at which the node gives up the units, unless a member renews the hold before, which
// happens about once a second. The result is the zero Time for a hold that was denied or has ended.
func (h *Hold) Expires() time.Time {
	if h.held.IsGranted() {
		if left := h.node.clients.holds.TimeLeft(&h.held); left > 0 {
			return time.Unix(0, h.node.env.TimeOfDay()+int64(left))
		}
	}
	return time.Time{}
}

// Lost returns a channel that is closed if other callers may have the units: because the process was frozen
// for almost HoldTerm, because no member that may decide renewed the hold for almost HoldTerm, or because the
// node was closed. The caller should then stop the work under the hold. Release does not close the channel.
// The channel of a denied hold is never closed.
func (h *Hold) Lost() <-chan struct{} {
	if !h.held.IsGranted() {
		return nil
	}
	return h.node.clients.holds.Lost(&h.held)
}

// The range of the ttl of a client's hold, counted from the last renewal.
const (
	minHoldFor = time.Second
	maxHoldFor = holds.LongestTerm
)

// HoldFor holds units for a client in a separate process. The client gets the text, and has the
// units as long as it renews the hold: the hold ends ttl after the last renewal. The range of ttl
// is 1 s to 1 h. The text is sealed, and valid for this limit and key on every node of the cluster.
// The text is empty if the Decision denies. After the grant, HoldFor waits until a second node has
// recorded the hold, but no longer than Timeout after the request began. This time includes the
// time in which the process does not run.
func (l *Limiter) HoldFor(ctx context.Context, key string, units int64, ttl time.Duration) (text string, d Decision, err error) {
	if err := checkTTL(ttl); err != nil {
		return "", Decision{Name: l.limit.Name}, err
	}
	h, err := l.hold(ctx, holds.Terms{Number: l.node.clients.holds.Number(), TTL: ttl}, key, units)
	return h.text(), h.decision, err
}

// WaitHoldFor is like HoldFor, but waits for the units as WaitHold does.
func (l *Limiter) WaitHoldFor(ctx context.Context, key string, units int64, ttl time.Duration) (text string, d Decision, err error) {
	if err := checkTTL(ttl); err != nil {
		return "", Decision{Name: l.limit.Name}, err
	}
	h, err := l.waitHold(ctx, key, units, ttl)
	return h.text(), h.decision, err
}

// RenewHold extends a hold of HoldFor, on any node, so that it ends ttl from now. A ttl that is shorter
// than before shortens the hold. The error is ErrInvalid for a ttl out of range or a text of another
// limit, key or cluster, and ErrExpired for a hold that was released, or not renewed in time. The error is
// ErrUnavailable if no member that could know the hold answers, or if the limit is FailClosed and no
// majority answers. With ErrUnavailable it is not known whether the hold was renewed, and the caller can call
// RenewHold again until the hold ends. The error can also be ErrClosed or that of ctx.
func (l *Limiter) RenewHold(ctx context.Context, key, text string, ttl time.Duration) error {
	_, err := l.extendHold(ctx, key, text, ttl, func(*wire.Ask) {})
	return err
}

// ShrinkHold is like RenewHold, but the hold keeps at most the given units, 1 or more, and the other units become
// available. ShrinkHold returns the number of units that are still held. A second call with the same units only
// renews the hold, so that a caller can repeat the call. The units of a hold never rise.
func (l *Limiter) ShrinkHold(ctx context.Context, key, text string, units int64, ttl time.Duration) (held int64, err error) {
	if units < 1 {
		return 0, fmt.Errorf("%w units: %d: keep 1 or more, or call ReleaseHold", ErrInvalid, units)
	}
	r, err := l.extendHold(ctx, key, text, ttl, func(a *wire.Ask) { a.Units, a.Hold.Shrinks = units, true })
	return r.Held, err
}

// PeekHold returns the units of a hold of HoldFor, and the time left until the hold ends without a renewal.
// PeekHold changes nothing. The errors are those of RenewHold.
func (l *Limiter) PeekHold(ctx context.Context, key, text string) (held int64, left time.Duration, err error) {
	r, err := l.extendHold(ctx, key, text, maxHoldFor, func(a *wire.Ask) { a.Hold.Reads = true })
	return r.Held, r.ResetAfter, err
}

// extendHold sends an OpExtend for a hold, after edit has changed the ask. With an error, the result is zero.
func (l *Limiter) extendHold(ctx context.Context, key, text string, ttl time.Duration, edit func(a *wire.Ask)) (none wire.Result, err error) {
	if err := checkTTL(ttl); err != nil {
		return none, err
	}
	a, err := l.openHold(ctx, key, text, ttl)
	if err != nil {
		return none, err
	}
	edit(&a)
	return l.node.checks.ExtendHold(ctx, &a)
}

// ReleaseHold ends a hold of HoldFor, on any node. Further calls do nothing. If the member that answers
// for the key is not reachable, this node sends the release again until the member is reachable. The error
// is ErrInvalid for a text of another limit, key or cluster, ErrClosed, or the error of a cancelled ctx.
func (l *Limiter) ReleaseHold(ctx context.Context, key, text string) error {
	a, err := l.openHold(ctx, key, text, maxHoldFor)
	if err != nil {
		return err
	}
	return l.node.checks.EndHold(ctx, &a)
}

func checkTTL(ttl time.Duration) error {
	if ttl < minHoldFor || ttl > maxHoldFor {
		return fmt.Errorf("%w ttl: %v: use %v to %v", ErrInvalid, ttl, minHoldFor, maxHoldFor)
	}
	return nil
}

// text returns the text of the hold of a client.
func (h *Hold) text() string { return h.node.clients.holds.Text(h.client) }

// openHold opens a text of HoldFor, and returns an ask for the hold with the given ttl.
func (l *Limiter) openHold(ctx context.Context, key, text string, ttl time.Duration) (a wire.Ask, err error) {
	if err = l.prepare(ctx, key, 1, &a); err != nil {
		return a, err
	}
	c, err := l.node.clients.holds.Open(a.ID, text)
	if err != nil {
		return a, fmt.Errorf("%w hold: its text is of another limit, key or cluster, or was changed", ErrInvalid)
	}
	l.node.clients.holds.NameClient(&a, c, ttl)
	return a, nil
}

package weir

import (
	"context"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Wait blocks until the units are admitted, or ctx is done.
//
// On a LeakyBucket with a Burst above 1, Wait uses a queue. Callers are served at the rate of the
// limit, in order of arrival, which is exact to within 10 ms over all nodes. At most Burst units
// wait or are being served; a caller beyond that gets ErrFull. If a waiter leaves, the later
// waiters move up. The units of a waiter are counted some 10 ms before its turn, and takes that do
// not wait are denied while callers wait. A node requests at most Burst units in a round trip. If a
// queue of Burst units is served in less than a round trip, the round trips bound its rate.
//
// With a Burst of 1 there is room only for the unit that is being served, and so no queue. In this
// case, and with the other algorithms, Wait asks again at each time at which the units could be
// admitted, and waiters are served in no particular order.
//
// Wait returns ctx.Err if ctx is cancelled or its deadline passes, and context.DeadlineExceeded
// at once if the deadline would pass before the units could be admitted. It returns ErrInvalid
// and ErrClosed as AllowN does.
func (l *Limiter) Wait(ctx context.Context, key string, units int64) (err error) {
	defer func() { l.node.meters.CountFailure(err) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var (
			a wire.Ask
			r wire.Result
		)
		if err := l.prepareCounted(ctx, key, units, &a); err != nil {
			return err
		}
		if err := l.checkCapacity(units); err != nil {
			return err
		}
		queue := l.limit.Algorithm == LeakyBucket && l.numbers.Capacity() > 1
		begun := l.node.observeStart()
		var err error
		if queue {
			r, err = l.node.clients.queues.Wait(ctx, &a)
		} else {
			err = l.node.checks.Do(ctx, wire.OpTake, &a, &r)
		}
		var d Decision
		l.fillDecision(&d, &r)
		l.node.observe(ctx, &DecisionEvent{Limiter: l, Key: key, Units: units, Decision: d, Err: err, Operation: wire.OpWait.Traced()}, begun, 0)
		if err != nil {
			return err
		}
		l.node.checks.Count(l.subject(key), &a, &r)
		if d.Allowed {
			return nil
		}
		delay := d.RetryAfter
		if r.Source.IsShare() {
			// RetryAfter is the time until the share could admit the units. The owner may be reachable earlier.
			delay = min(delay, view.OutageRetry)
		}
		if err := l.node.env.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}

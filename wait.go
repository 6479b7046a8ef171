package weir

import (
	"context"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Wait blocks until units are admitted, or ctx is done.
//
// On a LeakyBucket it waits in the queue: in order of arrival, over all nodes to within
// 10 ms, at the limit's rate. At most Burst units wait or are being served; beyond that it
// is ErrFull. A waiter that leaves takes no turn from the others: they move up. Its units
// count from some 10 ms before its turn, and takes that do not wait are denied while others
// do. A node asks for Burst units in a round trip at most, which bounds the rate of a queue
// that is shorter than that. A Burst of 1 has no place but that of the unit
// which is being served, and so no queue: there, and with the other algorithms, it asks
// again whenever an ask could be admitted; waiters come in no order.
//
// It returns ctx.Err when ctx is cancelled or its deadline passes,
// context.DeadlineExceeded at once if the deadline would pass before the units
// could be admitted, and ErrInvalid and ErrClosed as AllowN does.
func (l *Limiter) Wait(ctx context.Context, key string, units int64) (err error) {
	defer func() { l.node.meters.Failed(err) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var (
			a wire.Ask
			r wire.Result
		)
		if err := l.ask(ctx, key, units, &a); err != nil {
			return err
		}
		if err := l.grants(units); err != nil {
			return err
		}
		queue := l.limit.Algorithm == LeakyBucket && l.numbers.Capacity() > 1
		begun := l.node.observedSince()
		var err error
		if queue {
			r, err = l.node.clients.queues.Wait(ctx, &a)
		} else {
			err = l.node.checks.Do(ctx, wire.OpTake, &a, &r)
		}
		var d Decision
		l.tell(&d, &r)
		l.observe(ctx, key, units, d, err, begun, false)
		if err != nil {
			return err
		}
		if weight := l.meter.Decided(a.ID, &r, l.shadow); weight > 0 {
			l.measure(key, &a, &r, weight)
		}
		if d.Allowed {
			return nil
		}
		delay := d.RetryAfter
		if d.Source.isShare() {
			// The share says when it could admit; the owner may be back before.
			delay = min(delay, view.OutageRetry)
		}
		if err := l.node.sleep(ctx, delay); err != nil {
			return err
		}
	}
}

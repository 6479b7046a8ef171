package check

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// A node that does not know all holds of a count cannot decide about a hold: the result of the
// operation is Unknown. The node then asks the other members for their holds, and executes the
// operation again.

// learnAndDecide asks other members for their holds, as the owner of the count, and decides again.
// If the result is Unknown again, because authority has moved meanwhile, learnAndDecide repeats
// this once. All of this ends within Timeout after the a.Began of the first decision.
func (c *Checks) learnAndDecide(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout-time.Duration(c.Env.Monotonic()-a.Began))
	defer cancel()
	for tries := 2; tries > 0 && err == nil && r.Unknown; tries-- {
		c.Holds.Learn(ctx, view.AsOwner, op, a)
		*r = wire.Result{}
		err = c.decide(ctx, op, a, r)
	}
	return err
}

// learnAndExecute asks other members for their holds, within the time remaining. Then it executes op
// again.
func (c *Checks) learnAndExecute(ctx context.Context, v *view.View, as view.Standing, remaining time.Duration, op wire.Op, a *wire.Ask, r *wire.Result) {
	ctx, cancel := context.WithTimeout(ctx, remaining)
	defer cancel()
	c.Holds.Learn(ctx, as, op, a)
	*r = wire.Result{}
	c.execute(v, as, op, a, c.Env.Now(), r)
	r.Unknown = false // the members have not answered in time, so the denial stands
}

// learnAndHandle asks other members for their holds in another goroutine, and then handles the request
// again. It reports false if there is no goroutine for that.
func (c *Checks) learnAndHandle(v *view.View, r *request) bool {
	as := v.Standing(wire.IDOf(r.bytes, 0))
	return c.detach(r, func(ctx context.Context, r *request) {
		a, err := wire.ParseAsk(r.bytes, 0, new(bucket.Limit))
		if err == nil {
			c.Holds.Learn(ctx, as, r.h.Op, &a)
		}
		r.learned = true
		c.resume(r)
	})
}

package check

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/holds"
	"github.com/weir-go/weir/internal/wire"
)

// Hold makes one request for the units of the ask a, and counts the decision. If the units are granted and t has
// no TTL, Hold sets held. If they are granted and t has a TTL, Hold returns the name of the client's hold. In that
// case Hold waits until a second node has recorded the hold, but no longer than Timeout after the request began.
func (c *Checks) Hold(ctx context.Context, t holds.Terms, s Subject, a *wire.Ask, r *wire.Result, held *holds.Hold) (client holds.Client, err error) {
	c.Holds.Name(a, t)
	if err = c.Do(ctx, wire.OpHold, a, r); err == nil {
		c.Count(s, a, r)
	}
	switch {
	case err == nil && r.Allowed && t.TTL > 0:
		client = holds.ClientOf(a)
		// After a pause of this process, no time may be left: then the record is sent without a wait.
		ctx, cancel := context.WithTimeout(ctx, c.Timeout-time.Duration(c.Env.Monotonic()-a.Began))
		defer cancel()
		c.Holds.Keep(ctx, a, r)
	case err == nil && r.Allowed:
		c.Holds.RecordGrant(held, a, r, a.Began)
	case !t.Waits:
		c.Holds.GiveUp(a)
	}
	return client, err
}

// ExtendHold executes an OpExtend for the hold of a client, for at most Timeout. With an error, the result is
// zero. The error is env.ErrExpired, env.ErrUnavailable, env.ErrClosed or that of ctx.
func (c *Checks) ExtendHold(ctx context.Context, a *wire.Ask) (none wire.Result, err error) {
	within, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		var r wire.Result
		switch err := c.Do(within, wire.OpExtend, a, &r); {
		case err != nil:
			return none, err
		case r.Allowed:
			if !a.Hold.Reads {
				a.Units = r.Held
				c.Holds.Keep(within, a, &r)
			}
			return r, nil
		case r.Firm:
			return none, fmt.Errorf("%w: the hold was released, or not renewed in time", env.ErrExpired)
		case c.Env.Ended():
			return none, env.ErrClosed
		case r.Source == wire.FailedClosed:
			return none, env.ErrUnavailable
		}
		switch err := c.Env.Sleep(within, r.RetryAfter); { // authority is moving, so the request is repeated
		case err == nil:
		case ctx.Err() == nil && !c.Env.Ended():
			return none, env.ErrUnavailable
		default:
			return none, err
		}
	}
}

// EndHold ends the hold of a client, within Timeout.
func (c *Checks) EndHold(ctx context.Context, a *wire.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var r wire.Result
	err := c.Do(ctx, wire.OpRelease, a, &r)
	if err == nil {
		c.Holds.Bury(ctx, a, &r)
	}
	return err
}

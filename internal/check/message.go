package check

import (
	"context"

	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/wire"
)

// handleMessage handles a request without asks.
func (c *Checks) handleMessage(now int64, r *request) {
	body := r.bytes[wire.HeaderBytes:]
	switch r.h.Op {
	case wire.OpLocate:
		r.x.answer = c.Handover.ServeLocate(body, r.x.answer[:0])
	case wire.OpStream:
		r.x.answer = c.Handover.ServeFrame(body, now, r.x.answer[:0])
	case wire.OpExchange:
		c.Regions.Serve(r.from, r.bytes, r.h, r.batch.Defer(r.index))
		return
	case wire.OpCompare, wire.OpTop, wire.OpTotals, wire.OpBans: // the answer may take long, and no check should wait for it
		if !c.detach(r, func(_ context.Context, r *request) { c.replyTo(r) }) {
			r.handBack()
		}
		return
	default:
		c.replyTo(r)
		return
	}
	r.batch.Reply(r.index, r.x.answer)
}

// replyTo replies with the response of the part that handles a message.
func (c *Checks) replyTo(r *request) {
	body := r.bytes[wire.HeaderBytes:]
	answer, err := c.appendAnswer(wire.AppendResponse(r.x.answer[:0], wire.Done, 0), r.h.Op, body, r.from.Name)
	if err != nil {
		r.reply(nil)
		return
	}
	r.x.answer = answer
	r.reply(answer)
}

// appendAnswer appends the response of the part that handles a message. The argument from is the name of the
// sender. A malformed message is an error.
func (c *Checks) appendAnswer(dst []byte, op wire.Op, body []byte, from string) ([]byte, error) {
	switch {
	case op == wire.OpRenew:
		return c.Holds.ServeRenew(body, dst)
	case op == wire.OpHeld:
		return c.Holds.ServeHeld(body, dst)
	case op == wire.OpPublish:
		return dst, c.Published.Serve(body, from)
	case op == wire.OpDeclare:
		return dst, c.Registry.Compare(body, from, c.Env.Monotonic())
	case op == wire.OpCompare:
		question, err := publish.ParseQuestion(body)
		if err != nil {
			return nil, err
		}
		return c.Published.Answer(dst, &question, from), nil
	case op == wire.OpSince:
		return c.Epochs.Serve(body, dst)
	case op == wire.OpTop && len(body) == 0:
		return c.Survey.AppendTop(dst), nil
	case op == wire.OpTotals && len(body) == 0:
		return c.Survey.AppendTotals(dst), nil
	case op == wire.OpBans && len(body) == 0:
		return c.Survey.AppendBans(dst), nil
	}
	return nil, wire.ErrMalformed
}

package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// await keeps a check until authority has come, for half of the asker's wait at most,
// and has it go its way then. It is false if too much goes on already.
func (n *Node) await(from env.Sender, h wire.Header, request []byte, trip *trip, answer cluster.Later) bool {
	request = append([]byte(nil), request...)
	return n.serveApart(from, func(life context.Context) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(life, h.Wait/2)
		defer cancel()
		v := n.handover.View()
		for v.Awaits(h, request) && ctx.Err() == nil {
			select {
			case <-v.Over:
			case <-ctx.Done():
			}
			v = n.handover.View()
		}
		h.Wait -= min(time.Since(begun), h.Wait/2) // what this process was late by is not the asker's
		n.goOn(life, v, h, request, trip, answer)
	})
}

// goOn has a check that was kept go its way now, in a slot that it has already.
func (n *Node) goOn(life context.Context, v *view.View, h wire.Header, request []byte, trip *trip, answer cluster.Later) {
	now := n.env.Now()
	unreached := func() { trip.later(h, request, answer)(wire.AppendAnswer(nil, wire.Unreached, 0)) }
	if n.handover.Fenced(v, now) {
		unreached()
		return
	}
	if member, flags := v.Onward(h, request, n.env.SteadyAt(now)); member >= 0 {
		h.Flags = flags
		n.handOn(v, member, h, request, trip, answer, func(f func(context.Context)) bool {
			f(life)
			return true
		})
		return
	}
	if v.Declines(h, request) {
		unreached()
		return
	}
	got, err := n.answer(v, h, request, now)
	if err == nil {
		n.meters.Served.Add(uint64(h.Asks))
	}
	trip.later(h, request, answer)(got)
}

// answer carries out a request here.
func (n *Node) answer(v *view.View, h wire.Header, request []byte, now int64) ([]byte, error) {
	if !wire.OfHolds(h, request) {
		return n.owner.Answer(v, h, request, nil, now)
	}
	a, err := wire.ParseAsk(request, 0, new(bucket.Limit))
	if err != nil {
		return nil, err
	}
	return n.clients.holds.Answer(v, h, &a, nil, n.env.SteadyAt(now)), nil
}

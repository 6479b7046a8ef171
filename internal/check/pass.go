package check

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// passOn sends a request to the given member, or to the next member on the way, with the given
// flags, and replies with the response. It takes at most three quarters of the asker's wait, so
// that the asker learns of a failure in time.
//
// After a refund or a strike was sent, this node never executes it: the member may have executed it, or may
// do so later, and a second execution would not be undone. If a take or a debit is executed twice,
// HandleLate refunds the late result if it still arrives, unless it is a debit that left a debt. A response
// with the status Unreached can mean that the member executed the request, but answered the next node on
// the way too late.
func (c *Checks) passOn(v *view.View, member int, flags uint8, now int64, r *request) {
	h := r.h
	h.Flags = flags
	standsIn := r.bytes[1]&wire.FlagStandIn != 0
	hop := v.Next[member]
	switch {
	case hop >= 0 && hop != member && v.Members[hop].Name == r.from.Name:
		// This node and the sender each reach the member through the other, so neither reaches it.
		// This node stands in if the sender asks for that. Otherwise the sender stands in.
		if standsIn && v.Stays() && h.To == v.Hashes[v.Self] {
			c.standIn(v, now, r)
		} else {
			r.handBack()
		}
		return
	case hop < 0 || h.Hops == 0:
		r.handBack()
		return
	}
	standsIn = standsIn && h.Flags&wire.FlagStandIn == 0
	redirects := h.To != v.Hashes[member] // the request was not for that member
	h.Hops--
	h.To = v.Hashes[member]
	h.Wait = h.Wait * 3 / 4
	if standsIn {
		h.Wait = h.Wait * 2 / 3 // half of the asker's wait: the other half is for standing in
	}
	onward := append(h.Append(nil), r.bytes[wire.HeaderBytes:]...)
	for i := range int(h.Asks) {
		wire.ClearWant(onward, i) // the member would not know which node wants the lease
	}
	peer := v.Members[hop].Peer
	c.Meters.Passed.Add(uint64(h.Asks))
	if h.Wait == 0 {
		peer.Send(onward)
		r.handBack()
		return
	}
	if !c.detach(r, func(ctx context.Context, r *request) {
		begun := c.Env.Now()
		answer, err := peer.Ask(ctx, onward, nil, h.Wait)
		r.trip.hopped(Hop{To: v.Members[hop].Name, Err: err, Took: time.Duration(c.Env.Now() - begun)})
		failed := err != nil || len(answer) == 0 || wire.Status(answer[0]) == wire.Unreached
		after := c.viewAfter(v, member, err)
		switch {
		case standsIn && after.Stays() && failed && (!h.Op.IsOnce() || isUnsent(err)):
			c.standIn(after, c.Env.Now(), r)
			return
		case err != nil:
			r.handBack()
			return
		case redirects:
			wire.UnmarkStoodIn(h.Op, answer)
		}
		r.reply(answer)
	}) {
		r.handBack()
	}
}

// standIn executes a request in place of an owner that this node does not reach, or that has not
// answered it. If this node does not know all holds, it denies a hold and asks no other member.
// After an attempt at the owner, the rest of the asker's wait is too short for that.
func (c *Checks) standIn(v *view.View, now int64, r *request) {
	answer, _, err := c.answer(v, r.h, r.bytes, r.x.answer[:0], now)
	if err != nil {
		answer = nil
	}
	r.reply(answer)
}

package check

import (
	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// HandleLate refunds the units of a response that arrives after its asker has given up, because another
// member or this node has decided instead. A debit that left a debt is not
// refunded, because this node does not know how many of the units were counted. A granted hold is passed to
// Holds. HandleLate also records the leases and firm denials in responses to requests that began on this
// node. HandleLate must not keep request or answer.
func (c *Checks) HandleLate(from cluster.Peer, request, answer []byte) {
	h, err := wire.ParseHeader(request)
	if err != nil || !h.Op.GrantsUnits() && !h.Op.LearnsLeases() {
		return
	}
	if s, err := wire.ParseResponse(answer, h.Op, int(h.Asks)); err != nil || s != wire.Done {
		return
	}
	var (
		taken  []wire.Ask
		units  uint64
		denied bool
	)
	for i := range int(h.Asks) {
		a, err := wire.ParseAsk(request, i, new(bucket.Limit))
		if err != nil {
			return
		}
		r := wire.ParseResult(answer, h.Op, i)
		if h.Op.LearnsLeases() && h.Hops == wire.MaxHops {
			c.Asker.Learn(&a, &r, h.To, c.Asker.SentAt(a.Take.Sent))
		}
		switch {
		case !h.Op.GrantsUnits():
		case !r.Allowed:
			denied = denied || !a.Shadow
		case h.Op == wire.OpHold:
			c.Holds.HandleLateGrant(from, h.To, &a)
		default:
			a.Units = a.GrantedUnits(h.Op, &r)
			units += uint64(a.Units)
			taken = append(taken, a.WithReceipt(&r))
		}
	}
	if denied || len(taken) == 0 {
		return
	}
	refund := wire.Header{Op: wire.OpRefund, Flags: h.Flags &^ wire.FlagTraced, Hops: wire.MaxHops, Asks: uint8(len(taken)), To: h.To}.Append(nil)
	for i := range taken {
		refund = taken[i].Append(refund)
	}
	c.Meters.LateUnits.Add(units)
	from.Send(refund)
	for i := range taken {
		c.Asker.End(taken[i].ID)
	}
}

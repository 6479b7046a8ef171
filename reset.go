package weir

import (
	"context"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// resetsAtOnce bounds how many members are told of a reset at a time.
const resetsAtOnce = 64

// reset forgets a count here and on every other member of the roster, each told
// directly or through others. Whom it does not reach learns it from the states
// that it is sent later, or from its own spends being refused. Of a Global limit
// it tells one node of each other region as well, which has the others know.
func (n *Node) reset(ctx context.Context, a *wire.Ask) error {
	v, now := n.handover.View(), n.env.Now()
	a.Reset = n.handover.Stream().Reset(a.ID, now)
	asks := []wire.Ask{*a}
	var regions []string
	if a.Global && n.regions.Holdings != nil {
		others := *a
		others.ID = countsync.Elsewhere(a.ID)
		others.Reset = n.handover.Stream().Reset(others.ID, now)
		asks = append(asks, others)
		regions = n.regions.Names()
	}

	var (
		missed  = make([]bool, len(v.Members))
		unasked = make([]bool, len(regions))
	)
	// No member waits for a region that is slow.
	env.Gather(len(regions)+len(v.Members), len(regions)+resetsAtOnce, func(i int) {
		if i < len(regions) {
			unasked[i] = n.regions.Reset(ctx, regions[i], asks) != nil
			return
		}
		switch i -= len(regions); {
		case i == v.Self:
		case v.Next[i] < 0:
			missed[i] = true
		default:
			by := answerer{member: i, hop: v.Next[i]}
			missed[i] = n.forward(ctx, v, by, wire.OpReset, asks, make([]wire.Result, len(asks)), n.env.At(now), n.cfg.Timeout) != nil
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	var partial ErrPartial
	for i, m := range v.Members {
		if missed[i] {
			partial.Members = append(partial.Members, m.Name)
		}
	}
	for i, region := range regions {
		if unasked[i] {
			partial.Members = append(partial.Members, "region "+region)
		}
	}
	if partial.Members != nil {
		return &partial
	}
	return nil
}

// resetsInTime reports whether the numbers of a reset are times that a member's clock
// may have come to. The asker is answered nothing otherwise, and names this node as
// one that was not reached.
func resetsInTime(h wire.Header, request []byte, now int64) bool {
	for i := range int(h.Asks) {
		if a, err := wire.ParseAsk(request, i, new(bucket.Limit)); err == nil && !countsync.ResetInTime(a.Reset, now) {
			return false
		}
	}
	return true
}

// whenReset resets a count, here or as another node did it, and forgets what was lent and
// denied of it before.
func (n *Node) whenReset(id bucket.ID, number uint64, reset func()) {
	n.owner.Reset(id, reset)
	n.asker.Reset(id, number)
}

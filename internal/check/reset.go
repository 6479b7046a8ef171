package check

import (
	"context"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// ResetsAtOnce, plus the number of other regions, is the maximum number of nodes to which a reset
// is sent at a time.
const ResetsAtOnce = 64

// Reset deletes a count, and the counts of its bans and its pause, on this node and on every other member
// of the roster that this node reaches, directly or through other members. A member that is not reached
// learns of the reset from the counts that it receives later. For a Global limit, Reset also asks a node of
// each other region. Reset returns the names of the members that were not reached, have not answered or
// have refused, and after them such regions, as "region NAME". The error is that of ctx.
func (c *Checks) Reset(ctx context.Context, a *wire.Ask) (missed []string, err error) {
	v, now := c.Env.View(), c.Env.Now()
	ids := owner.CountIDs(a)
	var regions []string
	if a.Global && c.Regions.Holdings != nil {
		ids = append(ids, countsync.ElsewhereID(a.ID))
		regions = c.Regions.RegionNames()
	}
	asks := make([]wire.Ask, len(ids))
	for i, id := range ids {
		asks[i] = *a
		asks[i].ID, asks[i].Reset = id, c.Handover.Stream().Reset(id, now)
	}
	silent := make([]bool, len(v.Members)+len(regions))
	// Each region adds one request at a time, so that no member waits for a slow region.
	env.Gather(len(silent), len(regions)+ResetsAtOnce, func(i int) {
		if i < len(regions) {
			silent[len(v.Members)+i] = c.Regions.Reset(ctx, regions[i], asks) != nil
			return
		}
		switch i -= len(regions); {
		case i == v.Self:
		case v.Next[i] < 0:
			silent[i] = true
		default:
			target := answerer{member: i, hop: v.Next[i]}
			silent[i] = c.forward(ctx, v, target, wire.OpReset, asks, make([]wire.Result, len(asks)), c.Env.TimeAt(now), c.Timeout) != nil
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range silent {
		switch at := i - len(v.Members); {
		case !silent[i]:
		case at < 0:
			missed = append(missed, v.Members[i].Name)
		default:
			missed = append(missed, "region "+regions[at])
		}
	}
	return missed, nil
}

// areResetsInTime reports whether the numbers of a reset are times that the clock of a member may have
// reached. Otherwise the response to the request is empty, and its sender reports this node as missed.
func areResetsInTime(h wire.Header, request []byte, now int64) bool {
	for i := range int(h.Asks) {
		if a, err := wire.ParseAsk(request, i, new(bucket.Limit)); err == nil && !countsync.ResetInTime(a.Reset, now) {
			return false
		}
	}
	return true
}

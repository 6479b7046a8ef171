package check

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// TakeAll takes the units of all asks of a list, or no units. There is at least one ask. The member that
// answers for several asks takes their units in a single step. If several members answer, each take is
// tentative, and is refunded if another take is denied or fails. The error is the error of a cancelled ctx.
func (c *Checks) TakeAll(ctx context.Context, l *AskList) error {
	asks, results := l.asks, l.results
	for i := range results {
		results[i].Banned, results[i].Paused = false, false // most decisions leave both unchanged
	}
	if len(asks) == 1 {
		return c.Do(ctx, wire.OpTake, &asks[0], &results[0])
	}
	v, now := c.Env.View(), c.Env.Now()
	t := c.Env.TimeAt(now)
	for i := range asks {
		asks[i].Began = t.Monotonic
	}
	if v.AllHere(asks, t.Monotonic) && !c.Env.IsFenced(v, now) {
		c.takeTogether(v, view.AsOwner, 0, asks, now, results)
		return nil
	}
	if c.denyAll(v, asks, t, results) {
		return nil
	}
	groups := groupByRoute(v, asks, t.Monotonic)
	var flags uint8
	if len(groups) > 1 {
		flags = wire.FlagTentative
	}
	var wait sync.WaitGroup
	for _, g := range groups[1:] {
		wait.Go(func() { c.takeGroup(ctx, v, flags, g) })
	}
	c.takeGroup(ctx, v, flags, groups[0])
	wait.Wait()
	return mergeResults(groups, results)
}

// denyAll reports whether a pushback denies an ask, and therefore all asks. No member is asked in
// that case. If one of the asks is a shadow, denyAll returns false, because every shadow is decided.
func (c *Checks) denyAll(v *view.View, asks []wire.Ask, t countsync.Time, results []wire.Result) (denied bool) {
	if slices.ContainsFunc(asks, func(a wire.Ask) bool { return a.Shadow }) {
		return false
	}
	clear(results)
	for i := range asks {
		if _, leaves := c.place(v, v.Route(asks[i].ID, t.Monotonic), t.Now); leaves && c.Asker.Denies(&asks[i], t, &results[i]) {
			denied = true
		} else {
			results[i].Allowed, results[i].Limit = true, asks[i].Limit.Usable()
		}
	}
	return denied
}

// takeGroup takes the units of a group, at the member that answers for the group, or at this node
// if no member has answered.
func (c *Checks) takeGroup(ctx context.Context, v *view.View, flags uint8, g *group) {
	now := c.Env.Now()
	as, asks := c.place(v, g.route, now)
	if asks {
		target, err := c.ask(ctx, v, c.Env.TimeAt(now), g.route, wire.OpTake, flags, g.asks, g.results)
		if target.trip != nil {
			defer func() { target.trip.decided(wire.OpTake, g.asks, g.results, g.err) }()
		}
		if err == nil {
			g.settle = func(takes []wire.Ask) { c.settleAt(v, target, takes) }
			return
		}
		clear(g.results)
		if g.err = cancelled(ctx); g.err != nil {
			return
		}
		v, as = c.standing(v, g.route, target, err)
		now = c.Env.Now()
	}
	if as != view.AsOwner {
		runtime.Gosched() // for the reason in decideHere
	}
	c.takeTogether(v, as, flags, g.asks, now, g.results)
	g.settle = func(takes []wire.Ask) { c.settleHere(v, as, takes) }
}

// takeTogether takes from counts of this node in a single step.
func (c *Checks) takeTogether(v *view.View, as view.Standing, flags uint8, asks []wire.Ask, now int64, results []wire.Result) {
	room := c.rooms.Get().(*owner.Room)
	defer c.rooms.Put(room)
	c.Owner.TakeTogether(v, as, flags, asks, now, room, results)
}

// settleAt sends a refund of the units of takes to the member that has granted the takes.
func (c *Checks) settleAt(v *view.View, target answerer, takes []wire.Ask) {
	if len(takes) == 0 {
		return
	}
	target.trip = nil // a request without a response is not traced
	v.Members[target.hop].Peer.Send(appendRequest(nil, v, target, wire.OpRefund, 0, takes))
}

// settleHere concludes takes of counts of this node, and refunds their units.
func (c *Checks) settleHere(v *view.View, as view.Standing, takes []wire.Ask) {
	for i := range takes {
		c.execute(v, as, wire.OpRefund, &takes[i], c.Env.Now(), new(wire.Result))
		c.Owner.Conclude(takes[i].ID)
	}
}

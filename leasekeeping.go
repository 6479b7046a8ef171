package weir

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// askForLease has a take that is about to be sent to the owner ask for a lease, if its key
// is hot.
func (n *Node) askForLease(v *view.View, a *wire.Ask, t countsync.Time) {
	if !a.Leases || n.leases.stops.Load() {
		return
	}
	if left, over := n.leases.want(a, n.heat.asked(a.ID, t.Steady), t, n.cfg.Timeout); over {
		n.giveBack(v, left)
	}
}

// refundLease reports whether a refund could go back to a lease that it was spent of.
func (n *Node) refundLease(a *wire.Ask) bool {
	done, left, over := n.leases.refund(a, n.clock.Time())
	if over {
		n.giveBack(n.view.Load(), left)
	}
	return done
}

// stop gives all leases back, and has none asked for any more.
func (l *leases) stop() {
	l.stops.Store(true)
	l.live.all(func(set int) {
		l.due.set(set)
		signal(l.wake)
	})
}

// keepLeases renews leases, and gives back what is left of them, until the node closes.
func (n *Node) keepLeases() {
	l := &n.leases
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	var (
		renew   []wire.Ask
		errands []leaseErrand
	)
	sweep := func(sets *bitmap) (lives bool) {
		t, wait := n.clock.Time(), n.cfg.Timeout
		renew = renew[:0]
		sets.all(func(set int) {
			l.due.clear(set)
			var more bool
			renew, more = l.sweep(set, t, wait, renew)
			lives = lives || more
		})
		v := n.view.Load()
		errands = l.returns(errands[:0])
		n.errandsTo(errands, func(errands []leaseErrand) { n.giveBack(v, errands...) })
		errands = errands[:0]
		for i := range renew {
			if way := v.Route(renew[i].ID, t.Steady); way.Way == view.Direct {
				errands = append(errands, leaseErrand{v.Hashes[way.To], renew[i]})
			}
		}
		n.errandsTo(errands, func(errands []leaseErrand) { n.renew(v, slices.Clone(errands), t) })
		return lives
	}
	for {
		select {
		case <-l.wake:
			if !l.awake.Swap(true) {
				tick.Reset(sweepEvery + n.view.Load().Offset(sweepEvery))
			}
			sweep(&l.due)
		case <-tick.C:
			if !sweep(&l.live) {
				l.awake.Store(false)
				l.live.all(func(int) { signal(l.wake) }) // what came just now
				continue
			}
			tick.Reset(sweepEvery)
		case <-n.life.Done():
			return
		}
	}
}

// errandsTo calls f with the errands to each owner, so many as a request may have at once.
func (n *Node) errandsTo(errands []leaseErrand, f func([]leaseErrand)) {
	slices.SortStableFunc(errands, func(a, b leaseErrand) int {
		switch {
		case a.owner < b.owner:
			return -1
		case a.owner > b.owner:
			return 1
		}
		return 0
	})
	for len(errands) > 0 {
		same := 1
		for same < len(errands) && same < wire.MaxAsks && errands[same].owner == errands[0].owner {
			same++
		}
		f(errands[:same])
		errands = errands[same:]
	}
}

// giveBack tells one owner what is left of its leases. Where that owner is not there any
// more, or answers nothing, it is a refund like any other, to whoever answers by now. What
// is lost on the way stays spent: to say it again could give it back twice.
func (n *Node) giveBack(v *view.View, errands ...leaseErrand) {
	to, known := v.Named[errands[0].owner]
	if !known || v.Stalls(to) || !v.Direct[to] {
		for i := range errands {
			if a := &errands[i].ask; a.Units > 0 {
				a.Lease = wire.Lease{}
				n.tell(wire.OpRefund, 0, a)
			}
		}
		return
	}
	x := n.exchanges.Get().(*exchange)
	defer n.exchanges.Put(x)
	x.request = wire.Header{Op: wire.OpReturn, Flags: 0, Hops: wire.MaxHops, Asks: uint8(len(errands)), Wait: 0, To: errands[0].owner}.Append(x.request[:0])
	for i := range errands {
		x.request = errands[i].ask.Append(x.request)
	}
	v.Members[to].Peer.Tell(x.request)
}

// renew asks an owner for leases in the place of those that are about to end. A refusal
// or a lost answer is no harm: the next check of the key asks.
func (n *Node) renew(v *view.View, errands []leaseErrand, sent countsync.Time) {
	owner, wait := errands[0].owner, n.cfg.Timeout*3/4
	n.life.Try(func(ctx context.Context) {
		x := n.exchanges.Get().(*exchange)
		defer n.exchanges.Put(x)
		x.request = wire.Header{Op: wire.OpLend, Flags: 0, Hops: wire.MaxHops, Asks: uint8(len(errands)), Wait: wait, To: owner}.Append(x.request[:0])
		for i := range errands {
			x.request = errands[i].ask.Append(x.request)
		}
		answer, err := v.Members[v.Named[owner]].Peer.Ask(ctx, x.request, x.answer, wait)
		if err != nil {
			return
		}
		x.answer = answer
		if s, err := wire.ParseAnswer(answer, len(errands)); err != nil || s != wire.Done {
			return
		}
		t := n.clock.Time()
		for i := range errands {
			r := wire.ParseResult(answer, i)
			n.leases.learn(&errands[i].ask, &r, owner, sent, t)
		}
	})
}

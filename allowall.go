package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-go/weir/bucket"
)

// Ask is one of the limits that AllowAll decides together.
type Ask struct {
	Limiter *Limiter // of the same node
	Key     string
	Units   int64 // 1 if zero; asks of the same limit and key are summed
	Shadow  bool  // counted, and never enforced: it denies no other ask
}

func (a *Ask) units() int64 {
	if a.Units == 0 {
		return 1
	}
	return a.Units
}

// AllowAll spends on all of the limits, or on none: a request that one of them
// denies costs the others nothing. It takes at most 255 asks. Each Decision says
// what its own limit answered; units were spent only if Decisions.Allowed.
//
// Asks that one node has authority for are decided in one step. Otherwise takes
// go to all at once, and if any denies, the others are refunded: it never admits
// too much, and under contention can deny falsely for a round trip (the denial's
// RetryAfter knows nothing of the refund to come, nor the ResetAfter of what was
// refunded). Errors are those of Limiter.AllowN.
func (n *Node) AllowAll(ctx context.Context, asks ...Ask) (Decisions, error) {
	return n.AllowAllInto(ctx, asks, nil)
}

// AllowAllInto is AllowAll, and appends the Decisions to ds[:0], which it
// returns: with a ds that has the room, and where this node has authority for all
// of the asks, it allocates nothing. It keeps neither asks nor ds.
func (n *Node) AllowAllInto(ctx context.Context, asks []Ask, ds Decisions) (Decisions, error) {
	begun := n.observedSince()
	ds = slices.Grow(ds[:0], len(asks))[:len(asks)]
	clear(ds)
	err := n.allowAll(ctx, asks, ds)
	for i := range asks {
		l := asks[i].Limiter
		if l == nil {
			continue
		}
		ds[i].Name = l.limit.Name
		n.observe(ctx, l, asks[i].Key, asks[i].units(), ds[i], err, begun)
	}
	return ds, err
}

func (n *Node) allowAll(ctx context.Context, asks []Ask, ds Decisions) error {
	if len(asks) > maxAsks {
		return fmt.Errorf("%w AllowAll: %d asks: use at most %d", ErrInvalid, len(asks), maxAsks)
	}
	all := make([]ask, 0, len(asks))
	at := make([]int, len(asks)) // which of all answers each of asks
	for i, a := range asks {
		if a.Limiter == nil || a.Limiter.node != n {
			return fmt.Errorf("%w AllowAll: asks[%d].Limiter is nil or of another node: use one that this node's Limiter returned", ErrInvalid, i)
		}
		var one ask
		if err := a.Limiter.ask(ctx, a.Key, a.units(), &one); err != nil {
			return fmt.Errorf("asks[%d]: %w", i, err)
		}
		at[i] = indexOf(all, one.id)
		if at[i] < 0 {
			at[i] = len(all)
			all = append(all, one)
			continue
		}
		sum := &all[at[i]]
		if most := one.limit.Capacity(); one.units > most-sum.units {
			return fmt.Errorf("%w AllowAll: asks[%d]: units of limit %q sum to more than the %d it can ever grant", ErrInvalid, i, a.Limiter.limit.Name, most)
		}
		sum.units += one.units
	}
	results, err := n.takeAll(ctx, all)
	if err != nil {
		return err
	}
	for i := range ds {
		r := &results[at[i]]
		r.tell(&ds[i], asks[i].Limiter.limit.Name)
		n.meters.decided(all[at[i]].id, r)
	}
	return nil
}

func indexOf(all []ask, id bucket.ID) int {
	for i := range all {
		if all[i].id == id {
			return i
		}
	}
	return -1
}

// party is those of the asks that go the same way.
type party struct {
	way     way
	to, hop int   // of route
	at      []int // which of the asks
	asks    []ask
	results []result
	refund  func() // gives back what the party took
	err     error
}

// takeAll takes from every owner at once, and gives back if any denied.
func (n *Node) takeAll(ctx context.Context, all []ask) ([]result, error) {
	if len(all) == 1 {
		var r [1]result
		err := n.decide(ctx, opTake, 0, &all[0], &r[0])
		return r[:], err
	}
	v := n.view.Load()
	parties := v.parties(all, n.now())
	var wait sync.WaitGroup
	for _, p := range parties {
		wait.Go(func() { n.take(ctx, v, p) })
	}
	wait.Wait()

	results := make([]result, len(all))
	var err error
	allowed := true
	for _, p := range parties {
		err = errors.Join(err, p.err)
		allowed = allowed && p.allowed()
		for i, at := range p.at {
			results[at] = p.results[i]
		}
	}
	if allowed || len(parties) == 1 {
		return results, err
	}
	for _, p := range parties {
		if !p.allowed() {
			continue
		}
		p.refund()
		for i, at := range p.at {
			results[at].Remaining += p.asks[i].units
		}
	}
	return results, err
}

// parties sorts asks by who answers for them.
func (v *view) parties(all []ask, now int64) []*party {
	var parties []*party
	for i := range all {
		w, to, hop := v.route(all[i].id, v.owner(all[i].id), now)
		at := slices.IndexFunc(parties, func(p *party) bool { return p.way == w && p.to == to })
		if at < 0 {
			at = len(parties)
			parties = append(parties, &party{way: w, to: to, hop: hop})
		}
		p := parties[at]
		p.at = append(p.at, i)
		p.asks = append(p.asks, all[i])
	}
	return parties
}

func (p *party) allowed() bool {
	for i := range p.results {
		if !p.results[i].Allowed {
			return false
		}
	}
	return true
}

// take takes from whoever answers for the party, or from this node's budget if it
// is not reached, in one step.
func (n *Node) take(ctx context.Context, v *view, p *party) {
	as, now := asSelf, n.now()
	switch {
	case p.way == here && !n.fenced(v, now):
		as = asOwner
	case p.way == standIn && p.to == v.Self:
		as = asStandIn
	case p.way != here && p.way != alone:
		p.results = make([]result, len(p.asks))
		by, err := n.reach(ctx, v, p.way, p.to, p.hop, opTake, 0, p.asks, p.results)
		if err == nil {
			p.refund = func() { v.Members[by.hop].Peer.Tell(v.request(nil, by, opRefund, 0, p.receipted())) }
			return
		}
		if p.err = cancelled(ctx); p.err != nil {
			clear(p.results)
			return
		}
		if by.member == v.Self {
			as = asStandIn
		}
		v = v.without(p.to)
	}
	p.results = n.spendAll(v, as, p.asks, n.now())
	p.refund = func() {
		for _, a := range p.receipted() {
			n.spend(v, as, opRefund, 0, &a, n.now(), new(result))
		}
	}
}

// receipted is the asks with the receipts of what they took.
func (p *party) receipted() []ask {
	for i := range p.asks {
		p.asks[i].receipt = p.results[i].Receipt
	}
	return p.asks
}

// spendAll takes on all of the counts that are held here, or on none, each
// within the share that this node has.
func (n *Node) spendAll(v *view, as standing, asks []ask, now int64) []result {
	parts := make([]bucket.Limit, len(asks))
	takes := make([]bucket.Ask, len(asks))
	answers := make([]bucket.Result, len(asks))
	results := make([]result, len(asks))
	closed := false
	for i := range asks {
		s, source := v.share(as, asks[i].id, asks[i].partition)
		results[i].source = source
		closed = closed || source == FailedClosed
		parts[i] = s.limit(asks[i].limit)
		takes[i] = bucket.Ask{ID: asks[i].id, Limit: &parts[i], Units: asks[i].units}
	}
	if !closed {
		n.counts.TakeAll(takes, now, answers)
	}
	for i := range results {
		switch {
		case !closed:
			results[i].Result = answers[i]
		case results[i].source == FailedClosed:
			results[i].Result = bucket.Result{RetryAfter: outageRetry}
		default:
			results[i].Result = n.counts.Peek(asks[i].id, &parts[i], now, asks[i].units)
		}
	}
	return results
}

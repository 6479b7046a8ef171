package asker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Asker contains the data that saves requests to owners: cached denials of owners, lent units, and
// how often each ID is requested from other members. It decides as the owner would, except that for
// a time it may miss a refund, a reset or new numbers of another node: a denial is cached no longer
// than the denial of the owner is valid, and lent units were debited by the owner before this node
// spends them.
type Asker struct {
	env     *env.Env
	timeout time.Duration
	checks  env.Checks // refunds the units of leases whose owner this node cannot ask

	pushbacks pushbacks
	leases    leases
	heat      heat
	requests  sync.Pool // has values of *request
}

// request contains buffers that are reused for later requests.
type request struct{ bytes, answer []byte }

// New returns an Asker. The function number returns the number of the last reset of a count
// (Owner.ResetNumber).
func New(e *env.Env, timeout time.Duration, number func(bucket.ID, int64) uint64, checks env.Checks) *Asker {
	k := &Asker{env: e, timeout: timeout, checks: checks}
	k.leases.wake = make(chan struct{}, 1)
	k.leases.number, k.pushbacks.number = number, number
	k.requests.New = func() any { return new(request) }
	return k
}

// Answer reports whether a cached denial denies a take or a lease admits it, and sets the
// result. A take without Leases, such as that of a reservation, which needs a receipt of its units,
// spends no units of a lease.
func (k *Asker) Answer(a *wire.Ask, t countsync.Time, r *wire.Result) bool {
	return k.pushbacks.deny(a, t, r) || a.Leases && k.leases.spend(a, t, r)
}

// Denies reports whether a cached denial denies a take, and sets the result.
func (k *Asker) Denies(a *wire.Ask, t countsync.Time, r *wire.Result) bool {
	return k.pushbacks.deny(a, t, r)
}

// Learn records the result of a take, a strike or a pause that was sent at the time sent: a firm
// denial, and the lease that a take requested. owner is the hash of the name of the member that
// was asked.
func (k *Asker) Learn(a *wire.Ask, r *wire.Result, owner uint64, sent countsync.Time) {
	k.pushbacks.learn(a, r, sent)
	k.LearnLease(a, r, owner, sent)
}

// LearnLease records the lease in the result of an ask, if the ask requested a lease.
func (k *Asker) LearnLease(a *wire.Ask, r *wire.Result, owner uint64, sent countsync.Time) {
	if a.Take.Want.Units > 0 {
		k.leases.learn(a, r, owner, sent, k.env.Time())
	}
}

// End forgets the denials of an ID, because units were refunded.
func (k *Asker) End(id bucket.ID) { k.pushbacks.end(id, k.env.Monotonic()) }

// Reset forgets the leases and denials of an ID from before the reset with the given number.
func (k *Asker) Reset(id bucket.ID, number uint64) {
	k.leases.end(id, number)
	k.pushbacks.reset(id, number)
}

// Cease makes Run return all leases. From then on, no leases are requested or accepted.
func (k *Asker) Cease() { k.leases.stop() }

// HeldUnits returns the number of units that are left in unexpired leases.
func (k *Asker) HeldUnits(t countsync.Time) int { return k.leases.heldUnits(t) }

// SentAt returns the time at which a take was sent, by both clocks. The argument steady is the monotonic time.
func (k *Asker) SentAt(steady int64) countsync.Time {
	t := k.env.Time()
	return countsync.Time{Now: t.Now - (t.Monotonic - steady), Monotonic: steady}
}

// Want adds a request for a lease to a take that will be sent to the owner, if the key of the take
// is hot. If the take ends a lease, Want returns the unspent units of this lease to the owner.
func (k *Asker) Want(v *view.View, a *wire.Ask, t countsync.Time) {
	if !a.Leases || k.leases.stops.Load() {
		return
	}
	if rest, ended := k.leases.addWant(a, k.heat.recordAsk(a.ID, t.Monotonic), t, k.timeout); ended {
		k.giveBack(v, rest)
	}
}

// Refund reports whether the units of a refund were returned to a lease of this node, so that the
// owner need not be asked.
func (k *Asker) Refund(a *wire.Ask) bool {
	done, rest, ended := k.leases.refund(a, k.env.Time())
	if ended {
		k.giveBack(k.env.View(), rest)
	}
	return done
}

// Run renews leases and returns their unspent units until the node closes.
func (k *Asker) Run() {
	l := &k.leases
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	var (
		renew   []wire.Ask
		errands []leaseErrand
	)
	sweep := func(sets *bitmap) (lives bool) {
		t, wait := k.env.Time(), k.timeout
		renew = renew[:0]
		sets.forEach(func(set int) {
			l.urgent.clear(set)
			var more bool
			renew, more = l.sweep(set, t, wait, renew)
			lives = lives || more
		})
		v := k.env.View()
		errands = l.takeReturns(errands[:0])
		k.errandsTo(errands, func(errands []leaseErrand) { k.giveBack(v, errands...) })
		errands = errands[:0]
		for i := range renew {
			if way := v.Route(renew[i].ID, t.Monotonic); way.Way == view.Direct {
				errands = append(errands, leaseErrand{v.Hashes[way.To], renew[i]})
			}
		}
		k.errandsTo(errands, func(errands []leaseErrand) { k.renew(v, slices.Clone(errands), t) })
		return lives
	}
	for {
		select {
		case <-l.wake:
			if !l.awake.Swap(true) {
				tick.Reset(sweepEvery + k.env.View().Offset(sweepEvery))
			}
			sweep(&l.urgent)
		case <-tick.C:
			if !sweep(&l.live) {
				l.awake.Store(false)
				l.live.forEach(func(int) { env.Signal(l.wake) }) // sets that were added since the sweep
				continue
			}
			tick.Reset(sweepEvery)
		case <-k.env.Done():
			return
		}
	}
}

// errandsTo calls f with the errands for each owner, at most wire.MaxAsks in a call.
func (k *Asker) errandsTo(errands []leaseErrand, f func([]leaseErrand)) {
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

// giveBack reports the unspent units of leases to their owner. If the owner is not in the
// view, has stalled or is disconnected, giveBack refunds the units instead, at the member
// that answers for the count now. If a message is lost, the units remain spent, because they
// could be returned twice if the report were repeated.
func (k *Asker) giveBack(v *view.View, errands ...leaseErrand) {
	to, known := v.Named[errands[0].owner]
	if !known || v.Stalls(to) || !v.Direct[to] {
		for i := range errands {
			if a := &errands[i].ask; a.Units > 0 {
				k.checks.Send(wire.OpRefund, a)
			}
		}
		return
	}
	x := k.requests.Get().(*request)
	defer k.requests.Put(x)
	x.bytes = wire.Header{Op: wire.OpReturn, Flags: 0, Hops: wire.MaxHops, Asks: uint8(len(errands)), Wait: 0, To: errands[0].owner}.Append(x.bytes[:0])
	for i := range errands {
		x.bytes = errands[i].ask.Append(x.bytes)
	}
	v.Members[to].Peer.Send(x.bytes)
}

// renew asks an owner for leases that replace other leases. If the owner refuses, or the response
// is lost, a later sweep or check of the key asks again.
func (k *Asker) renew(v *view.View, errands []leaseErrand, sent countsync.Time) {
	owner, wait := errands[0].owner, k.timeout*3/4
	k.env.Try(func(ctx context.Context) {
		x := k.requests.Get().(*request)
		defer k.requests.Put(x)
		x.bytes = wire.Header{Op: wire.OpLend, Flags: 0, Hops: wire.MaxHops, Asks: uint8(len(errands)), Wait: wait, To: owner}.Append(x.bytes[:0])
		for i := range errands {
			x.bytes = errands[i].ask.Append(x.bytes)
		}
		answer, err := v.Members[v.Named[owner]].Peer.Ask(ctx, x.bytes, x.answer, wait)
		if err != nil {
			return
		}
		x.answer = answer
		if s, err := wire.ParseResponse(answer, wire.OpLend, len(errands)); err != nil || s != wire.Done {
			return
		}
		t := k.env.Time()
		for i := range errands {
			r := wire.ParseResult(answer, wire.OpLend, i)
			k.leases.learn(&errands[i].ask, &r, owner, sent, t)
		}
	})
}

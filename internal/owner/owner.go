package owner

import (
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Owner executes operations on the counts of this node: as their owner, as a stand-in, or for this
// node alone (view.Standing). It has the store, the lent units, the tentative takes and the waiting
// nodes.
//
// Under the lock of a set in lent, each loan, each return, and each refund or debit with a reset
// number happens entirely before or entirely after a reset. So no unit from before a reset is
// returned to the count after it. An operation holds the lock of one set at a time.
type Owner struct {
	clock     env.Clock
	longest   time.Duration // longest time of a check, within which a tentative take is concluded
	counts    *bucket.Store
	stream    *countsync.Stream
	holdings  *countsync.Holdings // parts of Global limits; nil if there are no other regions
	lent      lent
	tentative tentative
	queues    queues
	batches   sync.Pool // has values of *batch
	compacts  compaction
	bans      sync.Mutex // held while a ban begins
}

// New returns the Owner of counts. The given stream must reset and replicate these counts. The argument
// longest is the longest time of a check on any node, with its extension.
func New(clock env.Clock, longest time.Duration, counts *bucket.Store, stream *countsync.Stream, holdings *countsync.Holdings) *Owner {
	o := &Owner{clock: clock, longest: longest, counts: counts, stream: stream, holdings: holdings}
	o.batches.New = func() any { return new(batch) }
	return o
}

// Do executes op on a count of this node, within the share that this node has. If FailClosed leaves
// this node no share, takes, peeks and waits are denied. Debits and refunds are executed
// even if the share is zero, because the service has already spent or returned their units.
func (o *Owner) Do(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	r.StoodIn, r.At = as != view.AsOwner, now
	switch {
	case (a.BansKeys || a.Pauses) && o.applyBan(v, as, op, a, now, r):
		return
	case a.AtMost && op == wire.OpTake:
		o.takeAtMost(v, as, a, now, r)
		return
	}
	if as == view.AsOwner && v.Complete {
		o.applyWhole(op, a, now, r)
		r.Source = wire.Owner
		return
	}
	a.Take.Want = wire.Want{}
	s, source := v.Share(as, a.ID, a.Partition)
	r.Source = source
	switch {
	case s.All:
		o.applyWhole(op, a, now, r)
	case source == wire.FailedClosed && (op == wire.OpTake || op == wire.OpPeek || op == wire.OpWait):
		r.Result = bucket.Result{RetryAfter: view.OutageRetry, ResetAfter: view.OutageRetry}
	default:
		part := s.Limit(o.regionLimit(a, now))
		if (op == wire.OpDebit || op == wire.OpRefund) && part.Capacity() == 0 {
			part = *a.Limit
		}
		o.apply(op, a, &part, now, r)
		r.RetryAfter = v.RetryAfter(as, source, r.RetryAfter)
		if op == wire.OpDebit && source == wire.FailedClosed {
			r.Allowed, r.RetryAfter, r.ResetAfter = false, view.OutageRetry, max(r.ResetAfter, view.OutageRetry)
		}
	}
}

// takeAtMost takes as many units as there is room for, but at most the units of the ask. A denied take returns
// the number of remaining units, and the next take requests them. If another caller takes some in between, that
// take is denied, too. Each take requests fewer units, and the last take requests one: if takeAtMost denies, r is
// the denial of one unit. A single operation of the store would have to be written four times instead: for
// leases, parts of Global limits, shares and queues.
func (o *Owner) takeAtMost(v *view.View, as view.Standing, a *wire.Ask, now int64, r *wire.Result) {
	part := *a
	part.AtMost = false
	for {
		o.Do(v, as, wire.OpTake, &part, now, r)
		switch {
		case r.Allowed && part.Units < a.Units:
			r.Granted, r.Remaining = part.Units, 0
			return
		case r.Allowed || part.Units <= 1:
			return
		case r.Remaining < part.Units:
			part.Units = max(1, r.Remaining)
		default: // the remaining units are for callers that wait
			part.Units = 1
		}
	}
}

// applyWhole executes op within the whole part of the limit that this region has.
func (o *Owner) applyWhole(op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	if a.Global && o.holdings != nil {
		o.applyGlobal(op, a, now, r)
		return
	}
	o.apply(op, a, a.Limit, now, r)
}

// regionLimit returns the part of the limit of an ask that this region has.
func (o *Owner) regionLimit(a *wire.Ask, now int64) *bucket.Limit {
	if !a.Global || o.holdings == nil {
		return a.Limit
	}
	held := o.holdings.Limit(a.ID, a.Limit, o.clock.TimeAt(now))
	return &held
}

// apply executes op on a count of this node, within the limit l.
func (o *Owner) apply(op wire.Op, a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	if op == wire.OpTake || op == wire.OpPeek {
		if waiting := o.unitsAhead(a, l, now); waiting > 0 {
			r.Result = o.counts.Peek(a.ID, l, now, a.Units)
			denyBehind(waiting, l, &r.Result)
			return
		}
	}
	switch op {
	case wire.OpWait:
		o.applyWait(a, l, now, r)
	case wire.OpTake:
		if a.Take.Want.Units > 0 {
			o.takeLending(a, l, now, r)
		} else {
			o.counts.TakeInto(a.ID, l, now, a.Units, &r.Result)
		}
		r.Age = time.Duration(now - int64(r.Receipt))
		o.capRetryAfter(a.ID, &r.Result, now)
	case wire.OpDebit:
		o.debit(a, l, now, r)
	case wire.OpPeek:
		r.Result = o.counts.Peek(a.ID, l, now, a.Units)
		o.capRetryAfter(a.ID, &r.Result, now)
	case wire.OpRefund:
		o.refund(a, l, now)
	case wire.OpReset:
		o.stream.ResetTo(a.ID, a.Reset, 0, now)
	}
}

// applyGlobal executes op within the part of a Global limit that this region has.
func (o *Owner) applyGlobal(op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	t := o.clock.TimeAt(now)
	if op == wire.OpTake && o.unitsAhead(a, a.Limit, now) > 0 {
		op = wire.OpPeek // so that apply denies the take
	}
	switch op {
	case wire.OpTake:
		if a.Take.Want.Units > 0 {
			o.takeLending(a, nil, now, r)
		} else {
			o.holdings.TakeUnits(a.ID, a.Limit, t, a.Units, &r.Result)
		}
		r.Age = time.Duration(now - int64(r.Receipt))
		o.capRetryAfter(a.ID, &r.Result, now)
	case wire.OpWait:
		held := o.holdings.Limit(a.ID, a.Limit, t)
		o.applyWait(a, &held, now, r)
	case wire.OpDebit:
		if a.Spent.Receipt == 0 {
			r.Result = o.holdings.Debit(a.ID, a.Limit, t, a.Units)
			return
		}
		held := o.holdings.Limit(a.ID, a.Limit, t)
		o.debit(a, &held, now, r)
	case wire.OpPeek:
		held := o.holdings.Limit(a.ID, a.Limit, t)
		o.apply(op, a, &held, now, r)
		used, _, _ := o.counts.Used(a.ID, now)
		r.Remaining = max(0, a.Limit.Usable()-used-o.holdings.SpentElsewhere(a.ID, now))
	case wire.OpRefund:
		held := o.holdings.Limit(a.ID, a.Limit, t)
		o.apply(op, a, &held, now, r)
	case wire.OpReset:
		o.apply(op, a, a.Limit, now, r)
	}
}

// refund refunds the units of a receipt. If a node granted the units without authority, the count of another
// member may have arrived since, and its windows or log entries begin at other times. Such units are refunded
// from the newest units, as long as they count. Units that were granted before a reset are no longer part of the
// count, and are not refunded.
func (o *Owner) refund(a *wire.Ask, l *bucket.Limit, now int64) {
	lent := o.lent.leaseOf(a.ID, o.clock.MonotonicAt(now))
	lock, wasReset := o.resetSince(a, now)
	if lock != nil {
		defer lock.mu.Unlock()
	}
	if wasReset {
		return
	}
	var gave bool
	if a.Spent.Age != 0 {
		gave = o.counts.RefundSpent(a.ID, l, now, a.Units, spentAt(a, now), lent)
	} else {
		gave = o.counts.RefundBeside(a.ID, l, now, a.Units, a.Spent.Receipt, a.Spent.OnlyLast, lent)
	}
	if !gave && amongNewest(a, l, now) {
		o.counts.Refund(a.ID, l, now, a.Units, 0, false)
	}
}

// debit spends units even if there is no room for them. It spends them at the time of the receipt's units,
// or at the time now if there is no receipt or the limit is a bucket. If the receipt's units no longer
// count, debit spends no units, and the result is not Allowed. Like refund, debit treats units that were
// granted without authority as part of the newest units.
func (o *Owner) debit(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	if a.Spent.Receipt == 0 {
		r.Result = o.counts.Debit(a.ID, l, now, a.Units)
		return
	}
	lock, wasReset := o.resetSince(a, now)
	if lock != nil {
		defer lock.mu.Unlock()
	}
	if wasReset {
		r.Result = o.counts.Peek(a.ID, l, now, a.Units)
		r.Allowed = false
		return
	}
	r.Result = o.counts.DebitSpent(a.ID, l, now, a.Units, spentAt(a, now))
	if r.Receipt == 0 && amongNewest(a, l, now) {
		r.Result = o.counts.Debit(a.ID, l, now, a.Units)
	}
}

// resetSince reports whether the count was reset after the receipt of an ask was given. It returns
// the set of the ID with its lock held: the caller must unlock it, and the count is not reset
// before that. lock is nil if the ask has no reset number.
func (o *Owner) resetSince(a *wire.Ask, now int64) (lock *lentSet, wasReset bool) {
	if a.Spent.ResetNumber == 0 {
		return nil, false
	}
	lock = o.lent.lock(a.ID)
	return lock, a.Spent.ResetNumber < o.ResetNumber(a.ID, now)
}

// spentAt identifies the units of the receipt of an ask at the time now. A receipt that a node gave without
// authority depends on the share of that node, and a receipt of a Global limit on the units of the region. The
// ask contains neither of them, so the field By is nil for such receipts.
func spentAt(a *wire.Ask, now int64) bucket.Spent {
	at := bucket.Spent{Receipt: a.Spent.Receipt}
	if a.Spent.Age != 0 {
		at.Near = now - int64(a.Spent.Age)
	}
	if !a.Spent.StoodIn && !a.Global {
		at.By = a.Limit
	}
	return at
}

// amongNewest reports whether the units of a receipt are part of the newest units of a count
// that has no units under this receipt.
func amongNewest(a *wire.Ask, l *bucket.Limit, now int64) bool {
	age := now - int64(a.Spent.Receipt)
	if a.Spent.Age != 0 {
		age = int64(a.Spent.Age)
	}
	return a.Spent.StoodIn && !l.IsBucket() && uint64(age) < uint64(l.Per)
}

// Answer executes a request with asks on this node, and appends the response to dst. The error is
// wire.ErrMalformed.
func (o *Owner) Answer(v *view.View, h wire.Header, request, dst []byte, now int64) ([]byte, error) {
	steady, tentative := o.clock.MonotonicAt(now), h.Flags&wire.FlagTentative != 0
	if h.Op == wire.OpTake && h.Asks > 1 {
		return o.answerTogether(v, h, request, dst, now)
	}
	dst = wire.AppendResponse(dst, wire.Done, int(h.Asks))
	for i := range int(h.Asks) {
		var (
			limit bucket.Limit
			r     wire.Result
		)
		a, err := wire.ParseAsk(request, i, &limit)
		if err != nil {
			return nil, err
		}
		if tentative && h.Op == wire.OpTake {
			o.tentative.begin(a.ID, steady, o.longest)
		}
		r.ResetNumber = o.ResetNumber(a.ID, now)
		switch h.Op {
		case wire.OpLend:
			a.Units = 0
			o.Do(v, v.Standing(a.ID), wire.OpTake, &a, now, &r)
		case wire.OpReturn:
			o.Reclaim(v, &a, now)
		default:
			o.Do(v, v.Standing(a.ID), h.Op, &a, now, &r)
		}
		if tentative && (h.Op == wire.OpRefund || !r.Allowed) {
			o.tentative.conclude(a.ID)
		}
		r.Firm = r.Banned || h.Op == wire.OpTake && o.Firm(&a, &r, steady)
		dst = r.Append(h.Op, dst)
	}
	return dst, nil
}

// NoReset is the reset number of a count without a known reset.
const NoReset = 1

// ResetNumber returns the number of the last reset of a count that this node knows of, or NoReset.
// The results of takes, debits, waits, loans, strikes and pauses that this node sends contain this
// number.
func (o *Owner) ResetNumber(id bucket.ID, now int64) uint64 {
	return max(NoReset, o.stream.ResetNumber(id, now))
}

// Firm reports whether a denial of a take remains valid until its RetryAfter, unless a caller refunds units
// or resets the count, or a higher Version judges it. now is the monotonic time. The denial must be made
// with authority, for the whole limit. There must be no open tentative take and no lease whose units could
// be returned earlier, and no waiter that could leave. A denial of a Global limit is not firm if there are
// other regions, because these send the missing units when they learn of the asks on this node.
func (o *Owner) Firm(a *wire.Ask, r *wire.Result, now int64) bool {
	return !r.Allowed && r.Source == wire.Owner && !(a.Global && o.holdings != nil) && o.tentative.isEmpty(a.ID, now, o.longest) &&
		o.lent.leaseOf(a.ID, now).Units == 0 && (a.Limit.Algorithm != bucket.LeakyBucket || o.queues.waitingUnits(a.ID, now) == 0)
}

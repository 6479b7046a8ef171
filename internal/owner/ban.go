package owner

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// A key of a limit with bans or pauses has up to four more counts, which replicas, transfers, snapshots and
// evictions treat like any other count. Their IDs have the Hi of the ID of the key, so that they are in
// the same range and have the same owner, and none of them is sent to another region.
//
//   - strikes: a SlidingLog of denials, which are units of the Limit of OpStrike. A ban does not refund them,
//     because a refund of units that other members have counted may be lost as authority moves.
//   - ban: a timer.
//   - earlier: a SlidingLog of the bans that make the next ban longer. The bans of both sides of a split count
//     as the same bans (MaxOfCopies).
//   - pause: a timer.
//
// A key is banned or paused until a timer ends, whatever share of the limit this node may spend. So each side
// that has the timer denies. A side without the whole limit bans no key (strike).
const (
	strikesMask = 0x5bd1e995a3c59ac3
	banMask     = 0x9ddfea08eb382d69
	earlierMask = 0xc2b2ae3d27d4eb4f
	pauseMask   = 0xa0761d6478bd642f
)

func strikesID(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: id.Lo ^ strikesMask} }
func banID(id bucket.ID) bucket.ID     { return bucket.ID{Hi: id.Hi, Lo: id.Lo ^ banMask} }
func earlierID(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: id.Lo ^ earlierMask} }

func pauseID(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: id.Lo ^ pauseMask} }

// CountIDs returns the IDs of all counts of the key of an ask: the counts that the key may have because
// of pauses and bans, and then the count of the key itself. A reset must delete them in this order. Then a denial
// by a ban that is not deleted yet has the earlier reset number of the key, so the reset of the key also ends
// cached copies of this denial.
func CountIDs(a *wire.Ask) (ids []bucket.ID) {
	if a.Pauses {
		ids = append(ids, pauseID(a.ID))
	}
	if a.BansKeys {
		ids = append(ids, strikesID(a.ID), earlierID(a.ID), banID(a.ID))
	}
	return append(ids, a.ID)
}

// These are the limits of bans and pauses. With a shorter unit for bans, the totals of a store would often
// begin a new series.
var (
	banTimer   = bucket.TimerLimit(wire.LongestBan, 100*time.Millisecond)
	pauseTimer = bucket.TimerLimit(wire.LongestPause, time.Millisecond)
)

// If a limit has several lengths of bans, a ban makes the next ban longer for leastMemory, or for twice the
// longest ban if that is more, but at most for wire.LongestBan.
const leastMemory = 24 * time.Hour

// banStep returns the length of the next ban of a key that was banned before the given number of times.
func banStep(lengths *wire.Ban, before int64) (step time.Duration) {
	for i, length := range lengths {
		if length > 0 && int64(i) <= before {
			step = length
		}
	}
	return step
}

// denyBanned reports whether the key of an ask is banned or paused, and if so denies the ask until the
// later end of both.
func (o *Owner) denyBanned(a *wire.Ask, now int64, r *wire.Result) bool {
	var left, paused time.Duration
	if a.BansKeys {
		left = o.counts.RecoversIn(banID(a.ID), now)
	}
	if a.Pauses {
		paused = o.counts.RecoversIn(pauseID(a.ID), now)
	}
	r.Paused = paused > left
	if left = max(left, paused); left <= 0 {
		return false
	}
	r.Result = bucket.Result{Limit: a.Limit.Usable(), RetryAfter: left, ResetAfter: left}
	r.Banned, r.Firm = true, true
	return true
}

// applyBan executes a strike or a pause, and denies a take, a peek or a wait of a banned or paused key. It
// returns false if it did neither, so that the count of the key decides.
func (o *Owner) applyBan(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64, r *wire.Result) bool {
	switch {
	case op == wire.OpStrike:
		o.strike(v, as, a, now, r)
		return true
	case op == wire.OpPause:
		o.counts.Debit(pauseID(a.ID), &pauseTimer, now, min(a.Units, pauseTimer.Whole))
		o.denyBanned(a, now, r)
	case (op == wire.OpTake || op == wire.OpPeek || op == wire.OpWait) && o.denyBanned(a, now, r):
		if op == wire.OpWait {
			o.keepPlace(a, now, r)
		}
	default:
		return false
	}
	_, r.Source = v.Share(as, a.ID, a.Partition)
	return true
}

// strike counts a denial, and bans the key if no further denial fits into the limit of denials. The
// result is Banned if the key is banned or paused afterwards. A node that may spend only a share of a
// limit counts and bans nothing, and its result is not Banned, because the outage is a cause of its denials.
func (o *Owner) strike(v *view.View, as view.Standing, a *wire.Ask, now int64, r *wire.Result) {
	var s view.Share
	if s, r.Source = v.Share(as, a.ID, a.Partition); !s.All || o.denyBanned(a, now, r) {
		return
	}
	denials := o.counts.Take(strikesID(a.ID), a.Limit, now, 1)
	if denials.Allowed && denials.Remaining > 0 {
		return
	}
	// A concurrent strike may have begun the ban. This strike must not extend that ban to the length of the next.
	o.bans.Lock()
	defer o.bans.Unlock()
	if o.denyBanned(a, now, r) {
		return
	}
	earlier := &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: wire.BanSteps, Per: leastMemory, Version: a.Limit.Version, Durable: true, MaxOfCopies: true}
	for _, length := range a.Ban {
		earlier.Per = min(max(earlier.Per, 2*length), wire.LongestBan)
	}
	before, _, _ := o.counts.Used(earlierID(a.ID), now)
	o.counts.Debit(banID(a.ID), &banTimer, now, int64(banStep(&a.Ban, before)/banTimer.Per))
	if !o.denyBanned(a, now, r) {
		return // a member of another release has sent no length
	}
	if r.Granted = 1; a.Ban[1] > 0 {
		o.counts.Debit(earlierID(a.ID), earlier, now, 1)
	}
}

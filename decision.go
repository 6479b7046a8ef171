package weir

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/wire"
)

// Decision is the result of a check. The zero Decision is a denial.
//
// ResetAfter is the time until Limit units are available at once, without further checks. One nanosecond
// earlier, they are not. ResetAfter is zero if no unit is used. After this time the units of a SlidingWindow have
// slid out, the newest entry of a SlidingLog has expired, the FixedWindow has ended (after a debt, the next
// window), the TokenBucket is full, or the queue of the LeakyBucket is empty. A refund in the meantime shortens
// this time. For an InFlight limit and for FailedClosed, the time is not known, and ResetAfter equals RetryAfter.
// For a Global limit, ResetAfter is the time until all units that this region has spent are available. On a
// denial ResetAfter is never below RetryAfter.
//
// A Pushback repeats a denial that the owner made within the last second, or within the last ten seconds if
// the key is banned or paused. RetryAfter and ResetAfter are reduced by the age of the denial. Remaining may
// be too high, and ResetAfter too low, because other checks were admitted in the meantime. A check for fewer
// units than were denied is sent to the owner, and may be admitted, unless the key is banned or paused.
//
// The Remaining of a Leased decision is the rest of the lease plus the units that the owner had
// left when it lent the units. ResetAfter counts the lent units as spent. Other nodes may have spent
// the owner's units in the meantime.
type Decision struct {
	Allowed    bool
	Limit      int64         // units that the limit grants to this kind of check (Rate, or Burst for the buckets, less Keep unless the check is critical), or the share of this node or side
	Remaining  int64         // number of whole units that remain for this kind of check, at least zero
	RetryAfter time.Duration // zero if allowed; otherwise the time until the same ask could be admitted at the earliest. For a Debit, the time until a unit is available. A Pushback for more units than the owner denied may have a shorter time
	ResetAfter time.Duration // time until Limit units are available if there are no further checks, see above
	Name       string        // name of the limit
	Source     Source
	Shadow     bool // whether the decision is not enforced: of an Ask with Shadow, or of Limiter.Shadow
	Banned     bool // whether the key is banned (Limit.Ban), until RetryAfter
	Paused     bool // whether the key is paused (Limiter.Pause), until RetryAfter
}

// Source is the kind of node that made a decision, and the reason.
type Source uint8

const (
	Owner        Source = iota + 1 // this node, which has authority over the key
	Forwarded                      // the owner, reached directly
	Relayed                        // the owner, reached through a third member
	StandIn                        // the first reachable successor of the owner, because the owner is not reachable or has not answered in time
	Budget                         // a decision within a share, because a member is missing, the roster is below Config.Expect, or no member has answered in time
	FailedOpen                     // a decision within the whole limit: the limit is FailOpen, and one of the reasons for Budget applies
	FailedClosed                   // a denial: the limit is FailClosed, and one of the reasons for Budget applies
	Pushback                       // this node, before a RetryAfter has passed: the owner denied as many units or fewer within the last second, or found within the last ten seconds that the key is banned or paused; or Limiter.Pause was called here
	Leased                         // this node, from units that the owner has debited and lent to it for at most half a second
)

// Each Source has the same number as the wire.Source of that name in a response. This line
// compiles only while Leased, the last Source, is equal to wire.Leased.
var _ = [1]struct{}{}[Leased-Source(wire.Leased)]

// Decisions are the results of AllowAll, in the order of its asks.
type Decisions []Decision

// Allowed reports whether all asks except shadows were allowed, and their units were spent. Allowed
// returns true if ds is empty, because no limit has denied.
func (ds Decisions) Allowed() bool {
	for i := range ds {
		if !ds[i].Allowed && !ds[i].Shadow {
			return false
		}
	}
	return true
}

// Strictest returns the decision to report to a client. If there are denials, it is the denial
// with the longest RetryAfter. Otherwise it is the decision with the least Remaining, and of
// several such decisions the decision with the longest ResetAfter. Shadows are ignored. If ds has
// only shadows or is empty, the result is the zero Decision.
func (ds Decisions) Strictest() Decision {
	var s Decision
	first := true
	for _, d := range ds {
		if !d.Shadow && (first || d.stricterThan(s)) {
			s, first = d, false
		}
	}
	return s
}

func (d Decision) stricterThan(than Decision) bool {
	if d.Allowed != than.Allowed {
		return !d.Allowed
	}
	if !d.Allowed {
		return d.RetryAfter > than.RetryAfter
	}
	return cmp.Or(cmp.Compare(than.Remaining, d.Remaining), cmp.Compare(d.ResetAfter, than.ResetAfter)) > 0
}

var sourceNames = enum.Table[Source]{What: "source", Names: []string{"none", "owner", "forwarded", "relayed", "stand_in", "budget", "failed_open", "failed_closed", "pushback", "leased"}}

// String returns the name in metrics and in the admin API, like "stand_in". The name is "none" for the
// zero Source, and "unknown" for an unknown Source.
func (s Source) String() string {
	if s <= Leased {
		return sourceNames.String(s)
	}
	return "unknown"
}

package weir

import (
	"time"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/wire"
)

// Decision is the answer to a check. The zero Decision is a denial.
//
// ResetAfter is zero if nothing is used. Else it is how long until the limit grants
// everything to a caller that asks steadily, at its rate: until the window ends, the log's
// newest entry has expired, or the bucket is full again (or the queue of a LeakyBucket
// empty). Where a window or log has nothing left, it is no later than when a unit is
// there again. On a denial it is never below RetryAfter.
//
// A Pushback has what the owner said within the last second, with RetryAfter and
// ResetAfter as far as they are left. Less may remain by now, and be there later, as
// others were admitted meanwhile; fewer units than were denied may still be admitted, and
// are asked for at the owner.
//
// A Leased one has as Remaining what is left of the lease and what the owner had left
// when it lent that, which others may have spent by now.
type Decision struct {
	Allowed    bool
	Limit      int64         // what the limit grants (Rate, or Burst for the buckets), or this node's or side's share of it
	Remaining  int64         // whole units left now, never below zero
	RetryAfter time.Duration // zero if allowed; else the soonest that the same ask could be admitted, of a Debit that one unit could be, or of a Pushback for more units than were denied no later than that
	ResetAfter time.Duration // until the whole limit is there again if nothing more is asked, see below
	Name       string        // of the limit
	Source     Source
	Shadow     bool // of an Ask with Shadow, or of Limiter.Shadow: what would have been
}

// Source says where a decision was made.
type Source uint8

const (
	Owner        Source = iota + 1 // here: this node owns the key
	Forwarded                      // by the owner, asked directly
	Relayed                        // by the owner, asked through another member
	StandIn                        // by the first successor that is reached: the owner is not, or has not answered in time
	Budget                         // within a share: a member is missing from this side, the roster is below Config.Expect, or nobody has answered in time
	FailedOpen                     // within the whole limit, for the same reasons: the limit is FailOpen
	FailedClosed                   // a denial, for the same reasons: the limit is FailClosed
	Pushback                       // here: the owner has denied as much within the last second, and its RetryAfter is not over
	Leased                         // here: of units that the owner has lent to this node for half a second at most, and has debited
)

// isShare reports whether a decision was made within a share, or as the limit's
// PartitionPolicy says.
func (s Source) isShare() bool { return s >= Budget && s <= FailedClosed }

// A Source has the number of the source in a response. This line compiles only while the last
// numbers are equal.
var _ = [1]struct{}{}[Leased-Source(wire.Leased)]

// Decisions are the answers of AllowAll, in the order of its asks.
type Decisions []Decision

// Allowed reports whether all were allowed, shadows left aside, and units spent. Of no
// decisions it is true: nothing was asked and nothing denied.
func (ds Decisions) Allowed() bool {
	for i := range ds {
		if !ds[i].Allowed && !ds[i].Shadow {
			return false
		}
	}
	return true
}

// Strictest is the decision to tell a client about: the denial with the longest
// RetryAfter, or, when all were allowed, the one with the least Remaining, of several the one
// with the longest ResetAfter. It is the zero Decision if there are none but shadows.
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
	if d.Remaining != than.Remaining {
		return d.Remaining < than.Remaining
	}
	return d.ResetAfter > than.ResetAfter
}

var sourceNames = enum.Table[Source]{What: "source", Names: []string{"none", "owner", "forwarded", "relayed", "stand_in", "budget", "failed_open", "failed_closed", "pushback", "leased"}}

// String returns the name that metrics and the admin API have, like "stand_in"; that
// of the zero Source is "none", and that of an unknown one "unknown".
func (s Source) String() string {
	if s <= Leased {
		return sourceNames.String(s)
	}
	return "unknown"
}

package asker

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// newPushbacks returns the pushbacks of a node that has sent a take.
func newPushbacks() *pushbacks {
	p := &pushbacks{number: neverReset}
	p.sets.Store(new([pushbackSets]pushbackSet))
	return p
}

func instant(at int64) countsync.Time { return countsync.Time{Now: at, Monotonic: at} }

// denial returns the result of a take that is denied for the given time.
func denial(retry time.Duration) *wire.Result {
	return &wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: retry, ResetAfter: 2 * retry}, Source: wire.Forwarded, Firm: true, ResetNumber: owner.NoReset}
}

func someAsk(units int64) *wire.Ask {
	return &wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &bucket.Limit{Rate: 100, Per: time.Minute}, Units: units, Leases: true}
}

// resets contains what an owner and a node know of the resets of a count, and whether the
// result of the owner is valid for the node.
var resets = map[string]struct {
	owner       uint64 // number of the last reset in the result of the owner
	before, now uint64 // number of the last reset that the node knows of when the result arrives, and later
	valid       bool
	back        int // number of leases that the node returns at once
}{
	"no reset":                                 {owner.NoReset, owner.NoReset, owner.NoReset, true, 0},
	"later reset that both know of":            {owner.NoReset, owner.NoReset, 7, false, 0},
	"reset that the owner does not know of":    {owner.NoReset, 7, 7, false, 1},
	"owner that knows of an earlier reset":     {6, 7, 7, false, 1},
	"result after the reset":                   {7, 7, 7, true, 0},
	"owner that knows of the reset first":      {7, owner.NoReset, 7, true, 0},
	"owner that knows of the next reset first": {8, 7, 8, true, 0},
	"result before a later reset":              {8, 7, 9, false, 0},
}

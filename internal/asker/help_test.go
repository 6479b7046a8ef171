package asker

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// remembering is pushbacks that a take has left the node of.
func remembering() *pushbacks {
	p := &pushbacks{number: neverReset}
	p.sets.Store(new([pushbackSets]pushbackSet))
	return p
}

func instant(at int64) countsync.Time { return countsync.Time{Now: at, Steady: at} }

// denial is the answer to a take, a second before the same ask is admitted or another
// time.
func denial(retry time.Duration) *wire.Result {
	return &wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: retry, ResetAfter: 2 * retry}, Source: wire.Forwarded, Firm: true, ResetNumber: owner.NoReset}
}

func someAsk(units int64) *wire.Ask {
	return &wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &bucket.Limit{Rate: 100, Per: time.Minute}, Units: units, Leases: true}
}

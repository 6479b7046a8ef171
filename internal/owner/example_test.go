package owner_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// An owner decides on takes, lends units with a response, accepts the unspent units of the
// lease, and denies takes when no units are left.
func Example() {
	counts := bucket.NewStore(100, bucket.Salt{})
	now := int64(time.Hour)
	o := owner.New(env.OneClock(func() int64 { return now }), 100*time.Millisecond, counts, countsync.New(1, counts), nil)
	v := (&view.View{View: &cluster.View{Self: 0}, Complete: true}).ReceiveRanges(countsync.All())
	limit := &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 100, Per: time.Hour}
	take := func(units int64, want wire.Want) (r wire.Result) {
		a := wire.Ask{ID: bucket.ID{Hi: 1}, Limit: limit, Units: units, Take: wire.Take{Want: want}}
		o.Do(v, view.AsOwner, wire.OpTake, &a, now, &r)
		fmt.Println("allowed:", r.Allowed, "remaining:", r.Remaining, "lent:", r.Lease.Units, "firm:", o.Firm(&a, &r, now))
		return r
	}
	take(20, wire.Want{})
	lent := take(1, wire.Want{Units: 5, Term: 500})
	fmt.Println("lent units:", o.LentUnits(now))

	// 1 unit of the lease was spent, and 4 units are left.
	o.Reclaim(v, &wire.Ask{ID: bucket.ID{Hi: 1}, Limit: limit, Units: 4, Spent: wire.Spent{Receipt: lent.Receipt, ResetNumber: owner.NoReset}, Lent: wire.Lent{Units: 1, Until: lent.Lease.Until}}, now)
	take(78, wire.Want{})
	take(1, wire.Want{})
	// Output:
	// allowed: true remaining: 80 lent: 0 firm: false
	// allowed: true remaining: 74 lent: 5 firm: false
	// lent units: 5
	// allowed: true remaining: 0 lent: 0 firm: false
	// allowed: false remaining: 0 lent: 0 firm: true
}

package countsync_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	countsync "github.com/weir-go/weir/sync"
)

const owner, replica = countsync.Member(1), countsync.Member(2)

// view implements Roles for a node. The owner has authority over all ids, and the replica is
// their target.
type view struct{ self countsync.Member }

func (v view) Holds(bucket.ID) bool               { return v.self == owner }
func (v view) Holder(bucket.ID) countsync.Member  { return owner }
func (v view) Answers(bucket.ID) countsync.Member { return owner }
func (v view) Targets(dst []countsync.Member, _ bucket.ID) []countsync.Member {
	if v.self == owner {
		dst = append(dst, replica)
	}
	return dst
}

// The units that the owner's store has spent are sent to the replica in a frame, and
// acknowledged.
func ExampleStream() {
	now := int64(time.Hour)
	stores := make(map[countsync.Member]*bucket.Store)
	streams := make(map[countsync.Member]*countsync.Stream)
	for _, m := range []countsync.Member{owner, replica} {
		stores[m] = bucket.NewStore(1000, bucket.Salt{m, m})
		stores[m].Track(m, now, nil)
		streams[m] = countsync.New(m, stores[m])
		streams[m].Meet([]countsync.Member{owner, replica})
	}
	id, limit := bucket.ID{Hi: 1, Lo: 2}, &bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 10, Per: time.Minute}
	stores[owner].Take(id, limit, now, 3)

	for _, to := range streams[owner].Collect(now, false, view{owner}) {
		frame := streams[owner].Next(to, now, view{owner}, nil, 16<<10)
		answer, _, err := streams[to].Serve(now, frame, view{to}, nil)
		if err != nil {
			fmt.Println(err)
		}
		if _, err := streams[owner].Answered(to, now, answer, view{owner}); err != nil {
			fmt.Println(err)
		}
	}
	used, _, _ := stores[replica].Used(id, now)
	fmt.Println(used, streams[owner].Idle(replica))
	// Output:
	// 3 true
}

// If a region has spent its part of a limit, it requests more units from the other region.
func ExampleHoldings() {
	now := countsync.Time{Now: int64(time.Hour), Monotonic: int64(time.Hour)}
	limit := &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: time.Minute}
	id := bucket.ID{Hi: 1, Lo: 2}
	join := func(region, other string, self countsync.Member) *countsync.Holdings {
		regions := countsync.NewRegions(region, []string{other}, nil)
		return countsync.NewHoldings(regions, self, bucket.NewStore(1000, bucket.Salt{self, self}), now)
	}
	east, west := join("east", "west", 1), join("west", "east", 2)
	exchange := func(region string, of *countsync.Holdings, other string, with *countsync.Holdings) {
		due, _ := of.Due(now, func(bucket.ID) bool { return true })
		for _, statement := range due[other] {
			e := of.Exchange([]countsync.Statement{statement})
			if answer, ok := with.Serve(region, e.Print, &e.Statements[0], now); ok {
				of.Answered(other, e.Print, &answer, now)
			}
		}
	}
	meet := func() {
		exchange("east", east, "west", west)
		exchange("west", west, "east", east)
	}
	take := func(units int64) {
		var r bucket.Result
		east.TakeUnits(id, limit, now, units, &r)
		fmt.Println(r.Allowed, r.Remaining)
	}

	take(1) // the earlier units of the regions are not known yet
	meet()
	take(5)
	take(3)
	now.Now, now.Monotonic = now.Now+int64(time.Second), now.Monotonic+int64(time.Second)
	meet()
	take(3)
	// Output:
	// false 0
	// true 0
	// false 0
	// true 2
}

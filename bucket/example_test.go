package bucket_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
)

// An owner takes and refunds, and its changes are collected for a replica.
func ExampleStore() {
	limit := &bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 2, Per: time.Second}
	id := bucket.ID{Hi: 1, Lo: 2} // the hash of the limit's name and a key
	now := int64(time.Hour)

	owner := bucket.NewStore(1000, bucket.Salt{1, 2})
	owner.Track(7, now, nil) // 7 stands for this member

	first := owner.Take(id, limit, now, 1)
	fmt.Println(first.Allowed, first.Remaining)
	fmt.Println(owner.Take(id, limit, now, 2).RetryAfter)
	fmt.Println(owner.Refund(id, limit, now, 1, first.Receipt, false))
	fmt.Println(owner.Take(id, limit, now, 2).Allowed)

	_, changes := owner.Collect(0, 1000, false, nil)
	fmt.Println(len(changes), changes[0].Units)

	var count bucket.Count
	owner.Export(id, now, bucket.Mark{}, &count)
	replica := bucket.NewStore(1000, bucket.Salt{3, 4})
	replica.Import(id, &count, now, 0)
	fmt.Println(replica.Take(id, limit, now, 1).Allowed)
	fmt.Println(replica.Take(id, limit, now+int64(time.Second)/2, 1).Allowed)
	// Output:
	// true 1
	// 500ms
	// true
	// true
	// 1 2
	// false
	// true
}

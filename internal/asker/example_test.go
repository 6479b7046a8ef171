package asker_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// A node asks the owner for a key, requests a lease when the key is hot, and spends the
// lease. After a denial of the owner, the node denies without a request.
func Example() {
	now := int64(time.Hour)
	e := env.Env{Clock: env.OneClock(func() int64 { return now })}
	neverReset := func(bucket.ID, int64) uint64 { return owner.NoReset }
	var v view.View
	k := asker.New(&e, 100*time.Millisecond, neverReset, nil)
	limit := &bucket.Limit{Rate: 100, Per: time.Minute}
	at := func() countsync.Time { return countsync.Time{Now: now, Monotonic: now} }
	const ownersName = 7
	// check returns the result of the node, or else of the owner.
	check := func(owners wire.Result) (r wire.Result, wants bool) {
		a := wire.Ask{ID: bucket.ID{Hi: 1}, Limit: limit, Units: 1, Leases: true}
		if k.Answer(&a, at(), &r) {
			return r, false
		}
		k.Want(&v, &a, at())
		wants = a.Take.Want.Units > 0
		if wants && owners.Allowed {
			owners.Lease = wire.Lease{Units: 1, Term: 100, Until: 1}
		}
		k.Learn(&a, &owners, ownersName, at())
		return owners, wants
	}
	allowed := wire.Result{Result: bucket.Result{Allowed: true, Limit: 100, Remaining: 50}, Source: wire.Forwarded, ResetNumber: owner.NoReset}
	denied := wire.Result{Result: bucket.Result{Limit: 100, RetryAfter: 300 * time.Millisecond}, Source: wire.Forwarded, Firm: true, ResetNumber: owner.NoReset}

	asked := 1
	for _, wants := check(allowed); !wants; _, wants = check(allowed) {
		asked++
	}
	fmt.Println("asks until the key is hot:", asked)
	r, _ := check(allowed)
	fmt.Println("leased:", r.Source == wire.Leased, r.Allowed)
	r, _ = check(denied)
	fmt.Println("the lease is used up, the owner denies:", r.Source == wire.Forwarded, r.Allowed)
	r, _ = check(allowed)
	fmt.Println("pushback:", r.Source == wire.Pushback, r.Allowed, r.RetryAfter)
	now += int64(300 * time.Millisecond)
	r, _ = check(allowed)
	fmt.Println("then the owner is asked again:", r.Source == wire.Forwarded, r.Allowed)
	// Output:
	// asks until the key is hot: 6
	// leased: true true
	// the lease is used up, the owner denies: true false
	// pushback: true false 300ms
	// then the owner is asked again: true true
}

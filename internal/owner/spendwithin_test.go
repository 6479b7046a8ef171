package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// If a share is used up, and not all members on this side know yet which members are missing,
// RetryAfter is short: another member may answer long before this share has room.
func TestDenialByUnsettledShareAllowsEarlyRetry(t *testing.T) {
	n, _ := newOwner()
	a := wire.Ask{Limit: &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100, Per: time.Hour}, Units: 100, Partition: wire.FairShare}
	for kind, spend := range map[string]func(v *view.View, r *wire.Result){
		"a check": func(v *view.View, r *wire.Result) { n.Do(v, view.AsSelf, wire.OpTake, &a, n.clock.Now(), r) },
		"one of several checks": func(v *view.View, r *wire.Result) {
			results := make([]wire.Result, 1)
			n.TakeAll(v, view.AsSelf, []wire.Ask{a}, n.clock.Now(), new(Room), results)
			*r = results[0]
		},
	} {
		t.Run(kind, func(t *testing.T) {
			a.ID.Lo++
			n.counts.Debit(a.ID, a.Limit, n.clock.Now(), 100)
			var r wire.Result
			spend(sideOf(4, 0, 1, 2, 3), &r)
			require.False(t, r.Allowed)
			require.Equal(t, wire.Budget, r.Source)
			require.Equal(t, view.OutageRetry, r.RetryAfter)
			spend(sideOf(4, 0, 1, 2), &r)
			require.False(t, r.Allowed)
			require.Greater(t, r.RetryAfter, view.OutageRetry, "if a member is missing, a retry needs room in this share")
		})
	}
}

// sideOf returns the view of the first of the given number of members. This member is connected to
// the members in the argument heard, and was never connected to another member.
func sideOf(members int, heard ...int) *view.View {
	c := &cluster.View{Self: 0, Direct: make([]bool, members)}
	for i := range members {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving})
		c.Connected = append(c.Connected, nil)
	}
	for _, i := range heard {
		c.Direct[i] = true
		if i > 0 {
			c.Connected[0], c.Connected[i] = append(c.Connected[0], i), []int{0}
		}
	}
	return view.New(1, c, view.Terms{}, nil)
}

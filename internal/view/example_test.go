package view_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// newClusterView returns the view that node a has of a cluster of a, b and c. If c is alive, a and b are
// connected to it.
func newClusterView(lives bool) *cluster.View {
	v := &cluster.View{Self: 0, Direct: []bool{true, true, lives}, Connected: [][]int{{1, 2}, {0, 2}, {0, 1}}}
	if !lives {
		v.Connected = [][]int{{1}, {0}, nil}
	}
	for _, name := range []string{"a", "b", "c"} {
		v.Members = append(v.Members, cluster.Member{Name: name, State: cluster.Serving, Announced: cluster.Serving})
	}
	return v
}

// A node asks the owner of an id, and the first successor once it is not connected to the owner.
func Example() {
	terms := view.Terms{Replicas: 1}
	whole := view.New(0, newClusterView(true), terms, nil)
	id := bucket.ID{}
	for !slices.Equal(whole.Ring.Order(nil, id.Hi, 2), []int{2, 1}) { // the owner is c, and its successor is b
		id.Hi += 1<<40 + 1
	}
	print := func(v *view.View, now int64) {
		r := v.Route(id, now)
		fmt.Println("direct:", r.Way == view.Direct, "stand-in:", r.Way == view.StandIn, "to:", v.Members[r.To].Name)
	}
	print(whole, 0)

	now := int64(5 * time.Second)
	split := view.New(now, newClusterView(false), terms, whole)
	print(split, now)
	for _, policy := range []wire.Policy{wire.MajorityShare, wire.FairShare} {
		share, _ := split.Share(view.AsStandIn, id, policy)
		part := share.Limit(&bucket.Limit{Rate: 100, Per: time.Minute})
		fmt.Println("of 100 units this side may spend", part.Rate)
	}
	// Output:
	// direct: true stand-in: false to: c
	// direct: false stand-in: true to: b
	// of 100 units this side may spend 100
	// of 100 units this side may spend 66
}

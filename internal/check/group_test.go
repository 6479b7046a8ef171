package check

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// asksOf returns a view of three members that are all connected to each other. For each of the given owners, it
// also returns an ask for the given units of a count of that owner.
func asksOf(units int64, owners ...int) (*view.View, []wire.Ask) {
	c := &cluster.View{Connected: clustertest.Mesh(3)}
	for i := range 3 {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving})
		c.Direct = append(c.Direct, true)
	}
	v := view.New(1, c, view.Terms{}, nil)
	var asks []wire.Ask
	id := bucket.ID{}
	for _, owner := range owners {
		for id.Hi += 1 << 40; v.Owner(id) != owner; id.Hi += 1 << 40 {
		}
		asks = append(asks, wire.Ask{ID: id, Units: units})
	}
	return v, asks
}

func TestAsksOfOneOwnerAreOneGroup(t *testing.T) {
	v, asks := asksOf(1, 1, 2, 1, 2, 1)
	all := groupByRoute(v, asks, 0)
	require.Len(t, all, 2)
	require.Equal(t, 1, all[0].route.To)
	require.Equal(t, []wire.Ask{asks[0], asks[2], asks[4]}, all[0].asks)
	require.Equal(t, []wire.Ask{asks[1], asks[3]}, all[1].asks)
	require.Len(t, all[1].results, 2)
}

func TestTakesAreKeptByAllGroupsOrNone(t *testing.T) {
	type took struct {
		to    int // member
		units []int64
	}
	yes := func(remaining int64) wire.Result {
		return wire.Result{Result: bucket.Result{Allowed: true, Remaining: remaining, Receipt: 7}}
	}
	no := wire.Result{}
	failed := errors.New("canceled")
	for _, c := range []struct {
		about    string
		results  []wire.Result // results of asks for 5 units each at the members 1, 2 and 1
		shadow   bool          // whether the last ask is a shadow
		err      error         // error of the second group
		settled  []took
		remained []int64
	}{
		{"all groups are allowed, with room for more", []wire.Result{yes(9), yes(9), yes(9)}, false, nil, []took{{1, nil}, {2, nil}}, []int64{9, 9, 9}},
		{"all groups are allowed, and other checks may have been denied", []wire.Result{yes(9), yes(0), yes(4)}, false, nil, []took{{1, []int64{0}}, {2, []int64{0}}}, []int64{9, 0, 4}},
		{"one group is denied, and the other takes are refunded", []wire.Result{yes(3), no, yes(4)}, false, nil, []took{{1, []int64{5, 5}}}, []int64{8, 0, 9}},
		{"only a shadow is denied", []wire.Result{yes(9), yes(9), no}, true, nil, []took{{1, nil}, {2, nil}}, []int64{9, 9, 0}},
		{"a group with an error counts as denied", []wire.Result{yes(3), yes(3), yes(4)}, false, failed, []took{{1, []int64{5, 5}}}, []int64{8, 3, 9}},
	} {
		t.Run(c.about, func(t *testing.T) {
			v, asks := asksOf(5, 1, 2, 1)
			asks[2].Shadow = c.shadow
			all := groupByRoute(v, asks, 0)
			var settled []took
			for _, p := range all {
				for i, at := range p.indexes {
					p.results[i] = c.results[at]
				}
				p.settle = func(takes []wire.Ask) {
					var units []int64
					for _, a := range takes {
						require.EqualValues(t, 7, a.Spent.Receipt)
						units = append(units, a.Units)
					}
					settled = append(settled, took{p.route.To, units})
				}
			}
			all[1].err = c.err
			results := make([]wire.Result, len(asks))
			err := mergeResults(all, results)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.settled, settled)
			for i, remaining := range c.remained {
				require.Equal(t, remaining, results[i].Remaining)
			}
		})
	}
}

func TestOneGroupHasNothingToSettle(t *testing.T) {
	v, asks := asksOf(1, 2, 2)
	all := groupByRoute(v, asks, 0)
	all[0].results[0].Allowed = true // the group has no settle, so that a call would panic
	results := make([]wire.Result, 2)
	require.NoError(t, mergeResults(all, results))
	require.True(t, results[0].Allowed)
}

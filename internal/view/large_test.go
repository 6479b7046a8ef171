package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster"
)

// newLargeView returns a view of n serving members and the given number of joiners. The last
// `missing` serving members are not connected. Each member watches the four members before it and
// the four after it.
func newLargeView(n, joiners, missing int) *cluster.View {
	all := n + joiners
	c := &cluster.View{Connected: make([][]int, all), Direct: make([]bool, all)}
	for i := range all {
		m := cluster.Member{Name: fmt.Sprintf("node-%04d", i), State: cluster.Serving, Announced: cluster.Serving}
		if i >= n {
			m.State, m.Announced = cluster.Joining, cluster.Joining
		}
		c.Direct[i] = i < n-missing || i >= n
		for k := 1; k <= 4 && c.Direct[i]; k++ {
			for _, j := range []int{(i + k) % all, (i + all - k) % all} {
				if j < n-missing || j >= n {
					c.Connected[i] = append(c.Connected[i], j)
				}
			}
		}
		slices.Sort(c.Connected[i])
		c.Members = append(c.Members, m)
	}
	return c
}

// The time of a new view, and of the data that follow from it, depends on the changes, and little on
// the number of members.
func BenchmarkViewOfThousandMembers(b *testing.B) {
	terms := Terms{Replicas: 1}
	const now = int64(time.Minute)
	view := func(c *cluster.View, before *View) *View { return New(now, c, terms, before) }
	whole := view(newLargeView(1000, 0, 0), nil)
	joining := view(newLargeView(1000, 1, 0), whole)
	for _, c := range []struct {
		name   string
		before *View
		next   *cluster.View
	}{
		{"equal", whole, newLargeView(1000, 0, 0)},
		{"missing member", whole, newLargeView(1000, 0, 1)},
		{"joiner", whole, newLargeView(1000, 1, 0)},
		{"joiner that serves", joining, newLargeView(1001, 0, 0)},
		{"member that has left", whole, newLargeView(999, 0, 0)},
		{"fifty joiners", whole, newLargeView(1000, 50, 0)},
		{"fifty joiners that serve", view(newLargeView(1000, 50, 0), whole), newLargeView(1050, 0, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view(c.next, c.before)
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			view(whole.View, nil)
		}
	})
	b.Run("audiences", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			joining.Audiences()
		}
	})
}

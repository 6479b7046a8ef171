package weir

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
)

// view is all that a route is made of: the ring, who is heard and whom they
// hear, at one moment. It is immutable; a new one takes its place when
// membership or hearing changes.
type view struct {
	*cluster.View
	ring   *ring.Ring
	points []int          // index in Members of each member of the ring
	next   []int          // for each of Members: the neighbour that begins the shortest path to it, -1 if there is none
	lost   []int64        // since when this node does not hear it, 0 if it does
	named  map[uint64]int // index in Members by hash of the name
	expect int            // Config.Expect
	side   int            // how many of Members are on this side, this node included
	// complete says that the roster is not below expect: owners have the whole limit.
	complete bool
}

// way says where a check goes.
type way uint8

const (
	here   way = iota // this node owns the id
	direct            // the owner is heard: ask it
	relay             // the owner is not heard, but another member on this side hears it
	alone             // no way to the owner is left
)

// holdDown is how long a lost owner is not asked for through others: until then
// what they said of hearing it may be older than its death, and a check would
// wait for each of them in turn.
const holdDown = time.Second

// newView adds to what the cluster says of now, given the view before. A node
// that starts (before is nil) takes the ring as it finds it. Later, who is new
// has points once this side hears it: until then the owner before it can still
// be asked, and it cannot.
func newView(now int64, c *cluster.View, expect int, before *view) *view {
	v := &view{View: c, expect: expect, complete: len(c.Members) >= expect, named: make(map[uint64]int, len(c.Members))}
	v.next = v.paths(-1)
	var names []string
	for i, m := range c.Members {
		v.named[nameHash(m.Name)] = i
		if v.next[i] >= 0 {
			v.side++
		}
		if m.State != cluster.Joining && (v.next[i] >= 0 || before.knows(m.Name)) {
			names = append(names, m.Name)
			v.points = append(v.points, i)
		}
	}
	if before != nil && slices.Equal(before.ring.Members(), names) {
		v.ring = before.ring
	} else {
		v.ring = ring.New(names)
	}
	v.lost = make([]int64, len(c.Members))
	for i, m := range c.Members {
		if c.Direct[i] || i == c.Self {
			continue
		}
		v.lost[i] = now
		if before != nil {
			if j, known := before.named[nameHash(m.Name)]; known && before.lost[j] != 0 {
				v.lost[i] = before.lost[j]
			}
		}
	}
	return v
}

// knows says whether a member that is not heard now has points all the same:
// it had them before, or this node is only starting.
func (v *view) knows(name string) bool {
	if v == nil {
		return true
	}
	_, found := slices.BinarySearch(v.ring.Members(), name)
	return found
}

// owner is the index in Members of the one that owns id, -1 if nobody does.
func (v *view) owner(id bucket.ID) int {
	i := v.ring.Owner(id.Hi)
	if i < 0 {
		return -1
	}
	return v.points[i]
}

// route says which way a check for an id of this owner goes, and, for direct and
// relay, which member to send it to.
func (v *view) route(owner int, now int64) (w way, hop int) {
	switch {
	case owner < 0:
		return alone, -1
	case owner == v.Self:
		return here, owner
	case v.Direct[owner]:
		return direct, owner
	case v.next[owner] >= 0 && uint64(now-v.lost[owner]) >= uint64(holdDown):
		return relay, v.next[owner]
	}
	return alone, -1
}

// detour is the neighbour that begins the shortest path to a member that has
// just failed to answer directly, -1 if there is none.
func (v *view) detour(to int) int {
	return v.paths(to)[to]
}

// paths finds the first step of the shortest path from this node to every
// member, -1 where there is none; to avoid, if it is not -1, only through
// others. Ties go to the member that is first by name.
func (v *view) paths(avoid int) []int {
	next := make([]int, len(v.Members))
	for i := range next {
		next[i] = -1
	}
	var queue []int
	if v.Self >= 0 {
		next[v.Self] = v.Self
	}
	for i := range v.Members {
		if i != v.Self && i != avoid && v.Direct[i] {
			next[i] = i
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		via := queue[0]
		queue = queue[1:]
		for i, heard := range v.Hears[via] {
			if heard && next[i] < 0 {
				next[i] = next[via]
				queue = append(queue, i)
			}
		}
	}
	return next
}

func nameHash(name string) uint64 { return xxhash.Sum64String(name) }

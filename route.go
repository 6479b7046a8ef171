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

// newView adds to what the cluster says of now, given the view before (nil if
// there was none).
func newView(now int64, c *cluster.View, expect int, before *view) *view {
	v := &view{View: c, expect: expect, named: make(map[uint64]int, len(c.Members))}
	var names []string
	for i, m := range c.Members {
		v.named[nameHash(m.Name)] = i
		if m.State != cluster.Joining {
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
	v.next = v.paths(-1)
	for i := range v.next {
		if v.next[i] >= 0 {
			v.side++
		}
	}
	return v
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

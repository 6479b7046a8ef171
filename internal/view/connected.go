package view

import (
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// HoldDown is how long checks of an owner are not sent through other members, after this node has
// lost its connection to the owner. If the owner has crashed, other members may report for a while
// that they are connected to it, and a check would wait for each of them in turn. A missing member
// is away after HoldDown, or at once if this node was never connected to the member.
const HoldDown = time.Second

// doubleAfter is how long this node may have sent nothing to a member before another member
// receives the copies for that member as well. A paused node finds late that a member is missing.
// If the node crashed before it found out, the replica on the silent member would lack all units that
// the node has counted since the member became silent.
const doubleAfter = HoldDown / 4

// updateConnectivity computes the fields about connectivity: since when each member is lost or
// mute, which members are away, when a missing member last came back, and since when this node
// knows of other members.
func (v *View) updateConnectivity(now int64, before *View) {
	v.Lost = make([]int64, len(v.Members))
	v.neverHeard = make([]bool, len(v.Members))
	v.Away = make([]bool, len(v.Members))
	v.mute, v.doubled = make([]int64, len(v.Members)), make([]bool, len(v.Members))
	if before != nil {
		v.Healed, v.Met = before.Healed, before.Met
		if v.isHealing(now) {
			v.back = slices.Clone(before.back)
		}
	}
	if v.Met == 0 && len(v.Members) > 1 || v.Self >= 0 && v.JoinsAgain(v.Self, before) {
		v.Met = now
	}
	for i, m := range v.Members {
		j, known := -1, false
		if before != nil {
			j, known = before.Named[NameHash(m.Name)]
		}
		if known && before.Next[j] < 0 && v.Next[i] >= 0 && m.Announced != cluster.Joining { // a joiner holds no ranges
			v.Heal(NameHash(m.Name), now)
		}
		if i == v.Self {
			continue
		}
		if v.Next[i] < 0 || v.Stalls(i) {
			v.mute[i] = now
			if known && before.mute[j] != 0 {
				v.mute[i] = before.mute[j]
			}
		}
		v.doubled[i] = v.mustDouble(i, now)
		if v.Direct[i] {
			continue
		}
		v.Lost[i] = now
		if known && before.Lost[j] != 0 {
			v.Lost[i] = before.Lost[j]
		}
		v.neverHeard[i] = !known || before.neverHeard[j]
		v.Away[i] = v.Next[i] < 0 && v.Overdue(i, now)
		v.doubled[i] = v.doubled[i] || v.Away[i]
	}
}

// Heal records that a missing member is reached again. While it was missing, there may have been
// events that only other members know.
func (v *View) Heal(member uint64, now int64) {
	v.Healed, v.back = now, append(v.back, member)
}

// isHealing reports whether, less than Patience ago, a member that was not reached came back, or this
// node met members of another ring.
func (v *View) isHealing(now int64) bool {
	return v.Healed != 0 && uint64(now-v.Healed) < uint64(Patience)
}

// Overdue reports whether a member has been lost for longer than a change of connectivity takes to
// spread. A member to which this node was never connected is overdue at once: the copies for such
// a member cannot wait for a connection that may never exist.
func (v *View) Overdue(i int, now int64) bool {
	return v.Lost[i] != 0 && (v.neverHeard[i] || uint64(now-v.Lost[i]) >= uint64(HoldDown))
}

// mustDouble reports whether nothing was sent to a member for doubleAfter, so that another member
// receives the copies as well.
func (v *View) mustDouble(i int, now int64) bool {
	return v.mute[i] != 0 && uint64(now-v.mute[i]) >= uint64(doubleAfter)
}

// Stale reports whether the view is out of date: since it was made, a member has become away or
// doubled, the time of an Awaited or Vacant entry has ended, or abandoned ranges can be claimed.
func (v *View) Stale(now int64) bool {
	if slices.ContainsFunc(v.entries, func(e Entry) bool { return e.State&awaitedOrVacant != 0 && now >= e.Until }) {
		return true
	}
	for i := range v.Away {
		if !v.Away[i] && v.Next[i] < 0 && v.Overdue(i, now) || !v.doubled[i] && v.mustDouble(i, now) {
			return true
		}
	}
	return v.HasAny(Abandoned) && !v.HasAny(Claimed) && !v.isScattered(now)
}

// Lasts reports whether the view stays valid until the next event, however much time passes until
// then.
func (v *View) Lasts() bool {
	for i := range v.Away {
		if !v.Away[i] && v.Next[i] < 0 || !v.doubled[i] && v.mute[i] != 0 {
			return false
		}
	}
	return !v.HasAny(awaitedOrVacant | abandonedOrClaimed)
}

// ConnectedMembers returns the index in Members of each other member to which this node is
// connected directly.
func (v *View) ConnectedMembers() (members []int) {
	for i := range v.Members {
		if i != v.Self && v.Direct[i] {
			members = append(members, i)
		}
	}
	return members
}

// Neighbors returns the index in Members of each member that this node watches and is connected to:
// all connected members of a small cluster, and about eight of a large cluster. Each side is
// connected through the neighbors of its members.
func (v *View) Neighbors() []int {
	if v.Self < 0 {
		return v.ConnectedMembers()
	}
	return v.Connected[v.Self]
}

// Reaches reports whether this node is connected to Members[i], directly or through other members.
func (v *View) Reaches(i int) bool { return i >= 0 && v.Next[i] >= 0 }

// ReachesMember is like Reaches, for the hash of the name of a member.
func (v *View) ReachesMember(m countsync.Member) bool {
	i, known := v.Named[m]
	return known && v.Reaches(i)
}

// IsFullyConnected reports whether this node is connected directly to each member that is not Dead.
func (v *View) IsFullyConnected() bool {
	for i := range v.Members {
		if v.Lost[i] != 0 && v.Members[i].State != cluster.Dead {
			return false
		}
	}
	return true
}

// Missing returns the names of the members that no member on this side is connected to, and the time for
// which this node has not been connected to each of them.
func (v *View) Missing(now int64) map[string]time.Duration {
	missing := make(map[string]time.Duration)
	for i := range v.Members {
		if i != v.Self && v.Next[i] < 0 {
			missing[v.Members[i].Name] = time.Duration(max(0, now-v.Lost[i]))
		}
	}
	return missing
}

// paths computes the first member on the shortest path from this node to each member, -1 if there
// is no path. If the argument avoid is not -1, no path begins with the member of that index. A path
// begins with a stalled member only if there is no other path. Of paths of the same length, the path
// that begins with the first member by name is chosen.
func (v *View) paths(avoid int) []int {
	next := slices.Repeat([]int{-1}, len(v.Members))
	var queue, stalled []int
	if v.Self >= 0 {
		next[v.Self] = v.Self
	}
	for i := range v.Members {
		switch {
		case i == v.Self || i == avoid || !v.Direct[i]:
			continue
		case v.Stalls(i):
			stalled = append(stalled, i)
		default:
			queue = append(queue, i)
		}
		next[i] = i
	}
	v.extend(next, queue)
	v.extend(next, stalled)
	return next
}

// extend adds the members that the members in queue reach, except for members that were already
// reached.
func (v *View) extend(next, queue []int) {
	for len(queue) > 0 {
		via := queue[0]
		queue = queue[1:]
		for _, i := range v.Connected[via] {
			if next[i] < 0 {
				next[i] = next[via]
				queue = append(queue, i)
			}
		}
	}
}

// Detour returns the index of the first member on a path to Members[member] that does not begin with
// Members[hop], which has just failed to answer. It returns -1 if there is no such path.
func (v *View) Detour(member, hop int) int {
	return v.paths(hop)[member]
}

// WithoutMember returns the view in which a member that has just failed to answer is missing.
func (v *View) WithoutMember(i int) *View {
	if i < 0 || v.Next[i] < 0 || i == v.Self {
		return v
	}
	less := *v
	less.Next = slices.Clone(v.Next)
	less.Next[i] = -1
	less.vacated = false
	if _, weighs := slices.BinarySearch(v.Points, i); weighs {
		less.Side--
		less.Complete = false
	}
	return &less
}

// Avoided returns the names of the members that have points, but receive no checks from this node: the
// node is not connected to such a member, or the member has stalled, and checks do not go through other
// members either.
func (v *View) Avoided(now int64) (names []string) {
	for _, i := range v.Points {
		if i == v.Self || v.Direct[i] && !v.Stalls(i) || v.Next[i] >= 0 && v.Overdue(i, now) {
			continue
		}
		names = append(names, v.Members[i].Name)
	}
	return names
}

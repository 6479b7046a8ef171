package view

import (
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// HoldDown is how long a lost owner is not asked for through others: until then
// what they said of hearing it may be older than its death, and a check would
// wait for each of them in turn. Only after it has passed is a member away.
const HoldDown = time.Second

// doubleAfter is how long a member may be sent nothing until another is sent its copies
// as well. A node that is paused itself takes long to find that a member is missing, and a
// crash meanwhile would take all that it counted since.
const doubleAfter = HoldDown / 4

// hear finds since when each member is lost, which are away, when the last of these
// came back, and since when this node knows of anybody.
func (v *View) hear(now int64, before *View) {
	v.Lost = make([]int64, len(v.Members))
	v.neverHeard = make([]bool, len(v.Members))
	v.Away = make([]bool, len(v.Members))
	v.mute, v.doubled = make([]int64, len(v.Members)), make([]bool, len(v.Members))
	if before != nil {
		v.Healed, v.Met = before.Healed, before.Met
		if v.healing(now) {
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
		if known && before.Next[j] < 0 && v.Next[i] >= 0 && m.Announced != cluster.Joining { // a joiner holds nothing
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
		v.doubled[i] = v.double(i, now)
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

// Heal notes that a member was not reached, and is so again: others may know of what
// happened meanwhile that this node does not.
func (v *View) Heal(member uint64, now int64) {
	v.Healed, v.back = now, append(v.back, member)
}

// healing reports whether a member that was not reached came back just now.
func (v *View) healing(now int64) bool {
	return v.Healed != 0 && uint64(now-v.Healed) < uint64(Patience)
}

// Overdue reports whether a lost member has been so for longer than a change of
// hearing takes to spread. One that this node has never heard is so at once: copies for
// it cannot wait for a link that there may never be.
func (v *View) Overdue(i int, now int64) bool {
	return v.Lost[i] != 0 && (v.neverHeard[i] || uint64(now-v.Lost[i]) >= uint64(HoldDown))
}

// double reports whether a member has been sent nothing for long enough that another is sent
// its copies as well.
func (v *View) double(i int, now int64) bool {
	return v.mute[i] != 0 && uint64(now-v.mute[i]) >= uint64(doubleAfter)
}

// Stale reports whether the view is out of date by now: a member has come to count as away
// or as doubled since it was made, or the time of something that it waits for is over.
func (v *View) Stale(now int64) bool {
	if slices.ContainsFunc(v.entries, func(e Entry) bool { return e.State&awaitedOrVacant != 0 && now >= e.Until }) {
		return true
	}
	for i := range v.Away {
		if !v.Away[i] && v.Next[i] < 0 && v.Overdue(i, now) || !v.doubled[i] && v.double(i, now) {
			return true
		}
	}
	return v.HasAny(Abandoned) && !v.HasAny(Claimed) && !v.scattered(now)
}

// Lasts reports whether the view stays valid until the next event, however much time passes.
func (v *View) Lasts() bool {
	for i := range v.Away {
		if !v.Away[i] && v.Next[i] < 0 || !v.doubled[i] && v.mute[i] != 0 {
			return false
		}
	}
	return !v.HasAny(awaitedOrVacant | abandonedOrClaimed)
}

// ConnectedMembers returns the index in Members of each other member that this node is connected to itself.
func (v *View) ConnectedMembers() (heard []int) {
	for i := range v.Members {
		if i != v.Self && v.Direct[i] {
			heard = append(heard, i)
		}
	}
	return heard
}

// Neighbors returns the index in Members of each member that this node watches and is connected to:
// all connected members of a small cluster, and about eight of a large one. The graph of neighbors
// connects all members of a side.
func (v *View) Neighbors() []int {
	if v.Self < 0 {
		return v.ConnectedMembers()
	}
	return v.Connected[v.Self]
}

// Reaches reports whether this node is connected to Members[i], directly or through other members.
func (v *View) Reaches(i int) bool { return i >= 0 && v.Next[i] >= 0 }

func (v *View) ReachesMember(m countsync.Member) bool {
	i, known := v.Named[m]
	return known && v.Reaches(i)
}

func (v *View) IsFullyConnected() bool {
	for i := range v.Members {
		if v.Lost[i] != 0 && v.Members[i].State != cluster.Dead {
			return false
		}
	}
	return true
}

// Missing is the members of the roster that no member on this side is connected to, and for how long
// this node has not.
func (v *View) Missing(now int64) map[string]time.Duration {
	missing := make(map[string]time.Duration)
	for i := range v.Members {
		if i != v.Self && v.Next[i] < 0 {
			missing[v.Members[i].Name] = time.Duration(max(0, now-v.Lost[i]))
		}
	}
	return missing
}

// paths finds the first step of the shortest path from this node to every
// member, -1 where there is none; to avoid, if it is not -1, only through
// others. It goes through one that has stalled where no other way is left. Ties go to
// the member that is first by name.
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

// extend finds the members that are reached from those in queue, and not yet.
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

// Detour is the neighbour that begins the shortest path to a member other than by the
// hop that has just failed to answer, -1 if there is none.
func (v *View) Detour(to, hop int) int {
	return v.paths(hop)[to]
}

// Without is the view in which a member is missing that has just not answered.
func (v *View) Without(i int) *View {
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

// Avoided returns the names of the members to which this node sends no checks. It sends none
// directly, and for a while after a loss it sends none through other members.
func (v *View) Avoided(now int64) (names []string) {
	for _, i := range v.Points {
		if i == v.Self || v.Direct[i] && !v.Stalls(i) || v.Next[i] >= 0 && v.Overdue(i, now) {
			continue
		}
		names = append(names, v.Members[i].Name)
	}
	return names
}

// Package view computes the knowledge of a node about the cluster at a moment: the route of a
// check, the share of a limit that the node may spend, and the ranges over which it has authority.
// The package reads no clock, keeps no state between calls, and sends no messages.
//
// A View is immutable. A check loads the view once and uses the same view until the decision. So
// a check needs no lock, and cannot get two answers to the same question. Only package handover
// replaces the view of a node. Each new view results from a transition of this package on the
// previous view (New, ReceiveRanges, TransferRanges, ApplyLocations, ReleaseVacant). If a
// transition gave authority over a hash to two nodes, both would count that hash from zero.
package view

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// View contains all data that a route depends on: the ring, the ranges that this node holds, the
// connections of this node, and the connections of other members.
//
// Members, Next, Lost, Hashes and the other slices with one element for each member have the same
// indexes. Points and Named contain such indexes. Checks read all fields without a lock, so a view
// must not be modified once it is installed. The next view shares the data that have not changed.
type View struct {
	*cluster.View
	Ring       *ring.Ring
	Points     []int          // index in Members of each member of the ring
	Next       []int          // for each of Members: the index of the first member on the shortest path to it, -1 if there is no path
	Lost       []int64        // the monotonic time since which this node has not been connected to the member, 0 if connected
	neverHeard []bool         // whether this node has never been connected to the member
	Away       []bool         // whether no member on this side is connected to the member, and this node has not been connected to it for HoldDown, or never was
	mute       []int64        // the monotonic time since which the member has been stalled or not reached, so that nothing was sent to it; 0 for other members
	doubled    []bool         // whether the member has been mute for doubleAfter, or is away: another member receives the copies as well
	Healed     int64          // the monotonic time at which a missing member was last reached again, or members of another ring were met; 0 if never
	back       []uint64       // hashes of the names of the members that were missing and came back lately; 0 stands for unknown members
	Met        int64          // the monotonic time at which this node first knew of other members, or knew of them again after its removal from the roster; 0 if never
	Hashes     []uint64       // for each of Members: the hash of its name
	Named      map[uint64]int // index in Members by the hash of the name
	Expect     int            // Config.Expect
	copies     int            // Config.Replicas: the number of replicas of each count
	Side       int            // number of members with points on this side
	// Complete reports whether no member with points is missing from this side, and the roster is
	// not below Expect. In that case owners decide with the whole limit.
	Complete bool
	// vacated reports whether members are missing, and the process of each missing member has ended:
	// all members of this side that watch the member agree (cluster.Config.ForgetRefused). In that case only
	// the members of this side share a limit, except with FailClosed. Authority, majorities and
	// joiners still wait for Forget.
	vacated bool
	joiners []joiner
	// beganAlone reports whether this node has begun alone, and no other member has had points
	// since.
	beganAlone bool
	Replaced   chan struct{} // closed when the view is replaced
	authority
}

// joiner is a member that is about to have points.
type joiner struct {
	member int // index in Members
	// ranges are the hashes that the member will own or replicate.
	ranges countsync.Ranges
}

// Terms are the inputs of New besides the time, the view of the cluster and the previous view.
type Terms struct {
	Expect   int
	Replicas int
	Leavers  map[countsync.Member]bool // members that are known to leave, although the cluster may report that they serve
	// Ring is a ring from which the first view derives its own ring, or nil. It saves time, and has
	// no effect on the result.
	Ring *ring.Ring
}

// New returns the view that follows the view before, given the view of the cluster at the time now.
// If this node starts (before is nil), joins, or began apart from the members that it meets, every
// serving member of the cluster except Leavers has points. Later, a new member gets points once this
// side reaches it, because until then only the previous owner can be asked.
func New(now int64, c *cluster.View, t Terms, before *View) *View {
	v := &View{View: c, Expect: t.Expect, copies: t.Replicas, Named: make(map[uint64]int, len(c.Members))}
	v.Next = v.paths(-1)
	for i, m := range c.Members {
		h := NameHash(m.Name)
		v.Named[h] = i
		v.Hashes = append(v.Hashes, h)
	}
	v.updateConnectivity(now, before)
	names := v.givePoints(t, before)
	if before.MeetsApart(v) {
		names = v.givePoints(t, nil) // with points for all members that the met members know, so that none of them is new later
	}
	if v.Serves() && v.onlyJoinedBy() {
		v.Healed, v.back = 0, nil
	}
	v.Ring = t.Ring
	if before != nil {
		v.Ring = before.Ring
	}
	if v.Ring == nil {
		v.Ring = ring.New(nil)
	}
	v.Ring = v.Ring.ReplaceMembers(names)
	v.Complete = v.Side == len(v.Points) && len(v.Points) >= v.Expect
	v.vacated = v.Side > 0 && v.haveMissingEnded()
	v.admit(before)
	v.beganAlone = (before == nil || before.beganAlone) && (len(v.Points) == 0 || v.Serves() && len(v.Points) == 1)
	if before.MeetsApart(v) || before.Serves() && before.hasApart(v) {
		v.Heal(0, now)
	}
	v.authority = before.passAuthority(v, now)
	return v
}

// givePoints sets the members that have points, and returns their names.
func (v *View) givePoints(t Terms, before *View) (names []string) {
	v.Points, v.Side = nil, 0
	for i, m := range v.Members {
		if m.Announced != cluster.Serving || t.Leavers[v.Hashes[i]] || v.Next[i] < 0 && !before.keepsPoints(m.Name) {
			continue
		}
		names = append(names, m.Name)
		v.Points = append(v.Points, i)
		if v.Next[i] >= 0 {
			v.Side++
		}
	}
	return names
}

// admit sets the joiners of v, except this node. No member joins while a member with points is
// missing, so that no side of a partition grows at the expense of another side.
func (v *View) admit(before *View) {
	if v.Side < len(v.Points) {
		return
	}
	for i, m := range v.Members {
		if i == v.Self || m.Announced != cluster.Joining || v.Next[i] < 0 {
			continue
		}
		ranges := before.rangesOfJoiner(m.Name, v)
		if ranges == nil {
			ranges = rangesWith(v.Ring, m.Name, v.copies+1)
		}
		v.joiners = append(v.joiners, joiner{i, ranges})
	}
}

// rangesWith returns the hashes for which a member would be among the first n members of the ring
// if the ring included it.
func rangesWith(r *ring.Ring, member string, n int) countsync.Ranges {
	var ranges []countsync.Range
	r.ArcsWith(member, n, func(first, last uint64) { ranges = append(ranges, countsync.Range{First: first, Last: last}) })
	return countsync.NewRanges(ranges...)
}

// rangesOfJoiner returns the ranges of a joiner of v if the next view has the same ring, else nil.
func (v *View) rangesOfJoiner(name string, next *View) countsync.Ranges {
	if v == nil || v.Ring != next.Ring || v.copies != next.copies {
		return nil
	}
	for _, j := range v.joiners {
		if v.Members[j.member].Name == name {
			return j.ranges
		}
	}
	return nil
}

// keepsPoints reports whether a member that is not reached has points nevertheless: the member had points
// in this view, or this node uses the ring as it is, because this node joins or has no view yet.
func (v *View) keepsPoints(name string) bool {
	if v == nil || v.Joins() {
		return true
	}
	_, found := slices.BinarySearch(v.Ring.Members(), name)
	return found
}

// Serves reports whether this node is a member of the ring.
func (v *View) Serves() bool {
	if v == nil {
		return false
	}
	_, found := slices.BinarySearch(v.Points, v.Self)
	return found
}

// Joins reports whether this node announces that it joins: it is about to have points.
func (v *View) Joins() bool {
	return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Joining
}

// JoinsAgain reports whether Members[i] was removed from the roster while alive, and has come
// back since the previous view.
func (v *View) JoinsAgain(i int, before *View) bool {
	if before == nil {
		return false
	}
	j, known := before.Named[v.Hashes[i]]
	return known && before.Members[j].Epoch < v.Members[i].Epoch
}

// leaves reports whether this node is leaving, and handing over its ranges.
func (v *View) leaves() bool { return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Leaving }

// Stays reports whether this node is in the roster and does not leave. A node that leaves does not
// stand in for another member, because it may be closed before the granted units are reported.
func (v *View) Stays() bool { return v.Self >= 0 && !v.leaves() }

// noMemberServes reports whether the ring is empty: all members are joining or leaving. Until the
// eldest joiner begins to serve, the ring does not determine replicas. So the other joiners send
// their spends to the eldest, and the eldest sends its counts to them. The last member to leave
// also sends its copies of the counts of lost members to the eldest.
func (v *View) noMemberServes() bool { return len(v.Points) == 0 }

// Owner returns the index in Members of the owner of id, or -1 if there is no owner.
func (v *View) Owner(id bucket.ID) int {
	i := v.Ring.Owner(id.Hi)
	if i < 0 {
		return -1
	}
	return v.Points[i]
}

// Offset returns the position of this node within a period, so that nodes that have started
// together do not perform the same periodic work at the same moment.
func (v *View) Offset(period time.Duration) time.Duration {
	if v.Self < 0 {
		return 0
	}
	return time.Duration(v.Hashes[v.Self] % uint64(period))
}

// NameHash returns the hash of a name, which identifies the member in messages.
func NameHash(name string) uint64 { return xxhash.Sum64String(name) }

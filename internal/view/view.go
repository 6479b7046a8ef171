// Package view says what one node knows of the cluster at one moment: where a check goes,
// what share of a limit a node may spend, and what it has authority over. It reads no
// clock, keeps nothing between calls and sends nothing.
//
// A View never changes once it is made. A check loads it once and is decided by it to the
// end, so that it needs no lock, and cannot meet two answers to one question. What changes
// is the view that a node has: package handover alone replaces it, each time by a step of
// this package from the view before (New, ReceiveRanges, TransferRanges, ApplyLocations, ReleaseVacant). A step that
// gave two nodes authority over one hash would have both count it from nothing.
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

// View is all that a route is made of: the ring, what this node holds, which members are
// heard and which members those hear.
//
// Points, Next, Lost, Hashes and Named agree with Members: an index of one is an index of
// all. Checks read them without a lock, so that nothing may write to them once the view is
// in place; a view that follows shares what has not changed.
type View struct {
	*cluster.View
	Ring       *ring.Ring
	Points     []int          // index in Members of each member of the ring
	Next       []int          // for each of Members: the neighbour that begins the shortest path to it, -1 if there is none
	Lost       []int64        // the time since when this node has not been connected to it, 0 if it is connected
	neverHeard []bool         // it has not heard it yet
	Away       []bool         // nobody here has heard it for a second
	mute       []int64        // since when nothing is sent to it, as it has stalled or is not reached; 0 if something is
	doubled    []bool         // that has been so for a while, or it is away: another is sent its copies as well
	Healed     int64          // when one that was not reached was last heard again, 0 if never
	back       []uint64       // hashes of those that were, and came back not long before; 0 stands for some unknown
	Met        int64          // since when this node knows of others, or does so again, as it was taken off the roster; 0 if it has never
	Hashes     []uint64       // of the names
	Named      map[uint64]int // index in Members by hash of the name
	Expect     int            // Config.Expect
	copies     int            // Config.Replicas
	Side       int            // how many members with points are on this side
	// Complete reports whether no member with points is missing from this side, and
	// that the roster is not below expect: owners have the whole limit.
	Complete bool
	// vacated reports whether members are missing, and the processes of all of them have ended, as
	// all members of this side find (cluster.Config.ForgetRefused). In that case only the members
	// of this side share a limit, except with FailClosed. Authority, majorities and joiners wait
	// for Forget as ever.
	vacated bool
	joiners []joiner
	// gone are the members that lost their points lately, or while others were missing:
	// the others may divide a limit by a roster that still has them.
	gone   []gone
	places *ring.Ring // the ring with their points; nil if none is gone, or none missing
	placed []int      // index in Members of each member of places, -1 if it is gone
	// beganAlone reports whether this node has begun by itself, and since then has met nobody
	// but who joined it.
	beganAlone bool
	Replaced   chan struct{} // closed when another view has replaced this one
	authority
}

// gone is a member that has no points any more: it left, was replaced or forgotten.
type gone struct {
	name string
	at   int64
}

// joiner is a member that is to have points.
type joiner struct {
	member int // index in Members
	// ranges are the hashes that the member will own or have copies of.
	ranges countsync.Ranges
}

// Terms are what a view is made by, besides what the cluster says.
type Terms struct {
	Expect   int
	Replicas int
	Leavers  map[countsync.Member]bool
	// Ring is the ring from which a view without a view before it is made, nil if there is none. It saves
	// time, and has no effect on the view.
	Ring *ring.Ring
}

// New adds to what the cluster says of now, given the view before. A node
// that starts (before is nil), joins, or has begun apart from those it meets takes
// the ring as it finds it. Later, a new member has points once this side is connected to it:
// until then the owner before it can still be asked, and it cannot.
func New(now int64, c *cluster.View, t Terms, before *View) *View {
	v := &View{View: c, Expect: t.Expect, copies: t.Replicas, Named: make(map[uint64]int, len(c.Members))}
	v.Next = v.paths(-1)
	for i, m := range c.Members {
		h := NameHash(m.Name)
		v.Named[h] = i
		v.Hashes = append(v.Hashes, h)
	}
	v.hear(now, before)
	names := v.givePoints(t, before)
	if before.MeetsApart(v) {
		names = v.givePoints(t, nil) // later no fellow of those it meets is unknown to it
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
	v.keepPlaces(names, now, before)
	v.admit(before)
	v.beganAlone = (before == nil || before.beganAlone) && (len(v.Points) == 0 || v.Serves() && len(v.Points) == 1)
	if before.MeetsApart(v) || before.Serves() && before.hasApart(v) {
		v.Heal(0, now)
	}
	v.authority = before.passAuthority(v, now)
	return v
}

// givePoints finds the members that have points, and returns their names.
func (v *View) givePoints(t Terms, before *View) (names []string) {
	v.Points, v.Side = nil, 0
	for i, m := range v.Members {
		if m.Announced != cluster.Serving || t.Leavers[v.Hashes[i]] || v.Next[i] < 0 && !before.knows(m.Name) {
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

// keepPlaces finds the members that are gone while those that are missing may not know
// of it. One that is back is not gone. No member joins while one is missing, so there
// are never more of them than the ring had at one time, and went just before that.
func (v *View) keepPlaces(names []string, now int64, before *View) {
	if before == nil {
		return
	}
	for _, g := range before.gone {
		if before.scattered(now) || uint64(now-g.at) < uint64(Patience) {
			v.gone = append(v.gone, g)
		}
	}
	for _, name := range before.Ring.Members() {
		v.gone = append(v.gone, gone{name, now})
	}
	v.gone = slices.DeleteFunc(v.gone, func(g gone) bool { _, stays := slices.BinarySearch(names, g.name); return stays })
	if len(v.gone) == 0 || v.Side == len(v.Points) {
		return
	}
	all := slices.Clone(names)
	for _, g := range v.gone {
		all = append(all, g.name)
	}
	slices.Sort(all)
	base := v.Ring
	if before.places != nil {
		base = before.places
	}
	v.places = base.ReplaceMembers(all)
	for _, name := range all {
		at, stays := slices.BinarySearch(names, name)
		if !stays {
			v.placed = append(v.placed, -1)
			continue
		}
		v.placed = append(v.placed, v.Points[at])
	}
}

// admit finds the members that are to have points: nobody joins while one that
// has is missing, so that no side of a split grows at the other's cost.
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

// rangesWith returns the hashes for which a member would be among the first n of the ring with it.
func rangesWith(r *ring.Ring, member string, n int) countsync.Ranges {
	var ranges []countsync.Range
	r.ArcsWith(member, n, func(first, last uint64) { ranges = append(ranges, countsync.Range{First: first, Last: last}) })
	return countsync.NewRanges(ranges...)
}

// rangesOfJoiner returns the ranges that a joiner has if it joins the same ring in the next view, else nil.
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

// knows reports whether a member that is not connected now has points all the same:
// it had them before, or this node has none and finds the ring as it is.
func (v *View) knows(name string) bool {
	if v == nil || v.Joins() {
		return true
	}
	_, found := slices.BinarySearch(v.Ring.Members(), name)
	return found
}

// Serves reports whether this node has points.
func (v *View) Serves() bool {
	if v == nil {
		return false
	}
	_, found := slices.BinarySearch(v.Points, v.Self)
	return found
}

// Joins reports whether this node is about to have points.
func (v *View) Joins() bool {
	return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Joining
}

// JoinsAgain reports whether one of Members has been taken off the roster while it lived, and
// is back, since the view before.
func (v *View) JoinsAgain(i int, before *View) bool {
	if before == nil {
		return false
	}
	j, known := before.Named[v.Hashes[i]]
	return known && before.Members[j].Epoch < v.Members[i].Epoch
}

// leaves reports whether this node hands over what it has.
func (v *View) leaves() bool { return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Leaving }

// Stays reports whether this node neither leaves nor has left. One that does stands in for nobody: it
// may be closed before it has told of that.
func (v *View) Stays() bool { return v.Self >= 0 && !v.leaves() }

// nobodyServes reports whether no member has points: all are about to have some, or leave. Until
// the eldest begins, the others tell it of what they spend, and it tells them of what it
// has, as the ring names nobody that is to have copies. The last to leave tells it of its
// copies of what lost members held, too.
func (v *View) nobodyServes() bool { return len(v.Points) == 0 }

// Owner is the index in Members of the one that owns id, -1 if nobody does.
func (v *View) Owner(id bucket.ID) int {
	i := v.Ring.Owner(id.Hi)
	if i < 0 {
		return -1
	}
	return v.Points[i]
}

// Offset is this node's own part of a period, so that nodes which have started
// together do not all do the same at one moment.
func (v *View) Offset(period time.Duration) time.Duration {
	if v.Self < 0 {
		return 0
	}
	return time.Duration(v.Hashes[v.Self] % uint64(period))
}

func NameHash(name string) uint64 { return xxhash.Sum64String(name) }

package weir

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// view is all that a route is made of: the ring, what this node holds, who is
// heard and whom they hear, at one moment. It is immutable; a new one takes its
// place when membership, hearing or authority changes.
type view struct {
	*cluster.View
	ring       *ring.Ring
	points     []int          // index in Members of each member of the ring
	next       []int          // for each of Members: the neighbour that begins the shortest path to it, -1 if there is none
	lost       []int64        // since when this node does not hear it, 0 if it does
	neverHeard []bool         // it has not heard it yet
	away       []bool         // nobody here has heard it for a second
	mute       []int64        // since when nothing is sent to it, as it has stalled or is not reached; 0 if something is
	doubled    []bool         // that has been so for a while, or it is away: another is sent its copies as well
	healed     int64          // when one that was not reached was last heard again, 0 if never
	back       []uint64       // hashes of those that were, and came back not long before; 0 stands for some unknown
	met        int64          // since when this node knows of others, or does so again, as it was taken off the roster; 0 if it has never
	hashes     []uint64       // of the names
	named      map[uint64]int // index in Members by hash of the name
	expect     int            // Config.Expect
	copies     int            // Config.Replicas
	side       int            // how many members with points are on this side
	// complete says that no member with points is missing from this side, and
	// that the roster is not below expect: owners have the whole limit.
	complete bool
	joiners  []joiner
	// gone are the members that lost their points lately, or while others were missing:
	// the others may divide a limit by a roster that still has them.
	gone   []gone
	places *ring.Ring // the ring with their points; nil if none is gone, or none missing
	placed []int      // index in Members of each member of places, -1 if it is gone
	// alone says that this node has begun by itself, and since then has met nobody
	// but who joined it.
	alone bool
	over  chan struct{} // closed once another view is in place
	authority
}

// gone is a member that has no points any more: it left, was replaced or forgotten.
type gone struct {
	name string
	at   int64
}

// joiner is a member that is to have points, and the ring with it.
type joiner struct {
	member int // index in Members
	ring   *ring.Ring
	at     int // index in ring's Members
}

// way says where a check goes.
type way uint8

const (
	here    way = iota // this node has authority over the id
	direct             // the one that has is heard: ask it
	relay              // it is not heard, but another member on this side hears it
	standIn            // nobody here hears it, or it has stalled: the first successor on this side answers
	alone              // no way is left
)

// holdDown is how long a lost owner is not asked for through others: until then
// what they said of hearing it may be older than its death, and a check would
// wait for each of them in turn. Only after it has passed is a member away.
const holdDown = time.Second

// doubleAfter is how long a member may be sent nothing until another is sent its copies
// as well. A node that is paused itself takes long to find that a member is missing, and a
// crash meanwhile would take all that it counted since.
const doubleAfter = holdDown / 4

// terms are what a view is made by, besides what the cluster says.
type terms struct {
	expect  int
	copies  int
	leavers map[countsync.Member]bool
}

// newView adds to what the cluster says of now, given the view before. A node
// that starts (before is nil), joins, or has begun apart from those it meets takes
// the ring as it finds it. Later, who is new has points once this side hears it:
// until then the owner before it can still be asked, and it cannot.
func newView(now int64, c *cluster.View, t terms, before *view) *view {
	v := &view{View: c, expect: t.expect, copies: t.copies, named: make(map[uint64]int, len(c.Members))}
	v.next = v.paths(-1)
	for i, m := range c.Members {
		h := nameHash(m.Name)
		v.named[h] = i
		v.hashes = append(v.hashes, h)
	}
	v.hear(now, before)
	names := v.givePoints(t, before)
	if before.meetsApart(v) {
		names = v.givePoints(t, nil) // later no fellow of those it meets is unknown to it
	}
	if v.serves() && v.onlyJoinedBy() {
		v.healed, v.back = 0, nil
	}
	v.ring = before.ringOf(names)
	v.complete = v.side == len(v.points) && len(v.points) >= v.expect
	v.keepPlaces(names, now, before)
	v.admit(names, before)
	v.alone = (before == nil || before.alone) && (len(v.points) == 0 || v.serves() && len(v.points) == 1)
	if before.meetsApart(v) || before.serves() && before.hasApart(v) {
		v.heal(0, now)
	}
	v.authority = before.passOn(v, now)
	return v
}

// givePoints finds the members that have points, and returns their names.
func (v *view) givePoints(t terms, before *view) (names []string) {
	v.points, v.side = nil, 0
	for i, m := range v.Members {
		if m.Announced != cluster.Serving || t.leavers[v.hashes[i]] || v.next[i] < 0 && !before.knows(m.Name) {
			continue
		}
		names = append(names, m.Name)
		v.points = append(v.points, i)
		if v.next[i] >= 0 {
			v.side++
		}
	}
	return names
}

// keepPlaces finds the members that are gone while those that are missing may not know
// of it. One that is back is not gone. No member joins while one is missing, so there
// are never more of them than the ring had at one time, and went just before that.
func (v *view) keepPlaces(names []string, now int64, before *view) {
	if before == nil {
		return
	}
	for _, g := range before.gone {
		if before.scattered(now) || uint64(now-g.at) < uint64(patience) {
			v.gone = append(v.gone, g)
		}
	}
	for _, name := range before.ring.Members() {
		v.gone = append(v.gone, gone{name, now})
	}
	v.gone = slices.DeleteFunc(v.gone, func(g gone) bool { _, stays := slices.BinarySearch(names, g.name); return stays })
	if len(v.gone) == 0 || v.side == len(v.points) {
		return
	}
	all := slices.Clone(names)
	for _, g := range v.gone {
		all = append(all, g.name)
	}
	slices.Sort(all)
	v.places = before.places
	if v.places == nil || !slices.Equal(v.places.Members(), all) {
		v.places = before.ringOf(all)
	}
	for _, name := range all {
		at, stays := slices.BinarySearch(names, name)
		if !stays {
			v.placed = append(v.placed, -1)
			continue
		}
		v.placed = append(v.placed, v.points[at])
	}
}

// meetsApart says that this node, or those that it is with, began apart from
// others whom it meets in the next view. They may have counts of what it took for
// its own. Of two that each are several, those began apart whose eldest is the later.
func (v *view) meetsApart(next *view) bool {
	if v == nil || len(v.points) == 0 || !v.serves() || next.Self < 0 {
		return false
	}
	return v.alone && v.hasApart(next) || slices.ContainsFunc(next.points, func(i int) bool {
		m := &next.Members[i]
		return v.isApart(m) && !slices.ContainsFunc(v.points, func(j int) bool { return !elder(m, &v.Members[j]) })
	})
}

// elder says that a member began a ring before another. Who was taken off the roster has
// joined one since, and however long it has run, is younger than whom it joined.
func elder(m, o *cluster.Member) bool {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), m.Born.Compare(o.Born)) < 0
}

// hasApart says that members of the next view's ring have not joined this one.
func (v *view) hasApart(next *view) bool {
	return slices.ContainsFunc(next.points, func(i int) bool { return v.isApart(&next.Members[i]) })
}

func (v *view) isApart(m *cluster.Member) bool {
	i, known := v.named[nameHash(m.Name)]
	return !known || !slices.Contains(v.points, i) && v.Members[i].Announced == cluster.Serving
}

// hear says since when each member is lost, who is away, when the last of these
// came back, and since when this node knows of anybody.
func (v *view) hear(now int64, before *view) {
	v.lost = make([]int64, len(v.Members))
	v.neverHeard = make([]bool, len(v.Members))
	v.away = make([]bool, len(v.Members))
	v.mute, v.doubled = make([]int64, len(v.Members)), make([]bool, len(v.Members))
	if before != nil {
		v.healed, v.met = before.healed, before.met
		if v.healing(now) {
			v.back = slices.Clone(before.back)
		}
	}
	if v.met == 0 && len(v.Members) > 1 || v.Self >= 0 && v.joinsAgain(v.Self, before) {
		v.met = now
	}
	for i, m := range v.Members {
		j, known := -1, false
		if before != nil {
			j, known = before.named[nameHash(m.Name)]
		}
		if known && before.next[j] < 0 && v.next[i] >= 0 && m.Announced != cluster.Joining { // who joins holds nothing
			v.heal(nameHash(m.Name), now)
		}
		if i == v.Self {
			continue
		}
		if v.next[i] < 0 || v.Stalls(i) {
			v.mute[i] = now
			if known && before.mute[j] != 0 {
				v.mute[i] = before.mute[j]
			}
		}
		v.doubled[i] = v.double(i, now)
		if v.Direct[i] {
			continue
		}
		v.lost[i] = now
		if known && before.lost[j] != 0 {
			v.lost[i] = before.lost[j]
		}
		v.neverHeard[i] = !known || before.neverHeard[j]
		v.away[i] = v.next[i] < 0 && v.overdue(i, now)
		v.doubled[i] = v.doubled[i] || v.away[i]
	}
}

// heal notes that a member was not reached, and is so again: others may know of what
// happened meanwhile that this node does not.
func (v *view) heal(member uint64, now int64) {
	v.healed, v.back = now, append(v.back, member)
}

// healing says that a member that was not reached came back just now.
func (v *view) healing(now int64) bool {
	return v.healed != 0 && uint64(now-v.healed) < uint64(patience)
}

// onlyJoinedBy says that all others are reached and about to have points. Who joins holds
// nothing, so that of what happened while others were missing, who are gone since, nobody
// knows more than this node.
func (v *view) onlyJoinedBy() bool {
	for i, m := range v.Members {
		if i != v.Self && (m.Announced != cluster.Joining || v.next[i] < 0) {
			return false
		}
	}
	return true
}

// overdue says that a lost member has been so for longer than a change of
// hearing takes to spread. One that this node has never heard is so at once: copies for
// it cannot wait for a link that there may never be.
func (v *view) overdue(i int, now int64) bool {
	return v.lost[i] != 0 && (v.neverHeard[i] || uint64(now-v.lost[i]) >= uint64(holdDown))
}

// double says that a member has been sent nothing for long enough that another is sent
// its copies as well.
func (v *view) double(i int, now int64) bool {
	return v.mute[i] != 0 && uint64(now-v.mute[i]) >= uint64(doubleAfter)
}

// stale says that by now somebody counts as away, or is doubled, or something is waited
// for no longer, who did not and that was when the view was made.
func (v *view) stale(now int64) bool {
	for _, w := range v.waits {
		if now >= w.until {
			return true
		}
	}
	for i := range v.away {
		if !v.away[i] && v.next[i] < 0 && v.overdue(i, now) || !v.doubled[i] && v.double(i, now) {
			return true
		}
	}
	return len(v.abandoned) > 0 && !v.scattered(now)
}

// admit finds the members that are to have points: nobody joins while one that
// has is missing, so that no side of a split grows at the other's cost.
func (v *view) admit(names []string, before *view) {
	if v.side < len(v.points) {
		return
	}
	for i, m := range v.Members {
		if i == v.Self || m.Announced != cluster.Joining || v.next[i] < 0 {
			continue
		}
		j := joiner{member: i, ring: before.ringWith(m.Name, v.ring)}
		if j.ring == nil {
			j.ring = ring.New(append(slices.Clone(names), m.Name))
		}
		j.at, _ = slices.BinarySearch(j.ring.Members(), m.Name)
		v.joiners = append(v.joiners, j)
	}
}

// ringOf is the ring of these members, the one before if that is it.
func (v *view) ringOf(names []string) *ring.Ring {
	if v != nil && slices.Equal(v.ring.Members(), names) {
		return v.ring
	}
	return ring.New(names)
}

// ringWith is the ring that a joiner had if it joined the same ring, else nil.
func (v *view) ringWith(name string, base *ring.Ring) *ring.Ring {
	if v == nil || v.ring != base {
		return nil
	}
	for _, j := range v.joiners {
		if v.Members[j.member].Name == name {
			return j.ring
		}
	}
	return nil
}

// knows says whether a member that is not heard now has points all the same:
// it had them before, or this node has none and finds the ring as it is.
func (v *view) knows(name string) bool {
	if v == nil || v.joins() {
		return true
	}
	_, found := slices.BinarySearch(v.ring.Members(), name)
	return found
}

// serves says whether this node has points.
func (v *view) serves() bool {
	if v == nil {
		return false
	}
	_, found := slices.BinarySearch(v.points, v.Self)
	return found
}

// joins says whether this node is about to have points.
func (v *view) joins() bool {
	return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Joining
}

// joinsAgain says that one of Members has been taken off the roster while it lived, and
// is back, since the view before.
func (v *view) joinsAgain(i int, before *view) bool {
	if before == nil {
		return false
	}
	j, known := before.named[v.hashes[i]]
	return known && before.Members[j].Epoch < v.Members[i].Epoch
}

// owner is the index in Members of the one that owns id, -1 if nobody does.
func (v *view) owner(id bucket.ID) int {
	i := v.ring.Owner(id.Hi)
	if i < 0 {
		return -1
	}
	return v.points[i]
}

// route says which way a check for an id of this owner goes, which member is to
// answer it and, if that is another, which one to send it to.
func (v *view) route(id bucket.ID, owner int, now int64) (w way, to, hop int) {
	to = owner
	switch {
	case owner == v.Self && owner >= 0:
		if v.settled || v.held.Contains(id.Hi) {
			return here, owner, owner
		}
		to = v.holder(id)
	case !v.settled && v.held.Contains(id.Hi) && !(v.yields() && v.reaches(owner)):
		return here, v.Self, v.Self
	}
	switch {
	case to < 0:
	case v.Stalls(to):
	case v.Direct[to]:
		return direct, to, to
	case v.next[to] >= 0 && v.overdue(to, now):
		return relay, to, v.next[to]
	}
	if s := v.standIn(id, to); s >= 0 {
		return standIn, s, v.next[s]
	}
	if s := v.eldest(); s >= 0 && s != to && len(v.points) > 0 {
		return standIn, s, v.next[s]
	}
	return alone, -1, -1
}

// reaches says that a member is heard, directly or through others.
func (v *view) reaches(i int) bool { return i >= 0 && v.next[i] >= 0 }

func (v *view) reachesMember(m countsync.Member) bool {
	i, known := v.named[m]
	return known && v.reaches(i)
}

// standIn is the member that answers where to is not reached, or has stalled: the
// first on this side in ring order that this node asks; -1 if there is none. It is the
// same for all of the side but for those that some have stalled for.
func (v *view) standIn(id bucket.ID, to int) int {
	return v.firstHere(id, func(i int) bool { return i != to && !v.Stalls(i) })
}

// successor is the member that stands in for a lost owner, for all of this side.
func (v *view) successor(id bucket.ID) int {
	return v.firstHere(id, func(int) bool { return true })
}

// firstHere is the first member in ring order, of those on this side, that is as wanted.
func (v *view) firstHere(id bucket.ID, wanted func(i int) bool) int {
	var room [16]int
	for most := 4; ; most *= 4 {
		order := v.ring.Order(room[:0], id.Hi, most)
		for _, at := range order {
			if i := v.points[at]; v.next[i] >= 0 && wanted(i) {
				return i
			}
		}
		if len(order) < most {
			return -1
		}
	}
}

// eldest is the first to have started of those on this side that are about to join,
// -1 if there is none. Where nobody else is left of a side, it answers for all.
func (v *view) eldest() int {
	eldest := -1
	for i, m := range v.Members {
		if v.next[i] < 0 || m.Announced != cluster.Joining {
			continue
		}
		if eldest < 0 || m.Born.Before(v.Members[eldest].Born) { // the first by name of those of one age
			eldest = i
		}
	}
	return eldest
}

// detour is the neighbour that begins the shortest path to a member other than by the
// hop that has just failed to answer, -1 if there is none.
func (v *view) detour(to, hop int) int {
	return v.paths(hop)[to]
}

// paths finds the first step of the shortest path from this node to every
// member, -1 where there is none; to avoid, if it is not -1, only through
// others. It goes through one that has stalled where no other way is left. Ties go to
// the member that is first by name.
func (v *view) paths(avoid int) []int {
	next := make([]int, len(v.Members))
	for i := range next {
		next[i] = -1
	}
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
func (v *view) extend(next, queue []int) {
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
}

func nameHash(name string) uint64 { return xxhash.Sum64String(name) }

package view

import (
	"slices"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
)

// passage computes the table of the next view from the table of the current view. New computes
// the next view after a change of the roster, the ring, the connectivity or the time. The entries
// of each range depend only on the previous entries of that range.
type passage struct {
	v, next   *View
	now       int64
	scattered bool       // next.isScattered
	apart     bool       // v.MeetsApart
	earlier   *ring.Ring // the previous ring, with the members that were leaving and may still hold ranges
	recalls   bool       // authority.Recalls
}

// part is a range during a passage. Each of the two rings assigns the whole range to one member, or
// only to members that are in both rings (see cutChanges).
type part struct {
	before   []Entry // the entries in the previous view
	hash     uint64  // the last hash of the range
	prior    int     // index in v.Members of the previous owner, -1 if there is none or the ring is the same
	assigned bool    // the next ring assigns the range to this node
	leaver   string  // the name of a leaver that may still hold the range
	state    State   // the next state: Held, Abandoned, Claimed or 0
	wait     Entry   // the next wait: an Awaited or Vacant entry, or an Entry without a state
}

// wasIn reports whether the range was in any of the given states in the previous view.
func (x *part) wasIn(states State) bool { return find(x.before, states).State != 0 }

// misses reports whether this node owns the range, but neither holds it nor waits for it yet.
func (x *part) misses() bool { return x.assigned && x.state|x.wait.State == 0 }

func newPassage(v, next *View, now int64) *passage {
	p := &passage{v: v, next: next, now: now, scattered: next.isScattered(now), apart: v.MeetsApart(next), earlier: v.Ring}
	if next.Ring != v.Ring {
		p.addLeavers()
	}
	return p
}

// passAuthority returns the authority in the next view. If the ring assigns a range to this node,
// this node waits for the range while the member that had the range can be asked. Otherwise no
// other member has the range, and this node takes it, unless members are missing: then the range is
// Abandoned. If the member has just gone, this node first
// waits for HoldDown: a leaving member transfers the range to the owner by its own ring, and this
// receiver may still have to pass the range on.
func (v *View) passAuthority(next *View, now int64) authority {
	if v == nil {
		v = &View{View: &cluster.View{Self: -1}, Ring: ring.New(nil)}
	}
	p := newPassage(v, next, now)
	if next.Ring == v.Ring && !p.apart && v.Settled && v.states|Held == Held {
		a := v.authority
		a.Recalls = false
		return a
	}
	assigned := v.Assigned
	if next.Ring != v.Ring || assigned == nil {
		assigned = next.ownedBy(next.Self)
	}
	cuts := cutsOf(assigned)
	if next.Ring != v.Ring {
		cuts = cutChanges(cutChanges(cuts, v.Ring, p.earlier), v.Ring, next.Ring)
	}
	a := v.restate(cuts, assigned, p.passRange)
	a.Recalls = p.recalls
	return a
}

// cutChanges appends the cuts of all ranges whose owner differs between two rings. The owner of any other
// range keeps its points, so passRange returns the same entries for all of these ranges. Only ranges that are
// assigned to this node or have entries are an exception, and have cuts already.
func cutChanges(cuts []uint64, a, b *ring.Ring) []uint64 {
	for _, side := range [][2]*ring.Ring{{a, b}, {b, a}} {
		others := side[1].Members()
		for _, name := range side[0].Members() {
			if _, stays := slices.BinarySearch(others, name); !stays {
				side[0].ArcsOf(name, func(first, last uint64) { cuts = append(cuts, first-1, last) })
			}
		}
	}
	return cuts
}

// addLeavers adds to the earlier ring the members that were leaving and may still hold ranges, because no
// other member could receive the ranges: those of a lost member, or all ranges if no member served.
func (p *passage) addLeavers() {
	if !p.v.noMemberServes() && (p.scattered || !slices.ContainsFunc(p.v.Points, p.isLost)) {
		return
	}
	names := slices.Clone(p.v.Ring.Members())
	for i, m := range p.v.Members {
		began := m.Announced == cluster.Serving && !p.v.Reaches(i) // the member began apart from this side, which has not met it yet
		if m.Announced == cluster.Joining || began || slices.Contains(p.v.Points, i) || !p.next.expects(m.Name) {
			continue
		}
		names = append(names, m.Name)
	}
	slices.Sort(names)
	p.earlier = p.v.Ring.ReplaceMembers(names)
}

// leaverOf returns the name of the leaver that may still hold a range, or "" if there is none. If another
// leaver has the range by now, requests to locate the range find the other leaver.
func (p *passage) leaverOf(hash uint64) string {
	i := p.earlier.Owner(hash)
	if i < 0 {
		return ""
	}
	name := p.earlier.Members()[i]
	if _, served := slices.BinarySearch(p.v.Ring.Members(), name); served {
		return ""
	}
	return name
}

// isLost reports whether a member was not reached in the previous view, and is not in the next
// roster.
func (p *passage) isLost(i int) bool {
	_, stays := p.next.Named[p.v.Hashes[i]]
	return !stays && !p.v.Reaches(i)
}

// passRange appends the entries that a range has in the next view.
func (p *passage) passRange(dst []Entry, hash uint64, before []Entry) []Entry {
	x := part{before: before, hash: hash, prior: -1, assigned: p.next.Serves() && p.next.Owner(bucket.ID{Hi: hash}) == p.next.Self}
	if p.next.Ring != p.v.Ring {
		x.prior = p.v.Owner(bucket.ID{Hi: hash})
	}
	if p.next.Self >= 0 { // a node that has left holds nothing
		p.inheritRange(&x)
		p.abandonRange(&x)
		p.claimRange(&x)
	}
	p.passWait(&x)
	if x.misses() { // no member is left to give the range
		x.state = Held
	}
	if x.wait.State != 0 {
		dst = append(dst, x.wait)
	}
	if x.state != 0 {
		dst = append(dst, Entry{State: x.state})
	}
	for _, e := range before {
		if e.State == Transferred && p.now < e.Until {
			dst = append(dst, e)
		}
	}
	return dst
}

// inheritRange keeps the range if this node holds it. If this node is the next member in ring order,
// inheritRange gives this node the range of a lost member: a member that is forgotten or starts again
// leaves authority to the stand-in, once all other members are reached. A member that has only stood
// in for a moment does not inherit. A leaver that may still hold the range is awaited.
func (p *passage) inheritRange(x *part) {
	if x.wasIn(Held) {
		x.state = Held
		return
	}
	inherits := !p.scattered && x.prior >= 0 && p.isLost(x.prior) && p.v.firstRemaining(p.next, x.hash) == p.v.Self
	if inherits || p.v.noMemberServes() {
		x.leaver = p.leaverOf(x.hash)
	}
	if inherits && x.leaver == "" {
		x.state = Held
	}
}

// firstRemaining returns the first member in ring order that has points in the next view as well,
// -1 if there is none.
func (v *View) firstRemaining(next *View, hash uint64) int {
	return v.findFirst(hash, func(i int) bool {
		_, stays := slices.BinarySearch(next.Ring.Members(), v.Members[i].Name)
		return stays
	})
}

// abandonRange marks the range as abandoned if members are missing and no member is known to have
// authority. Until all members have been connected for Patience, such a range remains abandoned. A node that began
// apart abandons all ranges when it meets the other members.
func (p *passage) abandonRange(x *part) {
	switch {
	case p.apart:
		x.state = Abandoned
	case !p.scattered || x.state == Held:
	case x.wasIn(abandonedOrClaimed) && (p.v.Serves() || !p.next.Serves()): // a joiner receives its own ranges from the stand-in
		x.state = Abandoned
	case x.prior >= 0 && p.loses(x):
		x.state = Abandoned
	}
}

// loses reports whether authority over a range is lost, because the owner is gone, or because the
// owner is away and the ring assigns the range to another member. The same is true if the owner leaves
// and the next owner is missing: another member receives the range, and may end before the next owner
// is back.
func (p *passage) loses(x *part) bool {
	owner := p.next.Owner(bucket.ID{Hi: x.hash})
	switch i, stays := p.next.Named[p.v.Hashes[x.prior]]; {
	case !stays:
		return p.next.strays(p.v.Hashes[x.prior], p.now) // if no other member is missing, no other member has the range
	case p.next.Away[i]:
		return owner != i
	default:
		return !slices.Contains(p.next.Points, i) && owner >= 0 && !p.next.Reaches(owner)
	}
}

// claimRange makes this node ask for an abandoned range that it owns, once all members have been
// connected for Patience. If no member has the range, this node takes it. No node joins until then.
func (p *passage) claimRange(x *part) {
	if x.wasIn(abandonedOrClaimed) && p.v.Serves() && !p.scattered && !p.apart && x.assigned && x.state != Held {
		x.state = Claimed
	}
}

// passWait continues or ends the wait for the range. If another member owns a Vacant range by now, that
// member waits for this node. If another member owns an Awaited range, the entry stays for Patience:
// that member sends checks to this node, which passes them on.
func (p *passage) passWait(x *part) {
	wait := find(x.before, awaitedOrVacant)
	switch {
	case x.state == Held || wait.State == 0:
	case wait.State == Vacant && p.next.Self >= 0:
		if x.wait = wait; p.now >= wait.Until {
			x.state, x.wait = Held, Entry{}
		}
	case !x.assigned && p.now < wait.Until && p.next.expects(wait.Member):
		x.wait = wait
		x.wait.Until = min(wait.Until, p.now+int64(Patience))
	default:
		p.awaitRange(x, wait.Member)
	}
	if x.leaver != "" {
		p.awaitRange(x, x.leaver)
	}
	if wait.State == 0 && x.prior >= 0 && x.prior != p.v.Self {
		p.awaitRange(x, p.v.Members[x.prior].Name)
	}
}

// awaitRange waits for a missing range while the previous holder can be asked, and for HoldDown if
// the previous holder has just gone.
func (p *passage) awaitRange(x *part, member string) {
	if !x.misses() {
		return
	}
	_, stays := p.next.Named[NameHash(member)]
	switch {
	case p.next.expects(member):
		x.wait = Entry{State: Awaited, Member: member, Until: Forever}
	case !stays && p.v.expects(member):
		x.wait, p.recalls = Entry{State: Vacant, Until: p.now + int64(HoldDown)}, true
	case p.scattered: // member may have transferred the range to a missing member
		x.state, p.recalls = Abandoned, true
	}
}

// isScattered reports whether members are missing, or were missing less than Patience ago. This node
// does not know which transfers they made.
func (v *View) isScattered(now int64) bool {
	return v.Side < len(v.Points) || v.isHealing(now)
}

// strays reports whether a member with points is missing, or whether a member other than the argument gone
// was missing until just now. The member gone has left the roster.
func (v *View) strays(gone uint64, now int64) bool {
	return slices.ContainsFunc(v.Points, func(i int) bool { return v.Next[i] < 0 }) ||
		v.isHealing(now) && slices.ContainsFunc(v.back, func(member uint64) bool { return member != gone })
}

// expects reports whether a member can still transfer ranges to this node: it is another member of
// the roster, and not away.
func (v *View) expects(name string) bool {
	i, known := v.Named[NameHash(name)]
	return known && i != v.Self && !v.Away[i]
}

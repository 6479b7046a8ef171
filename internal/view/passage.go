package view

import (
	"slices"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// passage is the step from the table of one view to that of the next, which New makes of another
// roster, ring or connectivity, or of another time. It decides about each range by itself.
type passage struct {
	v, next   *View
	now       int64
	turns     bool     // the ring has changed
	serves    bool     // this node has points in the next view
	scattered bool     // next.scattered
	apart     bool     // v.MeetsApart
	claims    bool     // this node asks for the abandoned ranges that it owns
	stays     []int    // index in next.Members for each of v.Members, -1 for a member that is gone
	leavers   []joiner // members that may still hold ranges of a ring that they were part of
	recalls   bool     // authority.Recalls
}

// part is one range on its way to the next view. No ring assigns parts of it to different members.
type part struct {
	hash     uint64 // the last one
	before   []Entry
	prior    int  // index in v.Members of the owner before, -1 if there is none or the ring is the same
	assigned bool // the next ring assigns it to this node
	wait     Entry
	leaver   string // that may still hold it, though the ring was without that member

	held, abandoned, claimed bool
}

// passAuthority returns the authority in the next view. This node waits for a range that the ring
// assigns to it while the member that had the range can be asked. Otherwise no other member has
// the range, and it is this node's own. A member that has left handed over by the ring that it
// knew, so for a moment its receiver may still pass the range on.
func (v *View) passAuthority(next *View, now int64) authority {
	if v == nil {
		v = &View{View: &cluster.View{Self: -1}, Ring: ring.New(nil)}
	}
	p := passage{v: v, next: next, now: now, turns: next.Ring != v.Ring, serves: next.Serves(), scattered: next.scattered(now), apart: v.MeetsApart(next)}
	if !p.turns && !p.apart && v.Settled && v.states&^Held == 0 {
		a := v.authority
		a.Recalls = false
		return a
	}
	p.claims = v.HasAny(abandonedOrClaimed) && v.Serves() && !p.scattered
	var assigned countsync.Ranges
	if p.serves {
		if assigned = v.Assigned; p.turns || assigned == nil {
			assigned = next.owned(next.Self)
		}
	}
	cuts := [][]uint64{cutsOf(assigned)}
	if p.turns {
		p.findStaying()
		rings := []*ring.Ring{v.Ring, next.Ring}
		for _, l := range p.leavers {
			rings = append(rings, l.ring)
		}
		for _, r := range rings {
			var lasts []uint64
			r.Arcs(func(_, last uint64) { lasts = append(lasts, last) })
			cuts = append(cuts, lasts)
		}
	}
	a := v.restate(cuts, assigned, func(dst []Entry, r countsync.Range, before []Entry) []Entry {
		return p.passRange(dst, part{hash: r.Last, before: before, prior: -1, assigned: assigned.Contains(r.Last)})
	})
	a.Recalls = p.recalls
	return a
}

// findStaying finds which members of the view before are in the next one, and the leavers.
func (p *passage) findStaying() {
	inherits := false
	for i, hash := range p.v.Hashes {
		j, stays := p.next.Named[hash]
		if !stays {
			j = -1
			inherits = inherits || !p.v.Reaches(i) && slices.Contains(p.v.Points, i)
		}
		p.stays = append(p.stays, j)
	}
	if inherits && !p.scattered {
		p.findLeavers()
	}
}

// findLeavers finds the members that leave and may still hold ranges: they found no member to
// transfer them to.
func (p *passage) findLeavers() {
	for i, m := range p.v.Members {
		began := m.Announced == cluster.Serving && !p.v.Reaches(i) // apart from this side, which has yet to meet it
		if m.Announced == cluster.Joining || began || slices.Contains(p.v.Points, i) || !p.next.expects(m.Name) {
			continue
		}
		names := append(slices.Clone(p.v.Ring.Members()), m.Name)
		slices.Sort(names)
		l := joiner{member: i, ring: ring.New(names)}
		l.at, _ = slices.BinarySearch(l.ring.Members(), m.Name)
		p.leavers = append(p.leavers, l)
	}
}

// passRange appends the entries of one range in the next view.
func (p *passage) passRange(dst []Entry, x part) []Entry {
	if p.turns {
		x.prior = p.v.Owner(bucket.ID{Hi: x.hash})
	}
	if p.next.Self >= 0 { // a node that has left holds nothing
		x.held = find(x.before, Held).State != 0
		p.inheritRange(&x)
		p.abandonRange(&x)
		p.claimRange(&x)
		p.yieldRange(&x)
	}
	p.passWait(&x)
	if p.takeRange(&x); x.held {
		dst = append(dst, Entry{State: Held})
	} else {
		if x.wait.State != 0 {
			dst = append(dst, x.wait)
		}
		if x.claimed {
			dst = append(dst, Entry{State: Claimed})
		} else if x.abandoned {
			dst = append(dst, Entry{State: Abandoned})
		}
	}
	for _, e := range x.before {
		if e.State == Transferred && p.now < e.Until {
			dst = append(dst, e)
		}
	}
	return dst
}

// inheritRange gives this node the range of a member that was not reached and is off the roster now,
// if this node is the next in ring order. To be forgotten, or to start again, leaves authority to
// the stand-in, once all others are reached. A member that has only stood in for that one for a
// moment does not inherit. A leaver that may still hold the range is awaited.
func (p *passage) inheritRange(x *part) {
	if p.scattered || x.prior < 0 || p.stays[x.prior] >= 0 || p.v.Reaches(x.prior) || p.v.remains(p.next, x.hash) != p.v.Self {
		return
	}
	for _, l := range p.leavers {
		if l.ring.Owner(x.hash) == l.at {
			x.leaver = p.v.Members[l.member].Name
			return
		}
	}
	x.held = true
}

// remains is the first member in ring order that has points in the next view as well,
// -1 if there is none.
func (v *View) remains(next *View, hash uint64) int {
	var room [16]int
	for most := 4; ; most *= 4 {
		order := v.Ring.Order(room[:0], hash, most)
		for _, at := range order {
			if _, stays := slices.BinarySearch(next.Ring.Members(), v.Ring.Members()[at]); stays {
				return v.Points[at]
			}
		}
		if len(order) < most {
			return -1
		}
	}
}

// abandonRange finds whether the range is without authority while members are missing: its member
// has gone, or is away and the ring assigns it to another. It is also abandoned where its member
// leaves and the ring assigns it to a missing one: the member that receives it instead may end
// before that one is back.
func (p *passage) abandonRange(x *part) {
	if !p.scattered || x.held {
		return
	}
	if find(x.before, abandonedOrClaimed).State != 0 && (p.v.Serves() || !p.serves) { // a joiner receives what it owns from the stand-in
		x.abandoned = true
		return
	}
	if x.prior < 0 {
		return
	}
	owner := p.next.Owner(bucket.ID{Hi: x.hash})
	switch stays := p.stays[x.prior]; {
	case stays < 0:
		x.abandoned = p.next.strays(p.v.Hashes[x.prior], p.now) // a member that was alone where it was leaves nothing
	case p.next.Away[stays]:
		x.abandoned = owner != stays
	case !slices.Contains(p.next.Points, stays):
		x.abandoned = owner >= 0 && !p.next.Reaches(owner)
	}
}

// claimRange has this node ask for an abandoned range that it owns once all members have been heard
// for Patience. It takes the range if no member has it. No node joins until then.
func (p *passage) claimRange(x *part) {
	if p.claims {
		x.claimed = x.assigned && !x.held && find(x.before, abandonedOrClaimed).State != 0
		x.abandoned = x.claimed
	}
}

// yieldRange takes the range from a node that began apart from the members that it meets.
func (p *passage) yieldRange(x *part) {
	if p.apart {
		x.held, x.claimed, x.abandoned = false, false, true
	}
}

// passWait goes on waiting for the range. The member that owns a Vacant range by now waits for this
// node. A range that another member owns by now is kept in mind for a moment: that member takes
// this node for its holder, which passes checks on.
func (p *passage) passWait(x *part) {
	wait := find(x.before, awaitedOrVacant)
	switch {
	case wait.State == Vacant && p.next.Self >= 0:
		if x.held {
			break
		}
		if x.held = p.now >= wait.Until; !x.held {
			x.wait = wait
		}
	case wait.State != 0 && !x.assigned && !x.held && p.now < wait.Until && p.next.expects(wait.Member):
		x.wait = wait
		x.wait.Until = min(wait.Until, p.now+int64(Patience))
	case wait.State != 0:
		p.awaitRange(x, wait.Member)
	}
	if x.leaver != "" {
		p.awaitRange(x, x.leaver)
	}
	if wait.State == 0 && x.prior >= 0 && x.prior != p.v.Self {
		p.awaitRange(x, p.v.Members[x.prior].Name)
	}
}

// misses reports whether this node owns the range, does not hold it, and does not wait for it yet.
func (x *part) misses() bool {
	return x.assigned && !x.held && !x.abandoned && x.wait.State == 0
}

// awaitRange waits for a missing range while the member that had it can be asked, and for HoldDown if
// that member has just gone.
func (p *passage) awaitRange(x *part, member string) {
	if !x.misses() {
		return
	}
	_, stays := p.next.Named[NameHash(member)]
	switch {
	case p.next.expects(member):
		x.wait = Entry{State: Awaited, Member: member, Until: Forever}
	case !stays && p.v.expects(member):
		x.wait = Entry{State: Vacant, Until: p.now + int64(HoldDown)}
		p.recalls = true
	case p.scattered: // that member may have given it to a missing one
		x.abandoned, p.recalls = true, true
	}
}

// takeRange takes a range that no member is left to give.
func (p *passage) takeRange(x *part) { x.held = x.held || x.misses() }

// scattered reports whether members are missing or were until just now: what happened
// among them, this node does not know.
func (v *View) scattered(now int64) bool {
	return v.Side < len(v.Points) || v.healing(now)
}

// strays reports whether others than a member that has gone are missing, or were until
// just now.
func (v *View) strays(gone uint64, now int64) bool {
	for _, i := range v.Points {
		if v.Next[i] < 0 {
			return true
		}
	}
	return v.healing(now) && slices.ContainsFunc(v.back, func(member uint64) bool { return member != gone })
}

// expects reports whether a member may yet hand over what it had.
func (v *View) expects(name string) bool {
	i, known := v.Named[NameHash(name)]
	return known && i != v.Self && !v.Away[i]
}

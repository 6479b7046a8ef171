package view

import (
	"math"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// Route is the path of a check.
type Route struct {
	Way way
	To  int // index in Members of the member that is to answer; -1 with NoWay
	Hop int // index in Members of the member to which the request is sent; differs from To if that member relays the request
}

// way is the kind of a Route.
type way uint8

const (
	Here    way = iota // this node has authority over the id
	Direct             // this node is connected to the member with authority
	Relay              // the request goes through another member on this side, because the member with authority is not connected
	StandIn            // a successor on this side answers, or the eldest joiner, because the member with authority is not known, is not reached, was lost less than HoldDown ago, or has stalled
	NoWay              // no member on this side can answer
)

// Route returns the route of a check for the given id.
func (v *View) Route(id bucket.ID, now int64) Route {
	owner := v.Owner(id)
	to := owner
	switch {
	case owner == v.Self && owner >= 0:
		if v.Settled || v.held.Contains(id.Hi) {
			return Route{Here, owner, owner}
		}
		to = v.holder(id)
	case !v.Settled && v.held.Contains(id.Hi) && !(v.Yields() && v.Reaches(owner)):
		return Route{Here, v.Self, v.Self}
	}
	switch {
	case to < 0:
	case v.Stalls(to):
	case v.Direct[to]:
		return Route{Direct, to, to}
	case v.Next[to] >= 0 && v.Overdue(to, now):
		return Route{Relay, to, v.Next[to]}
	}
	if s := v.StandIn(id, to); s >= 0 {
		return Route{StandIn, s, v.Next[s]}
	}
	if s := v.Eldest(); s >= 0 && s != to && len(v.Points) > 0 {
		return Route{StandIn, s, v.Next[s]}
	}
	return Route{NoWay, -1, -1}
}

// RenewalRoute returns the route of messages about a hold of this node. No caller waits for these
// messages, so they go through other members to an owner that was lost less than HoldDown ago,
// while the checks of that owner go to the stand-in.
func (v *View) RenewalRoute(id bucket.ID) Route { return v.Route(id, math.MaxInt64) }

// StandIn returns the member that answers if the member with the index absent is not reached, or
// has stalled. The stand-in is the first member on this side in ring order that is not absent and
// has not stalled. StandIn returns -1 if there is no such member. All members of the side find the
// same stand-in, unless a member has stalled for some of them.
func (v *View) StandIn(id bucket.ID, absent int) int {
	return v.firstHere(id, func(i int) bool { return i != absent && !v.Stalls(i) })
}

// successor returns the stand-in for a lost owner, which is the same for all members of this side.
func (v *View) successor(id bucket.ID) int {
	return v.firstHere(id, func(int) bool { return true })
}

// firstHere returns the first member in ring order that is on this side and for which the
// function wanted returns true.
func (v *View) firstHere(id bucket.ID, wanted func(i int) bool) int {
	return v.findFirst(id.Hi, func(i int) bool { return v.Next[i] >= 0 && wanted(i) })
}

// findFirst returns the first member in ring order for which the function wanted returns true, -1 if
// there is none.
func (v *View) findFirst(hash uint64, wanted func(i int) bool) int {
	var room [16]int
	for most := 4; ; most *= 4 {
		order := v.Ring.Order(room[:0], hash, most)
		for _, at := range order {
			if i := v.Points[at]; wanted(i) {
				return i
			}
		}
		if len(order) < most {
			return -1
		}
	}
}

// Eldest returns the joiner on this side that started first, -1 if there is none. If no other
// member of a side is left to answer, the eldest answers for all.
func (v *View) Eldest() int {
	eldest := -1
	for i, m := range v.Members {
		if v.Next[i] < 0 || m.Announced != cluster.Joining {
			continue
		}
		if eldest < 0 || m.Born.Before(v.Members[eldest].Born) { // of joiners that started at the same time, the first by name is the eldest
			eldest = i
		}
	}
	return eldest
}

// Onward returns the member to which this node passes a request on, and the new flags of the
// request; -1 if this node answers. This node relays a request for another member to that member.
// It also passes on a request about ids that another member answers for: the views of members
// differ while a change of membership spreads, and while authority moves. If this node is asked to
// stand in and reaches the owner, it first asks the owner.
func (v *View) Onward(h wire.Header, request []byte, now int64) (member int, flags uint8) {
	if to, known := v.Named[h.To]; known && to != v.Self {
		return to, h.Flags
	}
	stands := h.Flags&wire.FlagStandIn != 0
	switch {
	case !h.Op.Passes(), h.Flags&wire.PassBits >= wire.MaxPasses:
		return -1, 0
	case h.Op == wire.OpRefund:
		if receipt, stoodIn := wire.SpentBy(request); receipt != 0 && (stoodIn || !stands) {
			return -1, 0 // if the Age of a receipt is not known, only the member that gave the receipt can use it
		}
	}
	member = -1
	for i := range int(h.Asks) {
		id := wire.IDOf(request, i)
		owner := v.Owner(id)
		if owner == v.Self && v.Settled {
			return -1, 0
		}
		r := v.Route(id, now)
		w, to := r.Way, r.To
		if h.Flags&wire.PassBits > 0 && w != Here {
			from := v.holder(id)
			if from < 0 {
				from = v.memberOf(id, Transferred)
			}
			if from >= 0 && v.Direct[from] {
				// The owner waits for this node. This node awaits the range from the member from, or has
				// transferred the range to it.
				w, to = Direct, from
			}
		}
		passes := w == Direct || w == Relay
		if w == StandIn && to != v.Self && !v.Serves() { // a node that leaves, or has left, does not stand in for another member
			passes, flags = true, wire.FlagStandIn
		}
		if !passes || i > 0 && to != member {
			return -1, 0
		}
		member = to
	}
	return member, h.Flags&^wire.FlagStandIn + 1 | flags
}

// Awaits reports whether a request is a check for ids over which this node awaits authority, and
// the member that had authority has passed the check back to this node. In that case authority is
// in transit, and no member has it.
func (v *View) Awaits(h wire.Header, request []byte) bool {
	if v.Settled || v.Self < 0 || h.Op == wire.OpRefund || !h.Op.Checks() || h.Wait == 0 || h.Flags&wire.PassBits < 2 || h.To != v.Hashes[v.Self] {
		return false
	}
	for i := range int(h.Asks) {
		if v.holder(wire.IDOf(request, i)) < 0 {
			return false
		}
	}
	return true
}

// Declines reports whether this node leaves, or has left, and has no authority over an id of a
// request, so that it declines the request. Such a node does not stand in for another member,
// because it may be closed before a member learns of the granted units. Until the node has left, it
// still executes resets and accepts returned units.
func (v *View) Declines(h wire.Header, request []byte) bool {
	switch {
	case v.Stays():
		return false
	case v.Self < 0:
		return true
	}
	if h.Op.GivesBack() || h.Op == wire.OpReset {
		return false
	}
	for i := range int(h.Asks) {
		if !v.Holds(wire.IDOf(request, i)) {
			return true
		}
	}
	return false
}

// AllHere reports whether this node has authority for all of the asks, and returns true if there
// are no asks.
func (v *View) AllHere(all []wire.Ask, now int64) bool {
	for i := range all {
		if v.Route(all[i].ID, now).Way != Here {
			return false
		}
	}
	return true
}

// Speaks reports whether this node decides for its region about the holding of an id. A majority of
// the roster must be on the side of this node. In addition, this node must have authority, or stand
// in for the member with authority.
func (v *View) Speaks(id bucket.ID) bool {
	return v.Self >= 0 && (v.Holds(id) || !v.noMemberServes()) && (v.Complete || v.HasMajority()) && v.Answers(id) == v.Hashes[v.Self]
}

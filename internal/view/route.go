package view

import (
	"math"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// Route says where a check goes.
type Route struct {
	Way way
	To  int // index in Members of the one that is to answer; -1 if no way is left
	Hop int // and of the one to send it to, which is another where it is relayed
}

// way is why a check goes there.
type way uint8

const (
	Here    way = iota // this node has authority over the id
	Direct             // the member that has authority is connected: ask it
	Relay              // it is not connected, but another member on this side is connected to it
	StandIn            // no member here is connected to it, or it has stalled: the first successor on this side answers
	NoWay              // no way is left
)

// Route returns the route of a check for an id.
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

// RenewalRoute returns the route of the messages about a hold that a node has. No caller waits for them, so
// they go through other members to an owner that was lost less than HoldDown ago, whose checks go to the stand-in.
func (v *View) RenewalRoute(id bucket.ID) Route { return v.Route(id, math.MaxInt64) }

// StandIn is the member that answers where to is not reached, or has stalled: the
// first on this side in ring order that this node asks; -1 if there is none. It is the
// same for all of the side but for those that some have stalled for.
func (v *View) StandIn(id bucket.ID, to int) int {
	return v.firstHere(id, func(i int) bool { return i != to && !v.Stalls(i) })
}

// successor is the member that stands in for a lost owner, for all of this side.
func (v *View) successor(id bucket.ID) int {
	return v.firstHere(id, func(int) bool { return true })
}

// firstHere is the first member in ring order, of those on this side, that is as wanted.
func (v *View) firstHere(id bucket.ID, wanted func(i int) bool) int {
	return v.findFirst(id.Hi, func(i int) bool { return v.Next[i] >= 0 && wanted(i) })
}

// findFirst returns the first member in ring order that is as wanted, -1 if there is none.
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

// Eldest is the first to have started of those on this side that are about to join,
// -1 if there is none. Where nobody else is left of a side, it answers for all.
func (v *View) Eldest() int {
	eldest := -1
	for i, m := range v.Members {
		if v.Next[i] < 0 || m.Announced != cluster.Joining {
			continue
		}
		if eldest < 0 || m.Born.Before(v.Members[eldest].Born) { // the first by name of those of one age
			eldest = i
		}
	}
	return eldest
}

// Onward returns the member that a request goes on to, and its flags then; -1 if it is
// answered here. A request for another member is relayed towards it. One that is
// for this node, of ids that another answers for, is passed on: views differ
// while a change of membership spreads, and while authority moves. Asked to stand
// in, this node asks the owner first if it is connected to it.
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
			return -1, 0 // a receipt without an age means nothing but where it was given
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
				w, to = Direct, from // the owner waits for this node, which waited for that one, or gave to it
			}
		}
		passes := w == Direct || w == Relay
		if w == StandIn && to != v.Self && !v.Serves() { // a node that leaves, or has left, stands in for nobody
			passes, flags = true, wire.FlagStandIn
		}
		if !passes || i > 0 && to != member {
			return -1, 0
		}
		member = to
	}
	return member, h.Flags&^wire.FlagStandIn + 1 | flags
}

// Awaits reports whether a check has come to a node that waits for authority over what it
// asks for, and has been with whoever had that: it is on its way, and nobody has it.
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

// Declines reports whether this node leaves, or has left, and has no authority over what a
// request asks for, so that it hands the request back. It stands in for nobody: it may be closed
// before a member hears of what it granted. Until it has left it carries out resets, and takes what
// is given back.
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

// AllHere reports whether this node has authority for all of the asks. Of none it is
// true.
func (v *View) AllHere(all []wire.Ask, now int64) bool {
	for i := range all {
		if v.Route(all[i].ID, now).Way != Here {
			return false
		}
	}
	return true
}

// Speaks reports whether this node is the one of its region that decides about an id's
// holding: it has authority, or stands in for the one that has, with a majority of the roster.
func (v *View) Speaks(id bucket.ID) bool {
	return v.Self >= 0 && (v.Holds(id) || !v.nobodyServes()) && (v.Complete || 2*v.Side > max(len(v.Points), v.Expect)) && v.Answers(id) == v.Hashes[v.Self]
}

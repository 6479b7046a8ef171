package holds

import (
	"slices"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// asks contains the holds that this node requests from other members, and for each hold the grants
// that arrived too late, at most one of each member. While the request is in progress, another
// member may grant the hold because it knows of the late grant, or the same member may grant the
// hold again. So this node releases late grants only after the request has ended without a grant.
type asks map[ref][]lateGrant

// lateGrant is a grant that arrived after this node had stopped waiting for the member.
type lateGrant struct {
	from   cluster.Peer
	member uint64 // hash of the name of the member that was asked
	ask    wire.Ask
}

func (g *lateGrant) release() {
	b := wire.Header{Op: wire.OpRelease, Hops: wire.MaxHops, Asks: 1, To: g.member}.Append(nil)
	g.from.Send(g.ask.Append(b))
}

// RecordAsk records that this node asks other members for a hold of Name, until RecordGrant, Keep
// or GiveUp is called.
func (h *Holds) RecordAsk(a *wire.Ask) {
	name := refOf(a)
	s := h.table.lock(name.id)
	defer s.mu.Unlock()
	if s.asks == nil {
		s.asks = make(asks)
	}
	if _, asked := s.asks[name]; !asked {
		s.asks[name] = nil
	}
}

// GiveUp records that this node no longer asks for a hold of Name, which was not granted in time.
// It releases the late grants of the hold.
func (h *Holds) GiveUp(a *wire.Ask) {
	name := refOf(a)
	s := h.table.lock(name.id)
	late := s.asks[name]
	delete(s.asks, name)
	s.mu.Unlock()
	for i := range late {
		late[i].release()
	}
}

// LeaveQueue gives up a hold that waits in the queue. It notifies the member that answers for the
// count, so that the holds of other nodes do not wait for a further ask of this node.
func (h *Holds) LeaveQueue(a *wire.Ask) {
	h.GiveUp(a)
	left := *a
	left.Hold.Denied = true
	h.cfg.Checks.Send(wire.OpRelease, &left)
}

// HandleLateGrant handles a grant of an ask of Name that arrived after this node had stopped
// waiting for the member. It releases the hold, unless this node has the hold or still asks for it.
// A grant that this node requested for another node is not released: that node may have the hold by
// now, and the granting member will ask that node to confirm it.
func (h *Holds) HandleLateGrant(from cluster.Peer, member uint64, a *wire.Ask) {
	name, g := refOf(a), lateGrant{from, member, *a}
	if name.holder == h.self() && !h.table.isWanted(name, &g, h.cfg.Env.Monotonic()) {
		g.release()
	}
}

// isWanted reports whether this node has a hold, or still asks for it. In the latter case isWanted
// keeps the late grant g.
func (t *table) isWanted(name ref, g *lateGrant, now int64) bool {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	if late, asked := s.asks[name]; asked {
		if !slices.ContainsFunc(late, func(l lateGrant) bool { return l.member == g.member }) {
			s.asks[name] = append(late, *g)
		}
		return true
	}
	i, known := s.entryAt[name]
	r := s.record(name)
	return known && s.links[i].hold != nil || r != nil && r.isLive(now)
}

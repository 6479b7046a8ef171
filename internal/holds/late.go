package holds

import (
	"slices"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// asks are the holds that this node asks other members for, and of each what was granted too
// late, once for each member. While it asks, another member may grant the hold as it knows of
// the late grant, or the same member may as it is asked again. So what is late is released when
// no more is asked, and it is not held.
type asks map[ref][]lateGrant

// lateGrant is one that came after its asker had given up waiting for that member.
type lateGrant struct {
	from cluster.Peer
	to   uint64 // the member
	ask  wire.Ask
}

func (g *lateGrant) release() {
	b := wire.Header{Op: wire.OpRelease, Hops: wire.MaxHops, Asks: 1, To: g.to}.Append(nil)
	g.from.Tell(g.ask.Append(b))
}

// Asks notes that another member is to be asked for a hold of Name, until Has or GiveUp.
func (h *Holds) Asks(a *wire.Ask) {
	of := refOf(a)
	s := h.table.lock(of.id)
	defer s.mu.Unlock()
	if s.asks == nil {
		s.asks = make(asks)
	}
	if _, asked := s.asks[of]; !asked {
		s.asks[of] = nil
	}
}

// GiveUp records that a hold of Name is not asked for any more, and was not granted in time.
func (h *Holds) GiveUp(a *wire.Ask) {
	of := refOf(a)
	s := h.table.lock(of.id)
	late := s.asks[of]
	delete(s.asks, of)
	s.mu.Unlock()
	for i := range late {
		late[i].release()
	}
}

// LeaveQueue gives up a hold that was waited for. It notifies the member that answers for the count, so that
// other nodes do not wait until the hold is silent.
func (h *Holds) LeaveQueue(a *wire.Ask) {
	h.GiveUp(a)
	left := *a
	left.Hold.Denied = true
	h.cfg.Checks.Tell(wire.OpRelease, &left)
}

// Late takes in that a member granted an ask of Name after its asker had given up waiting, and
// releases what is not held. What this node has asked for another one is left to that one: it
// may hold it by now, and is asked to confirm that.
func (h *Holds) Late(from cluster.Peer, to uint64, a *wire.Ask) {
	of, g := refOf(a), lateGrant{from, to, *a}
	if of.holder == h.self() && !h.table.wants(of, &g, h.cfg.Env.Monotonic()) {
		g.release()
	}
}

// wants reports whether a hold of this node is held or asked for. While it is asked for, the
// grant is kept.
func (t *table) wants(of ref, g *lateGrant, now int64) bool {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	if late, asked := s.asks[of]; asked {
		if !slices.ContainsFunc(late, func(l lateGrant) bool { return l.to == g.to }) {
			s.asks[of] = append(late, *g)
		}
		return true
	}
	i, known := s.at[of]
	r := s.record(of)
	return known && s.links[i].hold != nil || r != nil && r.isLive(now)
}

package handover

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
)

// IsReady reports whether this node has authority over all keys that it owns, or is a joiner that answers
// through other members while a member is missing (weir.Node.Ready).
func (h *Handover) IsReady() bool {
	v := h.View()
	switch {
	case h.starting.Load() || v.Self < 0 || h.awaitsJoin(v):
		return false
	case v.Members[v.Self].Announced == cluster.Joining:
		return len(v.Points) > 0 && v.Side < len(v.Points) && !v.Yields()
	}
	return v.Serves() && len(v.Givers()) == 0
}

// awaitsJoin reports whether the node is not ready because it has met no other member of
// Config.Join, or because it is a joiner and reaches no serving member. On a busy machine gossip
// can arrive seconds before the first connection. If such a node were ready, a deploy would stop
// the member with the counts before another member has replicas. awaitsJoin returns true for at
// most JoinTimeout. After it has returned false, it does not return true again, because a name in Config.Join
// that resolved to this node alone may later resolve to other nodes too, and a ready node must stay in service.
// Only for a joiner that reaches all serving members, the result may become true again.
func (h *Handover) awaitsJoin(v *view.View) bool {
	if h.joined.Load() {
		return false
	}
	if h.age() < h.cfg.JoinTimeout {
		switch {
		case v.Met == 0 && len(h.cfg.Cluster.Stats().Unanswered) > 0, v.Joins() && v.Side == 0:
			return true
		case v.Joins() && v.Side == len(v.Points):
			return false // the node waits for its counts, and may lose its connections before it has them
		}
	}
	h.joined.Store(true)
	return false
}

// age returns the time since New.
func (h *Handover) age() time.Duration {
	return time.Duration(h.cfg.Env.Monotonic() - h.created)
}

// UnjoinedTime returns how long this node has run and met no member, although Config.Join names other nodes. It
// returns 0 if this node has met a member or has ended, or if Config.Join names no other node. The argument c is
// the present state of the cluster.
func (h *Handover) UnjoinedTime(c *cluster.Stats) time.Duration {
	if h.View().Met != 0 || len(c.Unanswered) == 0 || h.cfg.Env.Ended() {
		return 0
	}
	return h.age()
}

// ReportJoin logs the entries of Config.Join at which no member has answered within JoinTimeout, and the
// consequence. It waits until then.
func (h *Handover) ReportJoin() {
	select {
	case <-time.After(h.cfg.JoinTimeout - h.age()):
	case <-h.cfg.Env.Done():
		return
	}
	v, c := h.View(), h.cfg.Cluster.Stats()
	if v.Self < 0 || len(c.Unanswered) == 0 {
		return
	}
	unanswered := make([]string, 0, len(c.Unanswered))
	for _, entry := range slices.Sorted(maps.Keys(c.Unanswered)) {
		unanswered = append(unanswered, fmt.Sprintf("%s: %s", entry, c.Unanswered[entry]))
	}
	attrs := []any{"waited", h.cfg.JoinTimeout.String(), "unanswered", unanswered}
	if v.Met != 0 {
		h.cfg.Log.Warn("no member answered at some Join addresses; fix or remove them", attrs...)
	} else {
		h.cfg.Log.Warn("no other member has answered; this node counts alone: check Join, firewall and Advertise",
			append(attrs, "expect", h.cfg.Expect)...)
	}
}

package holds

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// LongestTerm is the longest time from the renewal of a client's hold to its end.
const LongestTerm = wire.LongestTTL

// NameClient sets the name of a client's hold and the time ttl in an ask for the hold, its renewal
// or its release.
func (h *Holds) NameClient(a *wire.Ask, c Client, ttl time.Duration) {
	a.Hold.Holder, a.Hold.Number, a.Hold.TTL, a.Hold.ClusterAge = c.Origin, c.Number, ttl, h.cfg.Cluster.Date()
}

// Keep stores the record of a client's hold that was granted or renewed, as r reports. If another
// member has answered, this node is the second member with the record. Otherwise Keep waits until
// another member has the record, as long as ctx allows. The time of the hold counts from a.Began,
// because the answer may be late.
func (h *Holds) Keep(ctx context.Context, a *wire.Ask, r *wire.Result) {
	name, v, now := refOf(a), h.cfg.Env.View(), h.cfg.Env.Monotonic()
	h.table.endAsk(name)
	if decided, known := h.table.recordOf(name); known && uint64(decided.renewal) == r.Renewal {
		h.secure(ctx, name)
		return
	}
	kept := record{ref: name, units: a.Units, renewal: renewal(r.Renewal), expires: a.Began + int64(a.Hold.TTL)}
	kept.forget = kept.expires
	if way := v.Route(name.id, now); way.To >= 0 && !r.StoodIn {
		kept.copied = kept.copyState([]uint64{v.Hashes[way.To]})
	}
	h.table.merge(kept, now)
}

// endAsk records that this node no longer asks for a hold that was granted.
func (t *table) endAsk(name ref) {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	delete(s.asks, name)
}

// Bury records on this node that a client's hold was released. If another member has executed the
// release, this node is the second member that knows of it. Otherwise Bury waits until another
// member knows, as long as ctx allows.
func (h *Holds) Bury(ctx context.Context, a *wire.Ask, r *wire.Result) {
	name := refOf(a)
	h.table.bury(name, tombstoneTTL{known: cutFound, unknown: int64(Term)}, h.cfg.Env.Monotonic())
	if r.Source != wire.Forwarded && r.Source != wire.Relayed {
		h.secure(ctx, name)
	}
}

// selfOf returns the hash of the name of this node, which identifies the node in messages, or 0 if the
// node has left.
func selfOf(v *view.View) uint64 {
	if v.Self >= 0 {
		return v.Hashes[v.Self]
	}
	return 0
}

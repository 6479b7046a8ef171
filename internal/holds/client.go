package holds

import (
	"context"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// LongestTerm is the longest time for which a client's hold is renewed.
const LongestTerm = time.Hour

// NameClient makes a an ask for a client's hold, or its renewal or release. Its term is ttl.
func (h *Holds) NameClient(a *wire.Ask, c Client, ttl time.Duration) {
	limit := *a.Limit
	limit.Per = ttl
	a.Limit, a.Receipt, a.ResetNumber, a.ReceiptAge = &limit, bucket.Receipt(c.Number), c.Origin, h.cfg.Date()
}

// receipt names the renewal of a record in a result.
func (r *record) receipt() bucket.Receipt { return bucket.Receipt(r.renewal) }

// Keep keeps the record of a client's hold that was granted or renewed, as r says, and waits until
// a second member has it: this node, if another one has answered; otherwise another, as long as ctx
// allows. The hold's time counts from a.Began, because the answer may be late.
func (h *Holds) Keep(ctx context.Context, a *wire.Ask, r *wire.Result) {
	of, v, now := refOf(a), h.cfg.View(), h.cfg.Clock.Steady()
	h.table.asked(of)
	if decided, known := h.table.recordOf(of); known && decided.receipt() == r.Receipt {
		h.secure(ctx, of)
		return
	}
	kept := record{ref: of, units: a.Units, renewal: renewal(r.Receipt), expires: a.Began + int64(a.Limit.Per)}
	kept.forget = kept.expires
	if way := v.Route(of.id, now); way.To >= 0 && !r.StoodIn {
		kept.copied = kept.copyState([]uint64{v.Hashes[way.To]})
	}
	h.table.merge(kept, now)
}

// asked records that a hold is not asked for any more, as it was granted.
func (t *table) asked(of ref) {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	delete(s.asks, of)
}

// Bury records here that a client's hold was released, and waits until a second member knows: this
// node, if another one has carried out the release; otherwise another, as long as ctx allows.
func (h *Holds) Bury(ctx context.Context, a *wire.Ask, r *wire.Result) {
	of := refOf(a)
	h.table.bury(of, tombstoneTTL{known: cutFound, unknown: int64(Term)}, h.cfg.Clock.Steady())
	if r.Source != wire.Forwarded && r.Source != wire.Relayed {
		h.secure(ctx, of)
	}
}

// selfOf is how other members name this node.
func selfOf(v *view.View) uint64 {
	if v.Self >= 0 {
		return v.Hashes[v.Self]
	}
	return 0
}

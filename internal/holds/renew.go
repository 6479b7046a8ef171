package holds

import (
	"context"
	"maps"
	"slices"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// renew tells a member what this node has there, and sends the list of what differs.
func (h *Holds) renew(v *view.View, member uint64, digests []shardDigest, now int64) {
	agree := func(differs func(shard int) bool) (list []*Hold) {
		for _, d := range digests {
			if !differs(d.shard) {
				h.table.agree(d.shard, member, d.sum, now)
				continue
			}
			for from := 0; ; {
				from = h.table.own(d.shard, from, func(o *Hold) {
					if o.at.of == member {
						list = append(list, o)
					}
				})
				if from == 0 {
					break
				}
			}
		}
		return list
	}
	peer, to := h.peerOf(v, member)
	if peer == nil {
		return
	}
	header := wire.Header{Op: wire.OpRenew, Hops: wire.MaxHops, Wait: renewWait / 2, To: to}
	answer, err := env.Call(h.cfg.Life.Context(), peer, header, appendDigests(nil, h.self(), digests), renewWait)
	var differ shardSet
	if err != nil || len(answer) != len(differ) {
		return
	}
	copy(differ[:], answer)
	h.list(h.cfg.Life.Context(), v, member, kindList, agree(differ.has), func(told []*Hold) { h.table.renewed(told, now) })
}

// list sends a member a list of holds, and calls told with each part that it has taken in.
func (h *Holds) list(ctx context.Context, v *view.View, member uint64, kind byte, list []*Hold, told func([]*Hold)) {
	peer, to := h.peerOf(v, member)
	for peer != nil && len(list) > 0 {
		body, n := append64([]byte{kind}, list[0].holder), 0
		for ; n < len(list) && len(body) < pageBytes; n++ {
			body = appendListed(body, list[n])
		}
		header := wire.Header{Op: wire.OpRenew, Hops: wire.MaxHops, Wait: renewWait / 2, To: to}
		if _, err := env.Call(ctx, peer, header, body, renewWait); err != nil {
			return
		}
		told(list[:n])
		list = list[n:]
	}
}

// confirmAtOnce bounds the holds of a message of confirm.
const confirmAtOnce = pageBytes / 32

// confirm asks the holders of entries that were not renewed since then, of counts that this
// node answers for, and takes out those that their holder does not have.
func (h *Holds) confirm(v *view.View, stale []ref, since int64) {
	of := make(map[uint64][]ref) // by holder
	for _, e := range stale {
		if v.Holds(e.id) {
			of[e.holder] = append(of[e.holder], e)
		}
	}
	holders := slices.Collect(maps.Keys(of))
	env.Gather(len(holders), callsAtOnce, func(i int) {
		for page := range slices.Chunk(of[holders[i]], confirmAtOnce) {
			has, err := h.confirmAt(v, holders[i], page)
			if err != nil || len(has) != len(page) {
				return
			}
			for i, has := range has {
				if has == 0 {
					h.table.endStale(page[i], since)
				}
			}
		}
	})
}

// confirmAt returns a byte for each of the holds of a holder, 0 where it does not have it.
func (h *Holds) confirmAt(v *view.View, holder uint64, of []ref) ([]byte, error) {
	if holder == h.self() {
		has := make([]byte, len(of))
		for i := range of {
			has[i] = h.has(&of[i])
		}
		return has, nil
	}
	peer, to := h.peerOf(v, holder)
	if peer == nil {
		return nil, env.ErrUnreached
	}
	header := wire.Header{Op: wire.OpRenew, Hops: wire.MaxHops, Wait: renewWait / 2, To: to}
	return env.Call(h.cfg.Life.Context(), peer, header, appendConfirm(nil, holder, of), renewWait)
}

// has answers confirm for one hold.
func (h *Holds) has(of *ref) byte {
	if h.table.find(*of) != nil {
		return 1
	}
	return 0
}

// ServeRenew answers renew, list and confirm. It returns what follows the header of the answer.
func (h *Holds) ServeRenew(message, dst []byte) ([]byte, error) {
	now := h.cfg.Clock.Steady()
	m, err := parseRenew(message, now)
	if err != nil {
		return nil, err
	}
	switch m.kind {
	case kindDigests:
		var differ shardSet
		for _, d := range m.digests {
			if !h.table.renew(m.holder, d.shard, d.sum, now) {
				differ.set(d.shard)
			}
		}
		dst = append(dst, differ[:]...)
	case kindList:
		for i := range m.list {
			h.table.put(m.list[i])
		}
	case kindEnded:
		for i := range m.list {
			h.table.end(m.list[i].ref)
		}
	case kindConfirm:
		if m.holder != h.self() {
			return nil, wire.ErrMalformed
		}
		for i := range m.list {
			dst = append(dst, h.has(&m.list[i].ref))
		}
	}
	return dst, nil
}

// entry is what another member knows of a hold.
func (o *Hold) entry(now int64) entry { return entry{o.ref, o.units, int64(o.term()), now} }

// shardSet is a set of shards.
type shardSet [shards / 8]byte

func (b *shardSet) set(shard int)      { b[shard/8] |= 1 << (shard % 8) }
func (b *shardSet) has(shard int) bool { return b[shard/8]&(1<<(shard%8)) != 0 }

// peerOf returns what leads to a member, and whom a request to it is for; nil if nothing does.
func (h *Holds) peerOf(v *view.View, member uint64) (peer cluster.Peer, to uint64) {
	i, known := v.Named[member]
	if !known || i == v.Self || v.Next[i] < 0 {
		return nil, 0
	}
	return v.Members[v.Next[i]].Peer, member
}

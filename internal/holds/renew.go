package holds

import (
	"context"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// renew tells a member what this node has there, and sends the list of what differs.
func (h *Holds) renew(v *view.View, member uint64, digests []shardDigest, now int64) {
	self := h.self()
	agree := func(differs func(shard int) bool) (list []*Hold) {
		for _, d := range digests {
			if !differs(d.shard) {
				h.own.agree(d.shard, member, d.sum, now)
				continue
			}
			for from := 0; ; {
				from = h.own.each(d.shard, from, func(o *Hold) {
					if o.at == member {
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
	if member == self {
		var differ shardSet
		for _, d := range digests {
			if !h.table.renew(self, d.shard, d.sum, now) {
				differ.set(d.shard)
			}
		}
		list := agree(differ.has)
		for _, o := range list {
			h.table.put(o.entry(now))
		}
		h.own.renewed(list, now)
		return
	}
	peer, to := h.peerOf(v, member)
	if peer == nil {
		return
	}
	header := wire.Header{Op: wire.OpRenew, Hops: wire.MaxHops, Wait: renewWait / 2, To: to}
	answer, err := env.Call(h.cfg.Life.Context(), peer, header, appendDigests(nil, self, digests), renewWait)
	var differ shardSet
	if err != nil || len(answer) != len(differ) {
		return
	}
	copy(differ[:], answer)
	h.list(h.cfg.Life.Context(), v, member, kindList, agree(differ.has), func(told []*Hold) { h.own.renewed(told, now) })
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

// ServeRenew answers renew. It returns what follows the header of the answer.
func (h *Holds) ServeRenew(message, dst []byte) ([]byte, error) {
	now := h.cfg.Clock.Steady()
	holder, digests, list, ended, err := parseRenew(message, now)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if ended {
			h.table.end(list[i].ref)
		} else {
			h.table.put(list[i])
		}
	}
	if list != nil {
		return dst, nil
	}
	var differ shardSet
	for _, d := range digests {
		if !h.table.renew(holder, d.shard, d.sum, now) {
			differ.set(d.shard)
		}
	}
	return append(dst, differ[:]...), nil
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

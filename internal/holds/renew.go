package holds

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// renew sends a member the digests of the holds that the member renews, and then the list of these holds in
// the shards whose digests differ.
func (h *Holds) renew(v *view.View, member uint64, digests []shardDigest, now int64) {
	answer, err := h.call(h.cfg.Env.Context(), v, member, wire.OpRenew, appendDigests(nil, h.self(), digests), renewWait)
	var differ shardSet
	if err != nil || len(answer) != len(differ) {
		return
	}
	copy(differ[:], answer)
	var list []*Hold
	for _, d := range digests {
		if differ.contains(d.shard) {
			list = h.table.listOwn(list, d.shard, func(o *Hold) bool { return o.renewer.node == member })
		} else {
			h.table.recordAgreement(d.shard, member, d.sum, now)
		}
	}
	h.sendList(h.cfg.Env.Context(), v, member, kindList, list, func(acknowledged []*Hold) { h.table.recordRenewals(acknowledged, now) })
}

// sendList sends a list of holds to a member in messages of the given kind, and calls acknowledged
// with each part that the member has acknowledged.
func (h *Holds) sendList(ctx context.Context, v *view.View, member uint64, kind byte, list []*Hold, acknowledged func([]*Hold)) {
	for len(list) > 0 {
		body, n := append64([]byte{kind}, list[0].holder), 0
		for ; n < len(list) && len(body) < pageBytes; n++ {
			body = appendListed(body, list[n])
		}
		if _, err := h.call(ctx, v, member, wire.OpRenew, body, renewWait); err != nil {
			return
		}
		acknowledged(list[:n])
		list = list[n:]
	}
}

// reportHold sends a hold to the owner, if the owner is reached. It requests no response: if the
// message is lost, the next digest differs, and the owner gets the list.
func (h *Holds) reportHold(v *view.View, o *Hold) {
	route := v.RenewalRoute(o.id)
	if route.Way != view.Direct && route.Way != view.Relay {
		return
	}
	h.sendHold(v, o, route.To, route.Hop)
}

// sendHold sends a hold to a member, and requests no response.
func (h *Holds) sendHold(v *view.View, o *Hold, to, hop int) {
	b := wire.Header{Op: wire.OpRenew, Hops: wire.MaxHops, To: v.Hashes[to]}.Append(nil)
	b = append64(append(b, kindList), o.holder)
	v.Members[hop].Peer.Send(appendListed(b, o))
}

// confirmAtOnce is the maximum number of holds in a message to confirm.
const confirmAtOnce = pageBytes / 32

// confirm asks the holders to confirm entries that were not renewed since the given time, and
// removes entries that their holder does not have. It ignores an entry if another member answers
// for the count.
func (h *Holds) confirm(v *view.View, stale []ref, since int64) {
	now := h.cfg.Env.Monotonic()
	byHolder := make(map[uint64][]ref)
	for _, e := range stale {
		if v.Holds(e.id) || v.Route(e.id, now).To == v.Self {
			byHolder[e.holder] = append(byHolder[e.holder], e)
		}
	}
	holders := slices.Collect(maps.Keys(byHolder))
	env.Gather(len(holders), callsAtOnce, func(i int) {
		for page := range slices.Chunk(byHolder[holders[i]], confirmAtOnce) {
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

// confirmAt returns a byte for each of the given holds of a holder, 0 if the holder does not have
// the hold.
func (h *Holds) confirmAt(v *view.View, holder uint64, all []ref) ([]byte, error) {
	if holder == h.self() {
		has := make([]byte, len(all))
		for i := range all {
			has[i] = h.confirmByte(&all[i])
		}
		return has, nil
	}
	return h.call(h.cfg.Env.Context(), v, holder, wire.OpRenew, appendConfirm(nil, holder, all), renewWait)
}

// confirmByte returns the answer to a message to confirm, for one hold: 1 if this node has the hold.
func (h *Holds) confirmByte(name *ref) byte {
	if h.table.owns(*name) {
		return 1
	}
	return 0
}

// ServeRenew handles a message of wire.OpRenew, and appends the answer without the header. The
// error is wire.ErrMalformed, or errLate for a message that was in transit for too long.
func (h *Holds) ServeRenew(message, dst []byte) ([]byte, error) {
	now := h.cfg.Env.Monotonic()
	m, err := parseRenew(message, now)
	if err != nil {
		return nil, err
	}
	if h.isLate(m.date, renewWait) {
		return nil, errLate
	}
	switch m.kind {
	case kindDigests:
		var differ shardSet
		for _, d := range m.digests {
			if !h.table.renew(m.holder, d.shard, d.sum, now) {
				differ.add(d.shard)
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
	case kindRecords:
		dst = h.serveRecords(&m, dst, now)
	case kindConfirm:
		if m.holder != h.self() {
			return nil, wire.ErrMalformed
		}
		for i := range m.list {
			dst = append(dst, h.confirmByte(&m.list[i].ref))
		}
	}
	return dst, nil
}

// entry returns the entry of a hold on another member.
func (o *Hold) entry(now int64) entry { return entry{o.ref, o.units.Load(), now} }

// shardSet is a set of shards.
type shardSet [shards / 8]byte

func (b *shardSet) add(shard int)           { b[shard/8] |= 1 << (shard % 8) }
func (b *shardSet) contains(shard int) bool { return b[shard/8]&(1<<(shard%8)) != 0 }

// call sends a request to a member, and returns the answer that arrives within the time wait. The error is
// env.ErrUnreached if the member is not reached, errLate if this node was frozen in the meantime,
// or an error of env.Call.
func (h *Holds) call(ctx context.Context, v *view.View, member uint64, op wire.Op, body []byte, wait time.Duration) ([]byte, error) {
	i, known := v.Named[member]
	if !known || i == v.Self || v.Next[i] < 0 {
		return nil, env.ErrUnreached
	}
	header := wire.Header{Op: op, Hops: wire.MaxHops, Wait: wait / 2, To: member}
	sent := h.cfg.Env.Monotonic()
	answer, err := env.Call(ctx, v.Members[v.Next[i]].Peer, header, body, wait)
	if err == nil && h.cfg.Env.Monotonic()-sent > int64(wait+2*h.cfg.Timeout) {
		return nil, errLate // this node was frozen
	}
	return answer, err
}

var errLate = errors.New("weir: a message about holds was in transit for too long")

// isLate reports whether a message with a date was in transit for longer than the sender waits for
// the answer. Such a message is refused, and the sender repeats content that is still true. Two
// additional Timeouts are allowed: the first for the scheduling delay of the sender, and the second
// because the age of the cluster on the sender may be behind, by up to a round trip for each member
// on the path to the oldest member. A message without a date is not late.
//
// Without the refusal, a member that thaws could restore a hold that other members have forgotten. If holds
// expired by the age of the cluster, they would end too early when two clusters meet.
func (h *Holds) isLate(date, wait time.Duration) bool {
	return date > 0 && h.cfg.Cluster.Age()-date > wait+2*h.cfg.Timeout
}

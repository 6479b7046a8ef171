package holds

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Hold has the units that this node holds for a caller in its process. The zero Hold has no units.
type Hold struct {
	ref
	units     atomic.Int64 // changes under the lock of the shard, and never rises
	limit     *bucket.Limit
	partition wire.Policy

	// The lock of the shard guards the following fields.
	revoked bool          // the hold has ended without a release by its caller
	slot    int32         // index in the entries of the shard, or negative once the hold has ended
	lost    chan struct{} // channel of Lost; nil until a caller asks for it
	renewer *digest       // digest of the member that renews the hold; its node is 0 if no member may decide
	renewed int64         // monotonic time at which the hold was last granted, or renewed by itself or through an earlier digest than renewer
}

// IsGranted reports whether the hold was granted.
func (o *Hold) IsGranted() bool { return o.number != 0 }

// Lost returns a channel that is closed if the hold has ended without a release, so that other
// callers may get the units.
func (h *Holds) Lost(o *Hold) <-chan struct{} {
	s := h.table.lock(o.id)
	defer s.mu.Unlock()
	if o.lost == nil {
		o.lost = make(chan struct{})
		if o.revoked {
			close(o.lost)
		}
	}
	return o.lost
}

// recordGrant records a granted hold of this node, which the given member renews.
func (t *table) recordGrant(o *Hold, member uint64) {
	s := t.lock(o.id)
	defer s.mu.Unlock()
	i, known := len(s.entries)-1, true
	if i < 0 || s.entries[i].ref != o.ref { // the last entry is that of o if this node has just granted the hold
		var at int32
		at, known = s.entryAt[o.ref]
		i = int(at)
	}
	if !known {
		i = s.add(s.countOf(o.id), o.entry(o.renewed))
	}
	delete(s.asks, o.ref)
	s.links[i].hold, o.slot = o, int32(i)
	s.owned++
	s.renewAt(o, member)
}

// release removes a hold of this node. It returns the member that renewed the hold, and whether the
// hold had not ended before.
func (t *table) release(o *Hold) (member uint64, held bool) {
	s := t.lock(o.id)
	defer s.mu.Unlock()
	if o.slot < 0 {
		return 0, false
	}
	s.remove(int(o.slot))
	return o.renewer.node, true
}

// shrink lowers the units of a hold of this node. It returns the number of units that are left, and the member
// that renews the hold. If no unit would be left, or the hold has ended, left is 0, and nothing changes.
func (t *table) shrink(o *Hold, units int64) (left int64, member uint64) {
	s := t.lock(o.id)
	defer s.mu.Unlock()
	if o.slot < 0 {
		return 0, 0
	}
	had := o.units.Load()
	if left = had - max(0, units); left <= 0 {
		return 0, 0
	}
	o.units.Store(left)
	s.setUnits(int(o.slot), left)
	o.renewer.drop(&o.ref, had)
	o.renewer.add(&o.ref, left)
	return left, o.renewer.node
}

// TimeLeft returns the time after which this node gives up a hold, unless a member renews the hold before. It is 0
// once the hold has ended.
func (h *Holds) TimeLeft(o *Hold) time.Duration {
	s := h.table.lock(o.id)
	defer s.mu.Unlock()
	if o.slot < 0 {
		return 0
	}
	return max(0, time.Duration(max(o.renewed, o.renewer.renewed)-h.cfg.Env.Monotonic())+giveUpAfter)
}

// revoke is like release for a hold whose caller has not released it, and closes its channel.
func (t *table) revoke(o *Hold) (member uint64, held bool) {
	member, held = t.release(o)
	if held {
		s := t.lock(o.id)
		defer s.mu.Unlock()
		o.markLost()
	}
	return member, held
}

// markLost closes the channel of the hold, because its units may be granted to other callers. The
// caller must hold the lock of the shard.
func (o *Hold) markLost() {
	if o.revoked = true; o.lost != nil {
		close(o.lost)
	}
}

// owns reports whether this node's process has the hold with the given name.
func (t *table) owns(name ref) bool {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	i, known := s.entryAt[name]
	return known && s.links[i].hold != nil
}

// listOwn appends the holds of this node for which f returns true. Like visitEntries, it visits a part of the
// shard at a time, from the last to the first.
func (t *table) listOwn(list []*Hold, shard int, f func(*Hold) bool) []*Hold {
	s := &t.shards[shard]
	for from := math.MaxInt; from > 0; {
		s.mu.Lock()
		from = min(from, len(s.links))
		next := max(0, from-lookAtOnce)
		for i := from - 1; i >= next; i-- {
			if o := s.links[i].hold; o != nil && f(o) {
				list = append(list, o)
			}
		}
		from = next
		s.mu.Unlock()
	}
	return list
}

// lookAt checks a hold of this node. If no member has renewed the hold for 9/10 of Term, lookAt
// ends the hold, and closes its channel. Otherwise it updates the member that renews the hold. It
// reports whether the hold has ended. The caller must hold s.mu.
func (s *shard) lookAt(o *Hold, v *view.View, now int64, found *found) (ended bool) {
	switch {
	case now-max(o.renewed, o.renewer.renewed) > int64(giveUpAfter): // before a member grants the units again
		o.markLost()
		found.lost++
	default:
		if member := renewedAt(v, o); member != o.renewer.node {
			o.renewed = max(o.renewed, o.renewer.renewed)
			o.renewer.drop(&o.ref, o.units.Load())
			s.renewAt(o, member)
		}
		return false
	}
	s.remove(int(o.slot))
	return true
}

// renewAt adds a hold to the holds that a member renews; the member is 0 for no member. Each new
// hold changes the digest, and the member has to agree on the digest again. The caller must hold
// s.mu.
func (s *shard) renewAt(o *Hold, member uint64) {
	o.renewer = digestOf(s.members, member)
	o.renewer.add(&o.ref, o.units.Load())
}

// digests calls f, under the lock of a shard, with the digest of the holds of this node that a member renews, for
// each such member, and with the digest of the holds that no member renews (node 0).
func (t *table) digests(shard int, f func(*digest)) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	for member, d := range s.members {
		if d.entries == 0 {
			delete(s.members, member)
		} else {
			f(d)
		}
	}
}

// recordAgreement records that a member has renewed all holds with the given digest, which was sent at the
// given time.
func (t *table) recordAgreement(shard int, member, sum uint64, sent int64) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	if d := s.members[member]; d != nil && d.sum == sum {
		d.renewed = max(d.renewed, sent)
	}
}

// recordRenewals records that a member has renewed a list of holds, which was sent at the given time.
func (t *table) recordRenewals(holds []*Hold, sent int64) {
	for _, o := range holds {
		s := t.lock(o.id)
		o.renewed = max(o.renewed, sent)
		s.mu.Unlock()
	}
}

// renewedAt returns the member that renews a hold: the owner if this node reaches the owner, or
// else the stand-in, or else this node. It returns 0 if this node has left and reaches neither, or
// if that member may not grant so many units: FailClosed denies them, or its share is smaller than the
// hold. Other members may then grant the units of the hold.
func renewedAt(v *view.View, o *Hold) uint64 {
	route, as := v.RenewalRoute(o.id), view.AsStandIn
	member := route.To
	switch {
	case route.Way == view.NoWay:
		member, as = v.Self, view.AsSelf
	case route.Way == view.Here:
		as = view.AsOwner
	}
	if member < 0 {
		return 0
	}
	if as != view.AsOwner || !v.Complete {
		s, source := v.Share(as, o.id, o.partition)
		if part := s.Limit(o.limit); source == wire.FailedClosed || !s.All && part.Rate < o.units.Load() {
			return 0
		}
	}
	return v.Hashes[member]
}

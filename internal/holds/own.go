package holds

import (
	"math"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Hold is units that this node holds for a caller in its process. The zero Hold holds nothing.
type Hold struct {
	ref
	units     int64
	limit     *bucket.Limit
	partition wire.Policy

	// The lock of its shard guards what follows.
	over    bool          // nobody has renewed it for its term
	slot    int32         // in the shard; below 0 once it has ended
	lost    chan struct{} // nil until somebody asks for it
	at      *digest       // of the member that it is renewed at, which is 0 if none may decide
	renewed int64         // when it was last renewed by itself
}

// Holds reports whether the hold was granted.
func (o *Hold) Holds() bool { return o.number != 0 }

// Lost returns a channel that is closed if the units may have gone to others.
func (h *Holds) Lost(o *Hold) <-chan struct{} {
	s := h.table.lock(o.id)
	defer s.mu.Unlock()
	if o.lost == nil {
		o.lost = make(chan struct{})
		if o.over {
			close(o.lost)
		}
	}
	return o.lost
}

// has takes note of a hold that this node was granted, and that a member renews.
func (t *table) has(o *Hold, member uint64) {
	s := t.lock(o.id)
	defer s.mu.Unlock()
	i, known := len(s.entries)-1, true
	if i < 0 || s.entries[i].ref != o.ref { // this node has not granted it just now
		var at int32
		at, known = s.at[o.ref]
		i = int(at)
	}
	if !known {
		i = s.add(s.count(o.id), o.entry(o.renewed))
	}
	delete(s.asks, o.ref)
	s.links[i].hold, o.slot = o, int32(i)
	s.owned++
	s.renewAt(o, member)
}

// release takes out a hold of this node, and reports the member that it was renewed at, and
// whether it was there.
func (t *table) release(o *Hold) (member uint64, held bool) {
	s := t.lock(o.id)
	defer s.mu.Unlock()
	if o.slot < 0 {
		return 0, false
	}
	s.remove(int(o.slot))
	return o.at.of, true
}

// owns reports whether this node's process holds units by that name.
func (t *table) owns(of ref) bool {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	i, known := s.at[of]
	return known && s.links[i].hold != nil
}

// own appends the holds of this node that f selects. It looks at a part of the shard at a time, from
// the last to the first, as each does.
func (t *table) own(list []*Hold, shard int, f func(*Hold) bool) []*Hold {
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

// lookAt looks at a hold of this node. It ends one that no member has renewed for Term, and closes
// its channel, or finds where it is to be renewed. It reports whether the hold has ended. s.mu is
// held.
func (s *shard) lookAt(o *Hold, v *view.View, now int64, found *found) (ended bool) {
	switch {
	case now-max(o.renewed, o.at.renewed) > int64(Term)*9/10: // before anybody gives it away
		if o.over = true; o.lost != nil {
			close(o.lost)
		}
		found.lost++
	default:
		if member := renewedAt(v, o); member != o.at.of {
			o.renewed = max(o.renewed, o.at.renewed)
			o.at.drop(&o.ref, o.units)
			s.renewAt(o, member)
		}
		return false
	}
	s.remove(int(o.slot))
	return true
}

// renewAt counts a hold among those that a member renews, 0 for none. s.mu is held. A member has
// agreed to what it had before, so that a digest begins anew with each that joins.
func (s *shard) renewAt(o *Hold, member uint64) {
	o.at = digestOf(s.members, member)
	o.at.add(&o.ref, o.units)
}

// digests calls f with what is renewed at each member, of one shard, under its lock.
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

// agree notes that a member has renewed all that is renewed there, as it was sent then.
func (t *table) agree(shard int, member, sum uint64, sent int64) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	if d := s.members[member]; d != nil && d.sum == sum {
		d.renewed = max(d.renewed, sent)
	}
}

// renewed notes that a member has renewed holds one by one, as it was sent then.
func (t *table) renewed(holds []*Hold, sent int64) {
	for _, o := range holds {
		s := t.lock(o.id)
		o.renewed = max(o.renewed, sent)
		s.mu.Unlock()
	}
}

// renewedAt returns the member that renews a hold: the owner if this node reaches it, or else the stand-in.
// It returns 0 if that member may not grant as many units in a split, because another side may grant them.
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
		if part := s.Limit(o.limit); source == wire.FailedClosed || !s.All && part.Rate < o.units {
			return 0
		}
	}
	return v.Hashes[member]
}

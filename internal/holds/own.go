package holds

import (
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Hold is units that this node holds, for a caller in its process or for a client. The zero
// Hold holds nothing.
type Hold struct {
	ref
	units     int64
	limit     bucket.Limit
	partition wire.Policy

	// The lock of its shard guards what follows.
	lost    chan struct{} // nil until somebody asks for it
	over    bool          // nobody has renewed it for its term
	slot    int           // in the shard; below 0 once it is over
	at      uint64        // the member that it is renewed at, by the hash of its name; 0 if none may decide
	renewed int64         // when it was last renewed by itself
	until   int64         // when a client's hold ends that is not renewed; 0 if it is the process's
}

// ID is what is held of.
func (o *Hold) ID() bucket.ID { return o.id }

// Holds reports whether the hold was granted.
func (o *Hold) Holds() bool { return o.number != 0 }

// term is for how long it stays that nobody renews.
func (o *Hold) term() time.Duration { return termOf(&o.limit) }

// Lost returns a channel that is closed if the units may have gone to others.
func (h *Holds) Lost(o *Hold) <-chan struct{} {
	s := h.own.shard(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.lost == nil {
		o.lost = make(chan struct{})
		if o.over {
			close(o.lost)
		}
	}
	return o.lost
}

// own is what this node holds. It alone says so: other members know of it what they were
// told, and forget that after a term.
type own struct{ shards [shards]ownShard }

// ownShard is the holds of the ids of one shard.
type ownShard struct {
	mu    sync.Mutex
	holds []*Hold
	named map[uint64]*Hold  // by number
	at    map[uint64]digest // by the member that they are renewed at; its renewed is when that agreed
	next  int               // where look goes on
}

// add takes note of a hold that was granted.
func (w *own) add(o *Hold) {
	s := w.shard(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named == nil {
		s.named, s.at = make(map[uint64]*Hold), make(map[uint64]digest)
	}
	o.slot = len(s.holds)
	s.holds = append(s.holds, o)
	s.named[o.number] = o
	s.join(o)
}

// remove takes a hold out, and reports the member that it was renewed at, and whether it
// was there.
func (w *own) remove(o *Hold) (at uint64, held bool) {
	s := w.shard(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.slot < 0 {
		return 0, false
	}
	s.drop(o)
	return o.at, true
}

// find returns the hold of a number; nil if it is over.
func (w *own) find(id bucket.ID, number uint64) *Hold {
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.named[number]; o != nil && o.id == id {
		return o
	}
	return nil
}

// extend has a client's hold end later, and reports whether it was there.
func (w *own) extend(o *Hold, until int64) bool {
	s := w.shard(o.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.until = until
	return o.slot >= 0
}

// look goes through a part of a shard, and reports when the shard is done. It finds where
// each hold is to be renewed, takes out those of clients that are over, which it appends to
// ended, and those that nobody has renewed for their term, whose channels it closes.
func (w *own) look(shard int, v *view.View, now int64, ended []*Hold) (_ []*Hold, lost int, done bool) {
	s := &w.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.next + sweepAtOnce
	for s.next < end && s.next < len(s.holds) {
		o := s.holds[s.next]
		switch {
		case o.until != 0 && now >= o.until:
			s.drop(o)
			ended = append(ended, o)
			end--
			continue
		case now-max(o.renewed, s.agreed(o)) > int64(o.term())*9/10: // before anybody gives it away
			s.drop(o)
			if o.over = true; o.lost != nil {
				close(o.lost)
			}
			lost++
			end--
			continue
		}
		if at := renewedAt(v, o, now); at != o.at {
			o.renewed = max(o.renewed, s.agreed(o))
			s.leave(o)
			o.at = at
			s.join(o)
		}
		s.next++
	}
	if s.next < len(s.holds) {
		return ended, lost, false
	}
	s.next = 0
	return ended, lost, true
}

// each calls f with a part of a shard, as table.each does.
func (w *own) each(shard, from int, f func(*Hold)) (next int) {
	s := &w.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < len(s.holds) && i < from+sweepAtOnce; i++ {
		f(s.holds[i])
	}
	if from+sweepAtOnce < len(s.holds) {
		return from + sweepAtOnce
	}
	return 0
}

// digests calls f with what is renewed at each member, of one shard.
func (w *own) digests(shard int, f func(member, sum uint64)) {
	s := &w.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for member, d := range s.at {
		f(member, d.sum)
	}
}

// agree notes that a member has renewed all that is renewed there, as it was sent then.
func (w *own) agree(shard int, member, sum uint64, sent int64) {
	s := &w.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, known := s.at[member]; known && d.sum == sum {
		d.renewed = max(d.renewed, sent)
		s.at[member] = d
	}
}

// renewed notes that a member has renewed holds one by one, as it was sent then.
func (w *own) renewed(holds []*Hold, sent int64) {
	for _, o := range holds {
		s := w.shard(o.id)
		s.mu.Lock()
		o.renewed = max(o.renewed, sent)
		s.mu.Unlock()
	}
}

// count returns the holds.
func (w *own) count() (holds int) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		holds += len(s.holds)
		s.mu.Unlock()
	}
	return holds
}

func (w *own) shard(id bucket.ID) *ownShard { return &w.shards[shardOf(id)] }

// agreed is when the member that a hold is renewed at has last renewed all of the shard.
func (s *ownShard) agreed(o *Hold) int64 {
	if o.at == 0 {
		return o.renewed
	}
	return s.at[o.at].renewed
}

// join counts a hold among those that are renewed where it is. s.mu is held. A member has
// agreed to what it had before, so that a digest begins anew with each that joins.
func (s *ownShard) join(o *Hold) {
	d, known := s.at[o.at]
	if !known {
		d.renewed = o.renewed
	}
	d.sum ^= o.hash(o.units)
	d.entries++
	s.at[o.at] = d
}

// leave is the opposite. s.mu is held.
func (s *ownShard) leave(o *Hold) {
	d := s.at[o.at]
	d.sum ^= o.hash(o.units)
	if d.entries--; d.entries == 0 {
		delete(s.at, o.at)
	} else {
		s.at[o.at] = d
	}
}

// drop takes a hold out. s.mu is held.
func (s *ownShard) drop(o *Hold) {
	s.leave(o)
	delete(s.named, o.number)
	last := len(s.holds) - 1
	s.holds[o.slot] = s.holds[last]
	s.holds[o.slot].slot = o.slot
	s.holds[last] = nil
	s.holds = s.holds[:last]
	o.slot = -1
}

// renewedAt is the member that renews a hold: the one that answers for it. Where that may not
// grant as much to anybody, in a split, nobody renews it: others may have the units.
func renewedAt(v *view.View, o *Hold, now int64) uint64 {
	way, as := v.Route(o.id, now), view.AsStandIn
	member := way.To
	switch {
	case way.Way == view.NoWay:
		member, as = v.Self, view.AsSelf
	case way.Way == view.Here:
		as = view.AsOwner
	}
	if member < 0 {
		return 0
	}
	if as != view.AsOwner || !v.Complete {
		s, source := v.Share(as, o.id, o.partition)
		if part := s.Limit(&o.limit); source == wire.FailedClosed || !s.All && part.Rate < o.units {
			return 0
		}
	}
	return v.Hashes[member]
}

package holds

import (
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Hold is units that this node holds, for a caller in its process or for a client.
type Hold struct {
	ID     bucket.ID
	Number uint64
	Units  int64

	holder    uint64 // this node, by the hash of its name
	partition wire.Policy
	term      time.Duration
	lost      chan struct{}

	// The lock of its shard guards what follows.
	slot    int    // in the shard; below 0 once it is over
	at      uint64 // the member that it is renewed at, by the hash of its name; 0 if none may decide
	renewed int64  // when it was last renewed by itself
	until   int64  // when a client's hold ends that is not renewed; 0 if it is the process's
}

func (o *Hold) ref() ref { return ref{o.ID, o.holder, o.Number} }

// hash is what the hold adds to a digest, as the entry at another member does.
func (o *Hold) hash() uint64 {
	r := o.ref()
	return r.hash(o.Units)
}

// Lost returns a channel that is closed if the units may have gone to others.
func (o *Hold) Lost() <-chan struct{} { return o.lost }

// own is what this node holds. It alone says so: other members know of it what they were
// told, and forget that after a term.
type own struct{ shards [shards]ownShard }

// ownShard is the holds of the ids of one shard.
type ownShard struct {
	mu    sync.Mutex
	holds []*Hold
	named map[uint64]*Hold   // by number
	at    map[uint64]*digest // by the member that they are renewed at; its renewed is when that agreed
	next  int                // where look goes on
}

// add takes note of a hold that was granted.
func (w *own) add(o *Hold) {
	s := w.shard(o.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named == nil {
		s.named, s.at = make(map[uint64]*Hold), make(map[uint64]*digest)
	}
	o.slot = len(s.holds)
	s.holds = append(s.holds, o)
	s.named[o.Number] = o
	s.join(o)
}

// remove takes a hold out, and reports the member that it was renewed at, and whether it
// was there.
func (w *own) remove(o *Hold) (at uint64, held bool) {
	s := w.shard(o.ID)
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
	if o := s.named[number]; o != nil && o.ID == id {
		return o
	}
	return nil
}

// extend has a client's hold end later, and reports whether it was there.
func (w *own) extend(o *Hold, until int64) bool {
	s := w.shard(o.ID)
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
		case now-max(o.renewed, s.agreed(o)) > int64(o.term)*9/10: // before anybody gives it away
			s.drop(o)
			close(o.lost)
			lost++
			end--
			continue
		}
		if at := renewedAt(v, o.ID, o.partition, now); at != o.at {
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
	if d := s.at[member]; d != nil && d.sum == sum {
		d.renewed = max(d.renewed, sent)
	}
}

// renewed notes that a member has renewed holds one by one, as it was sent then.
func (w *own) renewed(holds []*Hold, sent int64) {
	for _, o := range holds {
		s := w.shard(o.ID)
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
	if d := s.at[o.at]; d != nil && o.at != 0 {
		return d.renewed
	}
	return o.renewed
}

// join counts a hold among those that are renewed where it is. s.mu is held. A member has
// agreed to what it had before, so that a digest begins anew with each that joins.
func (s *ownShard) join(o *Hold) {
	d := s.at[o.at]
	if d == nil {
		d = &digest{renewed: o.renewed}
		s.at[o.at] = d
	}
	d.sum ^= o.hash()
	d.entries++
}

// leave is the opposite. s.mu is held.
func (s *ownShard) leave(o *Hold) {
	d := s.at[o.at]
	d.sum ^= o.hash()
	if d.entries--; d.entries == 0 {
		delete(s.at, o.at)
	}
}

// drop takes a hold out. s.mu is held.
func (s *ownShard) drop(o *Hold) {
	s.leave(o)
	delete(s.named, o.Number)
	last := len(s.holds) - 1
	s.holds[o.slot] = s.holds[last]
	s.holds[o.slot].slot = o.slot
	s.holds[last] = nil
	s.holds = s.holds[:last]
	o.slot = -1
}

// renewedAt is the member that renews a hold: the one that answers for it. A side that may
// grant nothing renews nothing.
func renewedAt(v *view.View, id bucket.ID, partition wire.Policy, now int64) uint64 {
	way, as := v.Route(id, now), view.AsStandIn
	member := way.To
	switch {
	case way.Way == view.NoWay:
		member, as = v.Self, view.AsSelf
	case way.Way == view.Here:
		as = view.AsOwner
	}
	if _, source := v.Share(as, id, partition); source == wire.FailedClosed || member < 0 {
		return 0
	}
	return v.Hashes[member]
}

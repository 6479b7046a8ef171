package holds

import "sync/atomic"

// room is how many more entries a table takes, for all its shards together: all holds of a
// count are in one of them. A shard takes some of it at a time, so that two keys seldom meet
// here, and gives back what it does not use when it is looked through.
type room struct {
	left   atomic.Int64
	atOnce int64 // what a shard takes, and keeps spare: of all shards an eighth of the table at most
	most   int   // entries of one shard
}

// mostOfShard bounds the entries of a shard of all but the largest tables, as a longer list
// is copied under its lock when it grows.
const mostOfShard = 1 << 16

func newRoom(most int) *room {
	r := &room{atOnce: min(max(1, int64(most)/(8*shards)), 64), most: max(mostOfShard, most/shards)}
	r.left.Store(int64(most))
	return r
}

// take returns how much a shard gets, 0 if none is left.
func (r *room) take() int {
	for left := r.left.Load(); left > 0; left = r.left.Load() {
		if some := min(left, r.atOnce); r.left.CompareAndSwap(left, left-some) {
			return int(some)
		}
	}
	return 0
}

// fits reports whether a shard has room for one more entry, and takes it if there is some. s.mu
// is held.
func (s *shard) fits(r *room) bool {
	for len(s.entries) >= s.room && len(s.entries) < r.most {
		more := r.take()
		if more == 0 {
			break
		}
		s.room += more
	}
	return len(s.entries) < min(s.room, r.most)
}

// spare gives back what a shard does not use, but for what it may soon. s.mu is held.
func (s *shard) spare(r *room) {
	if more := s.room - len(s.entries) - int(r.atOnce-1); more > 0 {
		s.room -= more
		r.left.Add(int64(more))
	}
}

package holds

import "sync/atomic"

// room bounds the holds of a table, for all its shards together: all holds of a count are in one
// of them. A shard takes a part of it at a time, so that two keys seldom meet here, and returns
// the rest when it is looked through.
type room struct {
	left   atomic.Int64
	atOnce int64 // the part that a shard takes, and keeps spare: of all shards an eighth of the table at most
	most   int   // holds of one shard
}

// mostOfShard bounds the holds of a shard of all but the largest tables, as a longer list
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

// quota is the part of a room that one shard has. The lock of the shard guards it.
type quota struct {
	of   *room
	size int
}

// fits reports whether there is room for one more beside those in use. It takes more of the room
// if the quota is used up.
func (q *quota) fits(used int) bool {
	for used >= q.size && used < q.of.most {
		more := q.of.take()
		if more == 0 {
			break
		}
		q.size += more
	}
	return used < min(q.size, q.of.most)
}

// trim returns the room that is not in use, except for the part that may be in use soon.
func (q *quota) trim(used int) {
	if more := q.size - used - int(q.of.atOnce-1); more > 0 {
		q.size -= more
		q.of.left.Add(int64(more))
	}
}

// used is how many entries and live records a shard has. s.mu is held.
func (s *shard) used() int { return len(s.entries) + len(s.live.at) }

// fits reports whether a shard has room for one more of these. s.mu is held.
func (s *shard) fits() bool { return s.room.fits(s.used()) }

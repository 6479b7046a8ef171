package holds

import "sync/atomic"

// room limits the number of holds in a table. The bound is for all shards together, because all
// holds of a count are in one shard. A shard takes several places at a time, so that two keys
// seldom contend for the room, and returns unused places when look visits the shard.
type room struct {
	free   atomic.Int64 // the number of places that have not been taken by a shard
	atOnce int64        // number of places that a shard takes at a time, and may keep unused: for all shards together, at most an eighth of the table
	most   int          // maximum number of holds of a shard
}

// mostOfShard bounds the holds of a shard, except in the largest tables, because a growing list
// is copied under the lock of the shard.
const mostOfShard = 1 << 16

func newRoom(most int) *room {
	r := &room{atOnce: min(max(1, int64(most)/(8*shards)), 64), most: max(mostOfShard, most/shards)}
	r.free.Store(int64(most))
	return r
}

// takePlaces returns the number of places that a shard gets, 0 if no place is left.
func (r *room) takePlaces() int {
	for left := r.free.Load(); left > 0; left = r.free.Load() {
		if some := min(left, r.atOnce); r.free.CompareAndSwap(left, left-some) {
			return int(some)
		}
	}
	return 0
}

// quota is the number of places that a shard has taken from the room. The lock of the shard guards
// it.
type quota struct {
	room *room
	size int
}

// fits reports whether there is room for another hold if the given number of places is in use. If all places of
// the quota are in use, it takes more of them from the room.
func (q *quota) fits(used int) bool {
	for used >= q.size && used < q.room.most {
		more := q.room.takePlaces()
		if more == 0 {
			break
		}
		q.size += more
	}
	return used < min(q.size, q.room.most)
}

// trim returns the places that are not in use to the room, except for atOnce-1 that may be in use
// soon.
func (q *quota) trim(used int) {
	if more := q.size - used - int(q.room.atOnce-1); more > 0 {
		q.size -= more
		q.room.free.Add(int64(more))
	}
}

// used returns the number of entries and live records of a shard. The caller must hold s.mu.
func (s *shard) used() int { return len(s.entries) + len(s.live.indexes) }

// fits reports whether there is room in the shard for another entry or live record. The caller must
// hold s.mu.
func (s *shard) fits() bool { return s.room.fits(s.used()) }

package countsync

import (
	"time"

	"github.com/weir-go/weir/bucket"
)

// recentFor is the minimum time for which a recent keeps an entry, unless there are too many entries.
const recentFor = time.Minute

// recent maps the ids of SlidingLog counts to values that were set recently. When latest has become
// as old as recentFor, or has too many entries, set moves its entries to older and deletes the entries
// that were in older. So the entry of a count that no longer changes is deleted. Between calls of set,
// no entry is deleted because of its age. The zero recent is empty.
type recent[V any] struct {
	latest, older map[bucket.ID]V
	began         int64 // time at which the first entry of latest was set
}

// get returns the value of an id.
func (r *recent[V]) get(id bucket.ID) (v V, known bool) {
	if v, known = r.latest[id]; !known {
		v, known = r.older[id]
	}
	return v, known
}

// set sets the value of an id. It may delete old entries, so that at most the given number of entries remains,
// or 2 if that is more.
func (r *recent[V]) set(id bucket.ID, v V, now int64, most int) {
	if age := now - r.began; r.latest == nil || age >= int64(recentFor) || age < 0 || len(r.latest) >= max(1, most/2) {
		r.older, r.latest, r.began = r.latest, make(map[bucket.ID]V), now
	}
	delete(r.older, id)
	r.latest[id] = v
}

// delete deletes the value of an id, if there is one.
func (r *recent[V]) delete(id bucket.ID) {
	delete(r.latest, id)
	delete(r.older, id)
}

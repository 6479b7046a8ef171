package countsync

import (
	"time"

	"github.com/weir-go/weir/bucket"
)

// recentFor is the time for which a recent keeps an entry that is not set again.
const recentFor = time.Minute

// recent maps the ids of SlidingLog counts to values that were set in the last minute or two. set
// deletes older entries, because a count that no longer changes must not keep its entry. set also
// deletes entries if there are too many. The zero recent is empty.
type recent[V any] struct {
	latest, older map[bucket.ID]V
	began         int64 // when the first entry of latest was set
}

// get returns the value of an id.
func (r *recent[V]) get(id bucket.ID) (v V, known bool) {
	if v, known = r.latest[id]; !known {
		v, known = r.older[id]
	}
	return v, known
}

// set sets the value of an id. set deletes old entries, so that at most max(2, most) entries remain.
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

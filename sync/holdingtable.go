package countsync

import (
	"slices"
	"sync"

	"github.com/weir-go/weir/bucket"
)

// holdingShard contains the holdings of a shard of the ids.
type holdingShard struct {
	mu    sync.Mutex
	byID  map[bucket.ID]*holding
	all   []*holding // unordered
	queue []*holding // holdings for the next batch
	next  int        // index of the last visited holding in all
	began int64      // monotonic time at which the current sweep of all began
	swept int64      // monotonic time at which the last completed sweep began
}

// add adds a holding of an id that has none. The caller of add, drop and push must hold mu.
func (sh *holdingShard) add(x *holding) {
	if sh.byID == nil {
		sh.byID = make(map[bucket.ID]*holding)
	}
	x.index = len(sh.all)
	sh.all = append(sh.all, x)
	sh.byID[x.id] = x
	sh.push(x)
}

// drop removes a holding. drop returns the holding that takes its place in the list all. The current
// sweep may have passed that place, and then does not visit the moved holding.
func (sh *holdingShard) drop(x *holding) (moved *holding) {
	last := sh.all[len(sh.all)-1]
	sh.all[x.index], last.index = last, x.index
	sh.all = slices.Delete(sh.all, len(sh.all)-1, len(sh.all))
	delete(sh.byID, x.id)
	return last
}

// push adds a holding to the next batch.
func (sh *holdingShard) push(x *holding) {
	if !x.queued {
		x.queued = true
		sh.queue = append(sh.queue, x)
	}
}

// batch appends the holdings that must be visited now: the holdings that were pushed, and a part
// of all holdings.
func (sh *holdingShard) batch(list []*holding, monotonic int64) []*holding {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, x := range sh.queue {
		x.queued = false
		list = append(list, x)
	}
	clear(sh.queue)
	sh.queue = sh.queue[:0]
	for range (len(sh.all) + visitParts - 1) / visitParts {
		if sh.next++; sh.next >= len(sh.all) {
			sh.next, sh.swept, sh.began = 0, sh.began, monotonic
		}
		list = append(list, sh.all[sh.next])
	}
	if len(sh.all) == 0 {
		sh.swept, sh.began = monotonic, monotonic
	}
	return list
}

package countsync

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
)

// holdings are those of one shard of the ids. They are found without its lock, in a
// table with open addressing, of a power of two, where nothing moves: what is
// dropped leaves a mark, until the table is made anew.
type holdings struct {
	table atomic.Pointer[[]atomic.Pointer[holding]]

	mu    sync.Mutex
	used  int        // of table, marks included
	all   []*holding // in no order
	queue []*holding // those to be looked at next
	next  int        // of all, to be looked at
}

// dropped stands where a holding was.
var dropped = new(holding)

// find is an id's holding, nil if it has none.
func (sh *holdings) find(id bucket.ID) *holding {
	table := sh.table.Load()
	if table == nil {
		return nil
	}
	mask := uint64(len(*table) - 1)
	for i := id.Lo / holdingShards & mask; ; i = (i + 1) & mask {
		x := (*table)[i].Load()
		if x == nil || x.id == id && x != dropped {
			return x
		}
	}
}

// add adds a holding of an id that has none. The shard is locked.
func (sh *holdings) add(x *holding) {
	x.place = len(sh.all)
	sh.all = append(sh.all, x)
	sh.queue = append(sh.queue, x)
	table := sh.table.Load()
	if table != nil && (sh.used+1)*4 <= len(*table)*3 {
		sh.put(*table, x)
		return
	}
	size := 8
	for size < 2*len(sh.all) {
		size *= 2
	}
	anew := make([]atomic.Pointer[holding], size)
	sh.used = 0
	for _, x := range sh.all {
		sh.put(anew, x)
	}
	sh.table.Store(&anew)
}

func (sh *holdings) put(table []atomic.Pointer[holding], x *holding) {
	mask := uint64(len(table) - 1)
	i := x.id.Lo / holdingShards & mask
	for table[i].Load() != nil {
		i = (i + 1) & mask
	}
	table[i].Store(x)
	sh.used++
}

// drop forgets a holding. The shard is locked.
func (sh *holdings) drop(x *holding) {
	last := sh.all[len(sh.all)-1]
	sh.all[x.place], last.place = last, x.place
	sh.all = slices.Delete(sh.all, len(sh.all)-1, len(sh.all))
	table := *sh.table.Load()
	mask := uint64(len(table) - 1)
	for i := x.id.Lo / holdingShards & mask; ; i = (i + 1) & mask {
		if table[i].Load() == x {
			table[i].Store(dropped)
			return
		}
	}
}

// look has a holding looked at. The shard is not locked.
func (sh *holdings) look(x *holding) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.push(x)
}

// push is look, of a shard that is locked.
func (sh *holdings) push(x *holding) {
	if !x.queued.Swap(true) {
		sh.queue = append(sh.queue, x)
	}
}

// take is the holdings to be looked at: those for which somebody has called look,
// and of all others a part each time.
func (sh *holdings) take(list []*holding) []*holding {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	list = append(list, sh.queue...)
	clear(sh.queue)
	sh.queue = sh.queue[:0]
	for range (len(sh.all) + lookParts - 1) / lookParts {
		if sh.next++; sh.next >= len(sh.all) {
			sh.next = 0
		}
		list = append(list, sh.all[sh.next])
	}
	return list
}

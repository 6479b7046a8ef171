package countsync

import (
	"cmp"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// Items are queued, sent, lost and put back in any order. The queue returns them in the order of
// their times. Of items that were queued more than once, the queue keeps the first. If the
// queue has been long for a while, each id and kind waits once.
func TestQueueKeepsTheFirstOfEqualItems(t *testing.T) {
	checks(t, 150, 2000)
	rapid.Check(t, func(t *rapid.T) {
		q := queue{foldAt: rapid.IntRange(1, 40).Draw(t, "foldAt"), most: 1 << 20}
		waits := make(map[queued]int64) // the time since which each item waits
		var now int64
		var flight []item
		check := func() {
			there := make(map[queued]int64)
			n, last := 0, int64(0)
			for it := range q.waitingItems() {
				key := queued{it.id, it.kind}
				if _, twice := there[key]; !twice {
					there[key] = it.at
				} else if q.index != nil && q.fold >= q.folds {
					t.Fatalf("%v waits twice", key)
				}
				require.GreaterOrEqual(t, it.at, last, "%v comes after %d", it, last)
				n, last = n+1, it.at
			}
			for key, at := range waits {
				if since, ok := there[key]; !ok || since > at {
					t.Fatalf("%v waits since %d, and not %d: %v", key, at, since, ok)
				}
			}
			require.Equal(t, n, q.len())
			if oldest, ok := q.oldest(); ok {
				for it := range q.waitingItems() {
					require.GreaterOrEqual(t, it.at, oldest, "%v is older than the oldest, %d", it, oldest)
				}
			}
			require.Equal(t, n > 0, func() bool { _, ok := q.oldest(); return ok }())
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "items") {
					now += rapid.SampledFrom([]int64{1, 1, 1, int64(foldAfter / 10)}).Draw(t, "passes")
					it := item{id: bucket.ID{Hi: rapid.Uint64Range(1, 60).Draw(t, "id")}, at: now, kind: kind(rapid.IntRange(int(grants), int(spend)).Draw(t, "kind"))}
					if _, ok := waits[queued{it.id, it.kind}]; !ok {
						waits[queued{it.id, it.kind}] = now
					}
					require.True(t, q.push(it))
				}
			},
			"send": func(t *rapid.T) {
				flight = nil
				for range min(q.len(), rapid.IntRange(0, 20).Draw(t, "items")) {
					it := q.pop()
					flight = append(flight, it)
					delete(waits, queued{it.id, it.kind})
				}
				require.True(t, slices.IsSortedFunc(flight, func(a, b item) int { return cmp.Compare(a.at, b.at) }))
			},
			"lose": func(t *rapid.T) {
				q.putBack(flight)
				for _, it := range slices.Backward(flight) {
					waits[queued{it.id, it.kind}] = it.at
				}
				flight = nil
			},
		})
		for q.len() > 0 {
			it := q.pop()
			delete(waits, queued{it.id, it.kind})
		}
		require.Empty(t, waits)
	})
}

func TestFullQueueAcceptsWaitingIDs(t *testing.T) {
	q := queue{foldAt: 10, most: 20}
	for i := range 20 {
		require.True(t, q.push(item{id: someID(i), at: int64(i), kind: spend}))
	}
	require.False(t, q.push(item{id: someID(20), at: 20, kind: spend}))
	require.True(t, q.push(item{id: someID(15), at: 21, kind: spend}))
	require.False(t, q.push(item{id: someID(15), at: 22, kind: state}), "it waits with another kind")
	require.Equal(t, 20, q.len())
}

func TestDequeBehavesLikeASlice(t *testing.T) {
	checks(t, 150, 2000)
	rapid.Check(t, func(t *rapid.T) {
		var d deque[int]
		var list []int
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, blockLen).Draw(t, "n") {
					n++
					d.push(n)
					list = append(list, n)
				}
			},
			"front": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					n++
					d.pushFront(n)
					list = slices.Insert(list, 0, n)
				}
			},
			"pop": func(t *rapid.T) {
				for range min(len(list), rapid.IntRange(1, blockLen).Draw(t, "n")) {
					require.Equal(t, list[0], d.pop())
					list = list[1:]
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(list), d.len())
				for i, x := range d.elements() {
					if list[i] != *x {
						t.Fatalf("%d at %d, not %d", *x, i, list[i])
					}
				}
			},
		})
	})
}

// elements returns the elements with their indexes, from first to last.
func (d *deque[T]) elements() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range d.n {
			if !yield(i, d.element(i)) {
				return
			}
		}
	}
}

// waitingItems returns the items that wait.
func (q *queue) waitingItems() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, it := range q.items.elements() {
			if it.kind != merged && !yield(it) {
				return
			}
		}
	}
}

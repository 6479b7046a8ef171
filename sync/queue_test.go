package countsync

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// Whatever is queued, sent, lost and put back, the queue gives out what waits in order
// of its time and each unit once; and once it has been long for a while, each id once.
func TestAQueueKeepsOrderAndUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue{foldAt: rapid.IntRange(1, 40).Draw(t, "foldAt"), most: 1 << 20}
		never := func(*item) bool { return false }
		units := make(map[bucket.ID]int64) // that wait
		var now, built int64
		var flight []item
		check := func() {
			sum := make(map[bucket.ID]int64)
			n := 0
			for it := range q.all() {
				sum[it.id] += it.units
				n++
			}
			for _, it := range flight {
				sum[it.id] += it.units
			}
			for id, n := range units {
				require.Equal(t, n, sum[id])
			}
			require.Equal(t, n, q.len())
			if oldest, ok := q.oldest(); ok {
				for it := range q.all() {
					require.LessOrEqual(t, oldest, it.at)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "items") {
					now++
					it := item{id: bucket.ID{Hi: rapid.Uint64Range(1, 60).Draw(t, "id")}, units: 1, at: now, kind: state}
					units[it.id]++
					require.True(t, q.push(it, never))
				}
			},
			"send": func(t *rapid.T) {
				for _, it := range flight {
					units[it.id] -= it.units
				}
				flight = nil
				now++
				built = now
				for range min(q.len(), rapid.IntRange(0, 20).Draw(t, "items")) {
					flight = append(flight, q.pop())
				}
				require.True(t, slices.IsSortedFunc(flight, func(a, b item) int { return cmp.Compare(a.at, b.at) }))
			},
			"lose": func(t *rapid.T) {
				q.putBack(flight, never)
				for range min(len(flight), rapid.IntRange(0, 1).Draw(t, "riders")) {
					r := item{id: flight[0].id, units: 3, at: built, kind: state}
					units[r.id] += 3
					q.insert(r)
				}
				flight = nil
			},
		})
		for _, it := range flight {
			units[it.id] -= it.units
		}
		for q.len() > 0 {
			flight = append(flight[:0], q.pop())
			units[flight[0].id] -= flight[0].units
			flight = flight[:0]
		}
		for id, n := range units {
			require.LessOrEqual(t, n, int64(0), id)
		}
	})
}

func TestALongQueueHasEachIDOnce(t *testing.T) {
	q := queue{foldAt: 1000, most: 1 << 20}
	never := func(*item) bool { return false }
	const ids = 1500
	for i := range 20_000 {
		require.True(t, q.push(item{id: bucket.ID{Hi: uint64(i % ids)}, units: 1, at: int64(i + 1), kind: state}, never))
	}
	require.Equal(t, ids, q.len())
	for i := range ids {
		it := q.pop()
		require.EqualValues(t, i, it.id.Hi)
		require.EqualValues(t, i+1, it.at)
	}
	require.Zero(t, q.len())
}

func TestADequeIsAList(t *testing.T) {
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
				for i, x := range d.all() {
					if list[i] != *x {
						t.Fatalf("%d at %d, not %d", *x, i, list[i])
					}
				}
			},
		})
	})
}

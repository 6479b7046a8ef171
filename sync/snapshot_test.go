package countsync

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// written is the snapshot of a node.
type written struct {
	at     int64
	blocks [][]byte
}

func (n *node) snapshot() (s written) {
	s.at = n.w.now
	w := n.stream.NewSnapshot(func() Roles { return n })
	for b := w.Next(n.w.now, n.w.now); b != nil; b = w.Next(n.w.now, n.w.now) {
		s.blocks = append(s.blocks, bytes.Clone(b))
	}
	return s
}

func (n *node) load(t failer, s written) {
	for _, b := range s.blocks {
		if _, err := n.stream.Load(n.w.now, n.w.now, b, n); err != nil {
			t.Fatalf("loading: %v", err)
		}
	}
}

// All nodes stop, each with a last snapshot, and nodes with other names start. Some of the new nodes
// load each last snapshot, once or more, in any order. They also load older snapshots.
func TestUnitsInSnapshotsOfAllNodesCountOnce(t *testing.T) {
	checks(t, 100, 2000)
	rapid.Check(t, func(t *rapid.T) {
		limit := limitOf(bucket.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")))
		if limit.Algorithm == bucket.FixedWindow && rapid.Bool().Draw(t, "calendar") {
			limit.Start = 1
		}
		limit.Durable = true
		w := newWorld(t, limit, rapid.IntRange(1, 2).Draw(t, "ids"), rapid.IntRange(1, 2).Draw(t, "copies"))
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			w.start(0)
		}
		clear(w.joining)
		for _, id := range w.ids {
			w.nodes[0].holds[id] = true
		}
		w.refresh()
		var older []written
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
			if len(w.nodes) > 0 && rapid.IntRange(0, 9).Draw(t, "writes") == 0 {
				older = append(older, w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "which")].snapshot())
			}
		}
		w.quiet()
		w.check()
		older = slices.DeleteFunc(older, func(s written) bool { return w.now-s.at > effectiveFor })
		var last []written
		want := make(map[bucket.ID]int64)
		for _, id := range w.ids {
			want[id] = w.expected(id)
		}
		for _, n := range w.nodes {
			last = append(last, n.snapshot())
		}

		next := newWorld(t, limit, len(w.ids), w.copies)
		next.names = w.names
		next.now = w.now + rapid.Int64Range(-int64(time.Minute), int64(time.Hour)).Draw(t, "pause")
		for range rapid.IntRange(1, 4).Draw(t, "new nodes") {
			next.start(0)
		}
		clear(next.joining)
		for _, id := range next.ids {
			next.nodes[0].holds[id] = true
		}
		next.refresh()
		loads := slices.Concat(last, last, older)
		for _, i := range rapid.Permutation(indexes(len(loads))).Draw(t, "order") {
			if i < len(last) || rapid.Bool().Draw(t, "loaded") {
				next.nodes[rapid.IntRange(0, len(next.nodes)-1).Draw(t, "by")].load(t, loads[i])
			}
			if rapid.Bool().Draw(t, "exchanges") {
				next.rounds()
			}
		}
		for _, n := range next.nodes {
			n.stream.Loaded(next.now)
		}
		next.quiet()
		for _, id := range next.ids {
			for _, n := range next.nodes {
				// An older snapshot may contain units or resets that a crashed node has lost.
				least, most := want[id]-w.refunded[id], want[id]+w.spent[id]
				if w.resets[id] > w.number(id) {
					least, most = 0, w.admitted[id]
				}
				if limit.IsBucket() && next.now > w.now {
					least-- // a unit has drained
				}
				if used := next.used(n, id); n.holds[id] && (used < least || used > most) {
					t.Fatalf("%v: %d of %x are used, want %d to %d\n%s\n%s", limit.Algorithm, used, id.Hi, least, most, w.history(), next.history())
				}
			}
		}
	})
}

// The pieces of a large log are in several blocks. internal/snapshots accepts blocks of at most maxBlock bytes.
func TestTheLargestLogFitsABlock(t *testing.T) {
	const maxBlock, year = 1 << 20, 366 * 24 * time.Hour
	limit := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100_000, Per: year, Durable: true}
	s, now := loader(1), int64(time.Hour)
	for i := range limit.Rate {
		now += int64(year)/limit.Rate - i%1000
		s.store.Take(someID(1), &limit, now, 1)
	}
	next := loader(2)
	for _, b := range blocksOf(s, now) {
		require.Less(t, len(b), maxBlock)
		_, err := next.Load(now, now, b, holder{})
		require.NoError(t, err)
	}
	require.Equal(t, usedOf(s, now), usedOf(next, now))
	require.Equal(t, limit.Rate, usedOf(next, now)[someID(1)])
}

func indexes(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// A malformed block is rejected. A snapshot has no block for a count that is not Durable.
func TestMalformedBlockIsRejected(t *testing.T) {
	w := newWorld(t, bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: time.Hour}, 1, 1)
	n := w.start(0)
	n.store.Take(w.ids[0], &w.limit, w.now, 3)
	s := n.snapshot()
	require.Empty(t, s.blocks, "%d blocks of a limit that is not Durable", len(s.blocks))
	for name, b := range map[string][]byte{
		"no bytes": nil, "a later version": {2, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "only a head": {1, 0, 0, 0, 0, 0, 0, 0, 0},
		"more ids than bytes": {1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1}, "bytes after its items": {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
	} {
		if _, err := n.stream.Load(w.now, w.now, b, n); !errors.Is(err, ErrBlock) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

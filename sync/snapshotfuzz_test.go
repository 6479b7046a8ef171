package countsync

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// snapshotBlocks returns the blocks of two nodes that have exchanged counts of all algorithms, a
// log in pieces, units of both nodes, and a reset.
func snapshotBlocks(t testing.TB) (blocks [][]byte) {
	l := newUsedLink(t, true)
	log := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100_000, Per: 24 * time.Hour, Durable: true}
	for k := range int64(20_000) {
		l.stores[1].Take(someID(11), &log, l.now+k*k, 1)
	}
	l.now += int64(time.Second)
	l.streams[0].Reset(someID(3), l.now)
	l.streams[0].Owe(2, All())
	l.settle()
	for _, s := range l.streams {
		blocks = append(blocks, blocksOf(s, l.now)...)
	}
	return blocks
}

// blocksOf returns the blocks of a stream's snapshot.
func blocksOf(s *Stream, now int64) (blocks [][]byte) {
	w := s.NewSnapshot(func() Roles { return holder{} })
	for b := w.Next(now, now); b != nil; b = w.Next(now, now) {
		blocks = append(blocks, bytes.Clone(b))
	}
	return blocks
}

func FuzzLoad(f *testing.F) {
	loaded := 0
	for _, b := range snapshotBlocks(f) {
		counts, err := loader(1).Load(int64(time.Hour), int64(time.Hour), b, holder{})
		require.NoError(f, err)
		loaded += counts
		f.Add(b)
	}
	require.Greater(f, loaded, 20)
	f.Fuzz(func(t *testing.T, b []byte) {
		now := int64(time.Hour)
		for _, self := range []Member{1, 2} {
			s := loader(self)
			counts, err := s.Load(now, now, b, holder{})
			if err != nil && !errors.Is(err, ErrBlock) {
				t.Fatal(err)
			}
			if counts > len(b)/idBytes || s.ledger.all.len() > len(b) {
				t.Fatalf("%d counts and %d tallies of %d bytes", counts, s.ledger.all.len(), len(b))
			}
			for id, used := range usedOf(s, now) {
				// A limit may have been lowered, so that more than twice its units are used.
				require.False(t, used < 0 || used > 2*maxUnits, "%d are used of %x", used, id)
			}
			if err != nil {
				continue
			}

			// The counts do not change if the same block is loaded again.
			was := usedOf(s, now)
			_, err = s.Load(now, now, b, holder{})
			require.NoError(t, err)
			for id, used := range usedOf(s, now) {
				require.LessOrEqual(t, used, was[id], "%d used have become %d", was[id], used)
			}

			// The loaded data can be sent on, and written again for another node.
			s.Loaded(now)
			sendAll(t, s, now)
			again := loader(3)
			for _, block := range blocksOf(s, now) {
				_, err := again.Load(now, now, block, holder{})
				require.NoError(t, err)
			}
		}
	})
}

// loader returns a stream that has not loaded any blocks yet.
func loader(self Member) *Stream {
	s, _ := streamOf(self, 100, 1, 2, 3)
	return s
}

// usedOf returns the used units of each count.
func usedOf(s *Stream, now int64) map[bucket.ID]int64 {
	used := make(map[bucket.ID]int64)
	var ids []bucket.ID
	for cursor := uint64(0); ; {
		cursor, ids = s.store.Scan(cursor, ids[:0])
		for _, id := range ids {
			used[id], _, _ = s.store.Used(id, now)
		}
		if cursor == 0 {
			return used
		}
	}
}

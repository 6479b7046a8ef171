package holds

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/wire"
)

// A table denies at the latest when all keys together have the maximum number of holds. It may deny from
// seven eighths of this number on, because shards keep spare places. All holds of a key are in one
// shard, which has a maximum of its own.
func TestFullTableDenies(t *testing.T) {
	const most = 16 * 8 * shards
	holds := func(table *table, key, number uint64) bool {
		var r wire.Result
		table.hold(askFor(key, 1, number, 1, 1<<40), -1, false, 0, &r)
		require.Equal(t, r.Allowed, r.RetryAfter == 0)
		return r.Allowed
	}
	for _, c := range []struct {
		name        string
		most        int
		key         func(i uint64) uint64
		least, full int
	}{
		{"one key", most, func(uint64) uint64 { return 1 }, most, most},
		{"as many keys as shards", most, func(i uint64) uint64 { return i % shards }, most * 7 / 8, most},
		{"few keys", most, func(i uint64) uint64 { return i % 3 }, most * 7 / 8, most},
		{"one key in a small table", 100, func(uint64) uint64 { return 1 }, 100, 100},
		{"many keys in a small table", 100, func(i uint64) uint64 { return i }, 100, 100},
		{"one key in a large table", 1 << 20, func(uint64) uint64 { return 1 }, mostOfShard, mostOfShard},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, n := newTable(c.most, zeroAge), uint64(0)
			for holds(table, c.key(n), n) {
				n++
			}
			require.GreaterOrEqual(t, int(n), c.least)
			require.LessOrEqual(t, int(n), c.full)
			for i := range n {
				require.True(t, table.end(refOf(askFor(c.key(i), 1, i, 1, 1))))
			}
			table.lookAll(nil, 0, 0)
			for i := range uint64(c.least * 7 / 8) {
				require.True(t, holds(table, 77, i), "another key gets the room of the holds that have ended")
			}
		})
	}
}

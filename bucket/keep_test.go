package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An ask with Keep is decided, and waits, like an ask for that many more units without Keep, and
// spends the same units. It lends only other units. A limit with a higher Version keeps the same part of its units.
func TestAskLeavesTheUnitsThatItKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		if l.Algorithm == LeakyBucket || l.Capacity() < 2 {
			t.Skip("keeps nothing")
		}
		ordinary, now := l, int64(time.Hour)
		ordinary.Keep = rapid.Int64Range(1, l.Capacity()-1).Draw(t, "keep")
		s, reference, id := NewStore(8, Salt{}), NewStore(8, Salt{}), ID{Hi: 1}
		keep := ordinary.Keep
		changed := rapid.Bool().Draw(t, "changed")
		if newer := l; changed {
			newer.Version++
			newer.Rate, newer.Burst = min(3*l.Rate, maxUnits), min(3*l.Burst, maxUnits)
			s.Take(id, &newer, now, 1)
			reference.Take(id, &newer, now, 1)
			keep = int64(newer.capacity()) - int64(mulDiv(newer.capacity(), l.capacity()-uint64(keep), l.capacity()))
			l = newer
		}
		for range rapid.IntRange(1, 12).Draw(t, "asks") {
			if step := drawStep(t, &l); !changed { // a recovered count is judged by the limit of the ask
				now += max(0, step)
			}
			units := drawUnits(t, &ordinary)
			if rapid.Bool().Draw(t, "critical") {
				require.Equal(t, reference.Take(id, &l, now, units).Allowed, s.Take(id, &l, now, units).Allowed)
				continue
			}
			want := reference.Peek(id, &l, now, units+keep)
			used, _, _ := s.Used(id, now)
			var got Result
			if rapid.Bool().Draw(t, "lends") {
				lease := s.Lend(id, &ordinary, now, units, Lease{Units: units, Term: l.Per}, l.Per, Lease{}, &got)
				if after, _, _ := s.Used(id, now); lease.Units > 0 {
					require.LessOrEqual(t, after, l.Capacity()-keep, "lent kept units")
					return // the reference has lent nothing
				}
				if got.Allowed {
					require.True(t, reference.Take(id, &l, now, units).Allowed)
				}
			} else if got = s.Take(id, &ordinary, now, units); got.Allowed {
				require.True(t, reference.Take(id, &l, now, units).Allowed)
				require.Equal(t, max(0, l.Capacity()-keep-used-units), got.Remaining)
			} else {
				require.Equal(t, want.RetryAfter, got.RetryAfter)
			}
			require.Equal(t, want.Allowed, got.Allowed)
			require.Equal(t, l.Capacity()-keep, got.Limit)
		}
	})
}

// Asks with different Keep share a count, and a store has one entry for them.
func TestStoreDoesNotStoreKeep(t *testing.T) {
	s, id := NewStore(1, Salt{}), ID{Hi: 1}
	s.Track(1, 1, nil)
	for keep := range int64(9) {
		require.True(t, s.Take(id, &Limit{Rate: 100, Per: time.Second, Keep: keep}, 1, 1).Allowed)
	}
	require.LessOrEqual(t, len(s.shards[0].numbers.at), 2)
	var c Count
	_, _, exists := s.Export(id, 1, Mark{}, &c)
	require.True(t, exists)
	require.Zero(t, c.Limit.Keep)
}

package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An ask of n units with a Keep of k has the same decision and RetryAfter as an ask of n+k units without Keep,
// but spends n units. A debit with Keep spends as many units as without. No kept units are lent. A limit with a
// higher Version keeps the same part of its units.
func TestAskLeavesKeptUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		if l.Algorithm == LeakyBucket || l.Capacity() < 2 {
			t.Skip("keeps nothing")
		}
		ordinary, now := l, int64(time.Hour)
		ordinary.Keep = rapid.OneOf(rapid.Int64Range(1, l.Capacity()-1), rapid.Just(l.Capacity()/2), rapid.Just(l.Capacity()-1)).Draw(t, "keep")
		s, reference, id := NewStore(8, Salt{}), NewStore(8, Salt{}), ID{Hi: 1}
		keep, last := ordinary.Keep, Receipt(0)
		changed := rapid.Bool().Draw(t, "changed")
		if newer := l; changed {
			newer.Version++
			newer.Rate, newer.Burst = min(3*l.Rate+1, maxUnits), min(3*l.Burst+1, maxUnits)
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
			switch rapid.SampledFrom([]string{"take", "lend", "peek", "debit", "debit spent"}).Draw(t, "op") {
			case "lend":
				lease := s.Lend(id, &ordinary, now, units, Lease{Units: units, Term: l.Per}, l.Per, Lease{}, &got)
				if after, _, _ := s.Used(id, now); lease.Units > 0 {
					require.LessOrEqual(t, after, l.Capacity()-keep, "lent kept units")
					return // the reference has lent nothing
				}
				if got.Allowed {
					require.True(t, reference.Take(id, &l, now, units).Allowed)
				}
			case "take":
				if got = s.Take(id, &ordinary, now, units); !got.Allowed {
					require.Equal(t, want.RetryAfter, got.RetryAfter)
					break
				}
				last = got.Receipt
				require.True(t, reference.Take(id, &l, now, units).Allowed)
				require.Equal(t, max(0, l.Capacity()-keep-used-units), got.Remaining)
			case "peek":
				got = s.Peek(id, &ordinary, now, units)
				require.Equal(t, want.RetryAfter, got.RetryAfter)
				require.Equal(t, max(0, l.Capacity()-keep-used), got.Remaining)
			default:
				debit := func(s *Store, l *Limit) Result { return s.Debit(id, l, now, units) }
				if last != 0 {
					debit = func(s *Store, l *Limit) Result { return s.DebitSpent(id, l, now, units, Spent{Receipt: last}) }
				}
				got = debit(s, &ordinary)
				debit(reference, &l)
				after, _, _ := s.Used(id, now)
				require.Equal(t, max(0, l.Capacity()-keep-after), got.Remaining)
				require.Equal(t, l.Capacity()-keep, got.Limit)
				continue // RetryAfter after a debit is the time until a single unit is free, and not compared here
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

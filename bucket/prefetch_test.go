package bucket

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

func TestPrefetchChangesNothing(t *testing.T) {
	s := NewStore(10_000, Salt{1, 2})
	l := Limit{Rate: 10, Per: time.Hour}
	ids := []ID{{}, {1, 2}, {^uint64(0), ^uint64(0)}}
	s.Prefetch(nil)
	s.Prefetch(ids) // there is no table in any of the shards yet
	require.Zero(t, s.Len())
	for _, id := range ids {
		require.True(t, s.Take(id, &l, 0, 4).Allowed)
	}
	s.Prefetch(ids)
	for _, id := range ids {
		require.EqualValues(t, 6, s.Peek(id, &l, 0, 1).Remaining)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Prefetch(ids) }))
}

// Prefetch does not hold a lock, so the size of a table may change at the same time.
func TestPrefetchWorksWhileTablesMove(t *testing.T) {
	s := newStoreOf(1<<16, 1, Salt{1, 2})
	l := Limit{Rate: 10, Per: time.Second}
	var (
		others sync.WaitGroup
		over   = make(chan struct{})
	)
	for g := range 2 {
		others.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-over:
					return
				default:
					s.Prefetch([]ID{{i, uint64(g)}, {^i, i}})
				}
			}
		})
	}
	for round := range int64(testenv.PickFull(t, 6, 20)) {
		for i := range uint64(5_000) {
			require.True(t, s.Take(ID{i, uint64(round)}, &l, round*int64(time.Hour), 1).Allowed)
		}
		require.GreaterOrEqual(t, s.Len(), 5_000)
		s.Compact(round*int64(time.Hour) + int64(time.Minute))
	}
	close(over)
	others.Wait()
}

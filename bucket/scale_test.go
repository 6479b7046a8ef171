package bucket

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPartOfLimitDecidesUntilReplaced(t *testing.T) {
	whole := Limit{Rate: 100, Per: time.Minute, Version: 3}
	part := whole.Scale(30)
	id := ID{1, 2}
	for name, c := range map[string]struct {
		do     func(s *Store)
		whole  Limit // limit of the asks that follow
		judges bool
	}{
		"takes by the part":          {func(s *Store) { s.Take(id, &part, origin, 1) }, whole, true},
		"peek of another ID":         {func(s *Store) { s.Peek(ID{1, 3}, &whole, origin, 1) }, whole, true},
		"collected changes":          {func(s *Store) { s.collectAll(false, nil) }, whole, true},
		"larger table":               {func(s *Store) { crowd(s, 3000) }, whole, true},
		"units of another node":      {func(s *Store) { s.SpendElsewhere(id, &part, origin, 4) }, whole, true},
		"another part":               {func(s *Store) { l := whole.Scale(20); s.Take(id, &l, origin, 1) }, whole, false},
		"share of the part":          {func(s *Store) { l := part; l.Rate, l.Whole = 15, 30; s.Take(id, &l, origin, 1) }, whole, false},
		"whole, then the part again": {func(s *Store) { s.Take(id, &whole, origin, 1); s.Take(id, &part, origin, 1) }, whole, false},
		"cleared part":               {func(s *Store) { s.ClearPart(id) }, whole, false},
		"reset":                      {func(s *Store) { s.Reset(id, 0) }, whole, false},
		"count of another node":      {func(s *Store) { s.Import(id, &Count{Limit: part, x: 3}, origin, 0) }, whole, false},
		"ask with another Rate":      {func(*Store) {}, Limit{Rate: 101, Per: time.Minute, Version: 3}, false},
		"ask with another Per":       {func(*Store) {}, Limit{Rate: 100, Per: time.Hour, Version: 3}, false},
		"ask with another Algorithm": {func(*Store) {}, Limit{Algorithm: FixedWindow, Rate: 100, Per: time.Minute, Version: 3}, false},
		"ask with a newer Version":   {func(*Store) {}, Limit{Rate: 100, Per: time.Minute, Version: 4}, false},
		"ask with an older Version":  {func(*Store) {}, Limit{Rate: 100, Per: time.Minute, Version: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(1<<14, 2)
			s.Track(1, 1, nil)
			s.Take(id, &part, origin, 5)
			s.SetPart(id, &part)
			c.do(s)
			before, _, _ := s.Used(id, origin)
			uncollected := s.Uncollected(id)
			var r Result
			require.Equal(t, c.judges, s.TakePart(id, &c.whole, origin, 1, &r))
			after, _, _ := s.Used(id, origin)
			if !c.judges {
				require.Equal(t, before, after, "the units were taken")
				require.Zero(t, r)
				return
			}
			require.Equal(t, before+1, after)
			require.Equal(t, uncollected+1, s.Uncollected(id))
			require.Equal(t, Result{Allowed: true, Limit: 30, Remaining: 30 - after, ResetAfter: r.ResetAfter, Receipt: r.Receipt}, r)
		})
	}
}

func crowd(s *Store, n uint64) {
	l := Limit{Rate: 7, Per: time.Hour}
	for i := range n {
		s.Take(ID{i, i * 0x9e3779b97f4a7c15}, &l, origin, 1)
	}
}

func TestCollectedIsConsistentDuringTakes(t *testing.T) {
	for _, a := range []Algorithm{SlidingWindow, SlidingLog, FixedWindow, TokenBucket, LeakyBucket} {
		t.Run(a.String(), func(t *testing.T) {
			l := Limit{Algorithm: a, Rate: 50_000, Per: time.Hour}
			s, id := NewStore(100, Salt{}), ID{1, 2}
			s.Track(1, 1, nil)
			require.Zero(t, s.Collected(id, origin))
			s.Take(id, &l, origin, 5)
			require.Zero(t, s.Collected(id, origin))
			s.collectAll(false, nil)
			require.EqualValues(t, 5, s.Collected(id, origin))
			var spending sync.WaitGroup
			spending.Go(func() {
				for range 20_000 {
					s.Take(id, &l, origin, 1)
				}
			})
			for range 20_000 {
				if c := s.Collected(id, origin); c != 5 {
					require.EqualValues(t, 5, c)
				}
			}
			spending.Wait()
			s.Refund(id, &l, origin, 7, 0, false)
			require.EqualValues(t, 5, s.Collected(id, origin))
		})
	}
}

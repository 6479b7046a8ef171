package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// searchIDs returns IDs found by an attacker who knows the hash function: the IDs of a random
// sequence that the function choose accepts.
func searchIDs(n int, choose func(ID) bool) []ID {
	rng := rand.New(rand.NewPCG(11, 12))
	found := make([]ID, 0, n)
	for len(found) < n {
		if id := (ID{rng.Uint64(), rng.Uint64()}); choose(id) {
			found = append(found, id)
		}
	}
	return found
}

// probes returns the average and the maximum number of slots that a check of an ID reads, and the
// number of IDs in the fullest shard.
func probes(s *Store, ids []ID) (mean float64, most, fullest int) {
	total, shards := 0, map[*shard]int{}
	for _, id := range ids {
		sh, h := s.locate(id)
		at := sh.find(id, h, &s.placement)
		n := at - sh.home(h)
		if n < 0 {
			n += len(sh.slots)
		}
		total += n + 1
		most = max(most, n+1)
		shards[sh]++
		fullest = max(fullest, shards[sh])
	}
	return float64(total) / float64(len(ids)), most, fullest
}

// TestFullTableNeedsFewProbes searches for present and absent IDs in tables that would
// grow with the next count.
func TestFullTableNeedsFewProbes(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	s := newStoreOf(1<<20, 1, Salt{1, 2})
	l := &Limit{Rate: 10, Per: time.Hour}
	sh := &s.shards[0]
	var there []ID
	rng := rand.New(rand.NewPCG(3, 4))
	for len(there) < 50_000 || sh.n < room(len(sh.slots)) {
		id := ID{rng.Uint64(), rng.Uint64()}
		there = append(there, id)
		s.Take(id, l, 0, 1)
	}
	mean, most, _ := probes(s, there)
	require.Less(t, mean, 5.0)
	require.Less(t, most, 60)
	looked := 0
	for range 10_000 {
		id := ID{rng.Uint64(), rng.Uint64()}
		_, h := s.locate(id)
		require.Negative(t, sh.find(id, h, &s.placement))
		for i, n := sh.home(h), 0; sh.slots[i].limit != 0 && n <= sh.displacement(i, &s.placement); i, n = sh.nextSlot(i), n+1 {
			looked++
		}
	}
	require.Less(t, float64(looked)/10_000, 5.0)
}

// TestSimilarIDsSpreadLikeRandomIDs compares chosen IDs with random IDs. The fullest shard
// and the longest probe of random IDs differ between salts by up to tens of percent.
func TestSimilarIDsSpreadLikeRandomIDs(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	n := testenv.PickFull(t, 12_000, 50_000)
	l := &Limit{Rate: 10, Per: time.Hour}
	known := newPlacement(1024, Salt{})
	cases := map[string][]ID{
		"the first 16 bits of the second half": shapeIDs(n, func(id ID) ID { id.Lo = 0xbeef<<48 | id.Lo>>16; return id }),
		"the first 16 bits of the first half":  shapeIDs(n, func(id ID) ID { id.Hi = 0xbeef<<48 | id.Hi>>16; return id }),
		"the first 16 bits of both halves": shapeIDs(n, func(id ID) ID {
			return ID{0xbeef<<48 | id.Hi>>16, 0xbeef<<48 | id.Lo>>16}
		}),
		"the last 16 bits of both halves": shapeIDs(n, func(id ID) ID {
			return ID{id.Hi<<16 | 0xbeef, id.Lo<<16 | 0xbeef}
		}),
		"the first 48 bits of the second half": shapeIDs(n, func(id ID) ID { id.Lo = 0xbeefbeefbeef<<16 | id.Lo>>48; return id }),
		"the whole second half":                shapeIDs(n, func(id ID) ID { id.Lo = 0xbeef; return id }),
		"the shard, under a salt that leaked":  searchIDs(n, func(id ID) bool { return known.shardNumber(known.place(id)) == 7 }),
	}
	rng := rand.New(rand.NewPCG(13, 14))
	for range testenv.PickFull(t, 2, 5) {
		salt := Salt{rng.Uint64(), rng.Uint64()}
		random := NewStore(5_000_000, salt)
		fill(random, ids(n), l)
		mean, most, fullest := probes(random, ids(n))
		for name, chosen := range cases {
			t.Run(fmt.Sprintf("%s/%x", name, salt), func(t *testing.T) {
				s := NewStore(5_000_000, salt)
				fill(s, chosen, l)
				gotMean, gotMost, gotFullest := probes(s, chosen)
				require.Less(t, gotMean, 1.2*mean)
				require.Less(t, gotMost, 3*most)
				require.Less(t, gotFullest, fullest*3/2)
			})
		}
	}
}

// shapeIDs returns n IDs, each changed by the function as to look like an ID of an attacker.
func shapeIDs(n int, as func(ID) ID) []ID {
	all := ids(n)
	for i := range all {
		all[i] = as(all[i])
	}
	return all
}

func TestStoresOfOneSaltAreEqual(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	same, again, other := NewStore(10_000, Salt{1, 2}), NewStore(10_000, Salt{1, 2}), NewStore(10_000, Salt{1, 3})
	for _, s := range []*Store{same, again, other} {
		fill(s, ids(5_000), l)
	}
	require.True(t, slices.Equal(scan(same), scan(again)))
	require.False(t, slices.Equal(scan(same), scan(other)))
	require.True(t, slices.Equal(sorted(scan(same)), sorted(scan(other))))
}

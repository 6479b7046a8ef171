package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

// newStore returns a store with the given number of shards, always with the same salt.
func newStore(maxKeys, shards int) *Store { return newStoreOf(maxKeys, shards, Salt{}) }

// model implements the definition of the store: a map of counts, in which a count is
// forgotten as soon as it has recovered.
type model map[ID]*modelCount

type modelCount struct {
	limit Limit
	cell  cell
	log   log
}

func (m *modelCount) entries(l *Limit) *log {
	if l.Algorithm == SlidingLog {
		return &m.log
	}
	return nil
}

// count returns the count of id and the limit that judges it. If there is no count, it
// returns a new count.
func (m model) count(id ID, l *Limit, now int64) (*modelCount, *Limit) {
	c := m[id]
	if c == nil || c.limit.recoveryTime(&c.cell) <= now {
		delete(m, id)
		return &modelCount{limit: *l}, l
	}
	old := c.limit
	if l.Version < old.Version || l.Version == old.Version && l.Algorithm != old.Algorithm {
		return c, &old
	}
	if old != *l {
		if l.Version > old.Version || l.Algorithm.isBucket() {
			l.convert(&old, &c.cell, &c.log, now)
		}
		c.limit = *l
	}
	return c, l
}

func (m model) takeUnits(id ID, l *Limit, now, units int64) Result {
	c, l := m.count(id, l, now)
	r := l.takeUnits(&c.cell, c.entries(l), now, units)
	if r.Allowed {
		m[id] = c
	}
	return r
}

func (m model) debit(id ID, l *Limit, now, units int64) Result {
	c, l := m.count(id, l, now)
	m[id] = c
	r, _ := l.debit(&c.cell, c.entries(l), now, units)
	return r
}

func (m model) peek(id ID, l *Limit, now, units int64) Result {
	c, l := m.count(id, l, now)
	return l.peek(&c.cell, c.entries(l), now, units)
}

func (m model) refund(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool) bool {
	if m[id] == nil {
		return false
	}
	c, l := m.count(id, l, now)
	_, gave := l.refund(&c.cell, c.entries(l), now, units, r, onlyIfLast, Lease{})
	return gave
}

func (m model) live(now int64) int {
	n := 0
	for _, c := range m {
		if c.limit.recoveryTime(&c.cell) > now {
			n++
		}
	}
	return n
}

// checkStore checks the invariants of the store. It examines each slot of many stores, so it
// calls an assertion only for a failed check, because each call of an assertion walks the
// stack.
func checkStore(t require.TestingT, s *Store) {
	total := 0
	seen := make(map[ID]struct{}, s.Len())
	for i := range s.shards {
		sh := &s.shards[i]
		n, logs, beyond, judged := 0, map[uint32]bool{}, 0, make([]int32, len(sh.numbers.at))
		for j := range sh.slots {
			c := &sh.slots[j]
			if c.limit == 0 {
				if *c != (slot{}) {
					require.Zero(t, *c, "an empty slot is not zero")
				}
				continue
			}
			n++
			judged[sh.numbers.at[c.entryIndex()].first]++
			if _, twice := seen[c.id]; twice {
				require.Failf(t, "an ID is repeated", "%v", c.id)
			}
			seen[c.id] = struct{}{}
			if in, h := s.locate(c.id); in != sh || sh.find(c.id, h, &s.placement) != j {
				require.Failf(t, "an ID is not found in its slot", "%v", c.id)
			}
			if sh.numbers.at[c.entryIndex()].Algorithm == SlidingLog {
				if logs[c.log] {
					require.Failf(t, "two counts share a log", "%d", c.log)
				}
				logs[c.log] = true
			} else if c.isSaturated() {
				require.Contains(t, sh.changes.beyond, c.id)
				beyond++
			}
			if c.flags()&^parted != 0 {
				if c.limit&changed == 0 {
					require.Failf(t, "an ID is hurried and not changed", "%v", c.id)
				}
				if !slices.Contains(sh.changes.ids, c.id) {
					require.Contains(t, sh.changes.ids, c.id)
				}
			} else if units := sh.uncollected(sh.limitOf(c), c); units != 0 {
				require.Zero(t, units, "%v has units and is not changed", c.id)
			}
		}
		ch := sh.changes
		if ch != nil {
			for j := range sh.slots {
				if whose := sh.totalOf(j); whose.Origin == 0 && whose != (Total{}) {
					require.Zero(t, whose, "a total without an origin is not zero")
				}
			}
		}
		if n == 0 && sh.n == 0 && sh.slots == nil && ch == nil && len(logs)+len(sh.logs.logs)+len(judged) == 0 {
			continue // the initial state
		}
		for j := range judged[min(1, len(judged)):] {
			if judged[j+1] != sh.numbers.at[j+1].judged {
				require.Equal(t, judged[j+1], sh.numbers.at[j+1].judged, "counts of the limit with index %d", j+1)
			}
		}
		require.EqualValues(t, n, sh.n)
		require.LessOrEqual(t, sh.n, room(len(sh.slots)))
		require.Equal(t, len(sh.logs.logs)-len(sh.logs.unused), len(logs), "a log was lost")
		for _, i := range sh.logs.unused {
			if logs[i] {
				require.Failf(t, "an unused log is in use", "%d", i)
			}
			require.Zero(t, sh.logs.logs[i], "an unused log is not empty")
		}
		if ch != nil {
			require.Len(t, ch.spent, len(sh.slots))
			require.LessOrEqual(t, ch.floor, uint32(maxFloor))
			require.Len(t, ch.beyond, beyond, "units of a missing count")
			if len(ch.ids)+len(ch.touched) > 0 {
				require.NotZero(t, ch.tracker.changed[i/64].Load()&(1<<(i%64)))
			}
			if len(ch.hurried) > 0 {
				require.NotZero(t, ch.tracker.hurried[i/64].Load()&(1<<(i%64)))
			}
		}
		total += n
	}
	require.Equal(t, total, s.Len())
	require.LessOrEqual(t, int64(total), s.max)
}

// someLimits returns the limits from which the property tests draw: all algorithms, each with
// several rates, periods and versions.
func someLimits() []Limit {
	var limits []Limit
	for _, a := range algorithms {
		for _, l := range []Limit{
			{Rate: 10, Per: 1000},
			{Rate: 4, Per: 1000},
			{Rate: 10, Per: 3000},
			{Rate: 7, Per: 500, Version: 1},
			{Rate: 12, Per: 2000, Version: 2},
		} {
			l.Algorithm = a
			limits = append(limits, l)
		}
	}
	return limits
}

func crowdedIDs() []ID {
	var ids []ID
	for _, hi := range []uint64{0, 1} {
		for _, lo := range []uint64{0, 1, 2, 1 << 20, 1 << 62, 1<<62 | 1, 1 << 63, 1<<63 | 5, ^uint64(0), ^uint64(0) - 1} {
			ids = append(ids, ID{hi, lo})
		}
	}
	return ids
}

func TestStoreAgreesWithAMapOfCounts(t *testing.T) { rapid.Check(t, storeAgreesWithAMap) }

func FuzzStore(f *testing.F) { f.Fuzz(rapid.MakeFuzz(storeAgreesWithAMap)) }

func storeAgreesWithAMap(t *rapid.T) {
	limits, ids := someLimits(), crowdedIDs()
	s := newStore(1000, 1<<rapid.IntRange(0, 3).Draw(t, "shards"))
	m, now := model{}, int64(1_000_000)
	// Most runs use few limits, so that the limit of a count seldom changes.
	known := rapid.SliceOfN(rapid.SampledFrom(limits), 1, 4).Draw(t, "limits")
	receipts := []Receipt{0}
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		now += rapid.SampledFrom([]int64{0, 0, 1, 10, 300, 5000}).Draw(t, "elapsed")
		id := rapid.SampledFrom(ids).Draw(t, "id")
		l := rapid.SampledFrom(known).Draw(t, "limit")
		units := rapid.Int64Range(1, 12).Draw(t, "units")
		switch op := rapid.SampledFrom([]string{"take", "take", "take", "debit", "peek", "refund", "reset", "all", "compact"}).Draw(t, "op"); op {
		case "take":
			r := s.Take(id, &l, now, units)
			require.Equal(t, m.takeUnits(id, &l, now, units), r)
			receipts = append(receipts, r.Receipt)
		case "debit":
			require.Equal(t, m.debit(id, &l, now, units), s.Debit(id, &l, now, units))
		case "peek":
			before := s.Len()
			require.Equal(t, m.peek(id, &l, now, units), s.Peek(id, &l, now, units))
			require.Equal(t, before, s.Len(), "Peek inserted a count")
		case "refund":
			r := rapid.SampledFrom(receipts).Draw(t, "receipt")
			last := rapid.Bool().Draw(t, "onlyIfLast")
			require.Equal(t, m.refund(id, &l, now, units, r, last), s.Refund(id, &l, now, units, r, last))
		case "reset":
			s.Reset(id, 0)
			delete(m, id)
		case "all":
			chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, 20, rapid.ID).Draw(t, "ids")
			asks, want, all := make([]Ask, len(chosen)), make([]Result, len(chosen)), true
			for i, id := range chosen {
				asks[i] = Ask{ID: id, Limit: &l, Units: units, Shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0}
				want[i] = m.peek(id, &l, now, units)
				all = all && (want[i].Allowed || asks[i].Shadow)
			}
			for i, a := range asks {
				if all {
					want[i] = m.takeUnits(a.ID, a.Limit, now, a.Units)
				}
			}
			got := make([]Result, len(asks))
			require.Equal(t, all, s.TakeAll(asks, now, got))
			require.Equal(t, want, got)
		case "compact":
			s.Compact(now)
			require.Equal(t, m.live(now), s.Len(), "Compact kept recovered counts, or removed others")
		}
		require.GreaterOrEqual(t, s.Len(), m.live(now))
		require.Zero(t, s.Evicted())
		checkStore(t, s)
	}
}

func TestStoreGrowsAndShrinksWithoutLosingACount(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			short := &Limit{Algorithm: a, Rate: 2, Per: time.Second}
			long := &Limit{Algorithm: a, Rate: 3, Per: time.Hour}
			s := newStore(100_000, 8)
			all := ids(20_000)
			for i, id := range all {
				l := short
				if i%10 == 0 {
					l = long
				}
				require.True(t, s.Debit(id, l, epoch, l.Rate).Allowed)
			}
			checkStore(t, s)
			require.Equal(t, len(all), s.Len())
			now := epoch + int64(4*time.Second)
			for range len(s.shards) {
				s.Compact(now)
			}
			checkStore(t, s)
			require.Equal(t, len(all)/10, s.Len())
			for i, id := range all {
				l := short
				if i%10 == 0 {
					l = long
				}
				require.Equal(t, i%10 != 0, s.Peek(id, l, now, 3-int64(min(1, i%10))).Allowed)
			}
			for i := range s.shards {
				require.Less(t, len(s.shards[i].slots), 600, "the memory was kept")
				require.LessOrEqual(t, len(s.shards[i].logs.logs), 600, "the logs were kept")
			}
			for range len(s.shards) {
				s.Compact(now + int64(3*time.Hour))
			}
			require.Zero(t, s.Len())
			for i := range s.shards {
				require.Nil(t, s.shards[i].slots)
			}
			require.Zero(t, s.Evicted())
		})
	}
}

func TestTableGrowsForLiveCountsOnly(t *testing.T) {
	l := &Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Second}
	s := newStore(1_000_000, 1)
	now, all := epoch, ids(50_000)
	for i, id := range all {
		s.Take(id, l, now, 1) // recovers after 100 ms
		now += int64(time.Millisecond)
		if i > 1000 {
			require.Less(t, len(s.shards[0].slots), 400, "100 live counts at a time, and the table grew")
		}
	}
	require.Zero(t, s.Evicted())
	checkStore(t, s)
}

func TestRecoveredCountsAreNotEvictions(t *testing.T) {
	l := &Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Second}
	s := newStore(100, 1)
	all := ids(200)
	fill(s, all[:100], l)
	now := epoch + int64(time.Second)
	for _, id := range all[100:] {
		require.True(t, s.Take(id, l, now, 1).Allowed)
	}
	require.LessOrEqual(t, s.Len(), 100)
	gone := 0
	for _, id := range all[100:] {
		if _, held := s.Judge(id); !held {
			gone++
		}
	}
	require.EqualValues(t, gone, s.Evicted())
	require.Less(t, gone, 5, "counts of samples without a recovered count")
	checkStore(t, s)
}

func TestMaxKeysIsNeverExceeded(t *testing.T) {
	for _, c := range []struct{ max, shards int }{{0, 1}, {1, 64}, {2, 64}, {3, 1}, {100, 16}, {1000, 4}} {
		t.Run(fmt.Sprintf("max=%d/shards=%d", c.max, c.shards), func(t *testing.T) {
			l := &Limit{Algorithm: SlidingLog, Rate: 10, Per: time.Hour}
			s, most := newStore(c.max, c.shards), max(c.max, 1)
			var over atomic.Int64
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 9))
					results := make([]Result, 3)
					for i := range 1000 {
						id := ID{rng.Uint64(), rng.Uint64()}
						switch i % 3 {
						case 0:
							s.Take(id, l, epoch, 1)
						case 1:
							s.Debit(id, l, epoch, 1)
						case 2:
							s.TakeAll([]Ask{{id, l, 1, false}, {ID{1, rng.Uint64()}, l, 1, false}, {ID{2, rng.Uint64()}, l, 1, false}}, epoch, results)
						}
						if n := s.Len(); n > most {
							over.Store(int64(n))
						}
					}
				})
			}
			wg.Wait()
			require.Zero(t, over.Load(), "counts held")
			require.Positive(t, s.Len())
			require.LessOrEqual(t, s.total.Load(), int64(most))
			checkStore(t, s)
		})
	}
}

func TestConcurrentTakesAreExactAndNeverDeadlock(t *testing.T) {
	const (
		keys = 12
		rate = 400
	)
	for _, a := range algorithms {
		concurrentTakes(t, &Limit{Algorithm: a, Rate: rate, Per: time.Hour}, ids(keys))
	}
}

// concurrentTakes calls Take for a single ID and TakeAll for several.
func concurrentTakes(t *testing.T, l *Limit, all []ID) {
	s, taken := newStore(1000, 4), make([]atomic.Int64, len(all))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 11))
			results := make([]Result, len(all))
			for range 300 {
				chosen := rng.Perm(len(all))[:1+rng.IntN(len(all))]
				var asks []Ask
				for _, k := range chosen {
					asks = append(asks, Ask{all[k], l, 1, false})
				}
				allowed := false
				if len(asks) == 1 {
					allowed = s.Take(asks[0].ID, l, epoch, 1).Allowed
				} else {
					allowed = s.TakeAll(asks, epoch, results)
				}
				if allowed {
					for _, k := range chosen {
						taken[k].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	spent := false
	for k, id := range all {
		require.EqualValues(t, l.Rate-taken[k].Load(), s.Peek(id, l, epoch, 1).Remaining, "key %d was spent in a denied TakeAll", k)
		spent = spent || taken[k].Load() == l.Rate
	}
	require.True(t, spent, "no key ran out, so nothing was denied")
}

func TestChangingLimitsUseBoundedMemory(t *testing.T) {
	s := newStore(100, 1)
	all := ids(10)
	l := Limit{Algorithm: TokenBucket, Rate: 1000, Per: time.Hour}
	for v := range uint64(20_000) {
		l.Version = v
		require.True(t, s.Take(all[v%10], &l, epoch+int64(v)*int64(time.Minute), 1).Allowed)
		require.LessOrEqual(t, cap(s.shards[0].numbers.at), 64)
	}
	checkStore(t, s)
}

func TestEachShardHasRoomForASample(t *testing.T) {
	for keys, shards := range map[int]int{0: 1, 1: 1, 63: 1, 64: 2, 1000: 16, 1043: 32, 1_000_000: maxShards, 100_000_000: maxShards} {
		s := NewStore(keys, Salt{})
		require.Len(t, s.shards, shards, "%d keys", keys)
		require.EqualValues(t, shards-1, s.placement.mask)
	}
}

func TestBytesFollowTheNumberOfCounts(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	s, limit := NewStore(1<<20, Salt{}), Limit{Rate: 10, Per: time.Second}
	empty := s.Bytes()
	for i := range uint64(200_000) {
		s.Take(ID{Hi: i * 0x9E3779B97F4A7C15, Lo: i}, &limit, 0, 1)
	}
	full := s.Bytes()
	require.InDelta(t, 53, float64(full-empty)/200_000, 8, "bytes for each")
	for range 10_000 {
		s.Compact(int64(time.Minute))
	}
	require.Less(t, s.Bytes(), full/4)
}

func TestCheckOfStoredCountAllocatesNothing(t *testing.T) {
	all := ids(100)
	for _, tracked := range []bool{false, true} {
		for _, a := range algorithms {
			l := &Limit{Algorithm: a, Rate: 1000, Per: time.Hour}
			s := NewStore(1000, Salt{})
			if tracked {
				s.Track(1, 1, make(chan struct{}, 1))
			}
			list, results := make([]Change, 0, 200), make([]Result, 2)
			asks := []Ask{{all[0], l, 600, false}, {all[1], l, 600, false}}
			now, i := epoch, 0
			check := func() {
				now++
				i++
				s.SpendElsewhere(all[i%100], l, now, 1)
				s.Take(all[i%100], l, now, 100)
				s.Peek(all[i%100], l, now, 1)
				s.Peek(ID{uint64(i), 1}, l, now, 1)
				s.TakeAll(asks, now, results)
				s.Refund(all[i%100], l, now, 101, 0, false)
				if i%7 == 0 {
					list = s.collectAll(true, list[:0])
					list = s.collectAll(false, list[:0])
				}
			}
			for range 2000 {
				check()
			}
			require.Zero(t, testing.AllocsPerRun(1000, check), "%v, tracked: %v", a, tracked)
		}
	}
}

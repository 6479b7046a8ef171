package bucket

import (
	"cmp"
	"math"
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

// longLimits returns limits with a Per longer than any test, so that no count recovers
// completely.
func longLimits() []Limit {
	var limits []Limit
	for _, a := range algorithms {
		for version, rate := range []int64{100, 40, maxUnits} {
			l := Limit{Algorithm: a, Rate: rate, Per: time.Duration(1+version) * time.Hour, Version: uint64(version)}
			if a.isBucket() {
				l.Rate, l.Burst = 1, rate
			}
			limits = append(limits, l)
		}
	}
	return limits
}

// Collect must return each changed ID once, with the units that a map of counts has recorded.
func TestCollectReturnsSpentUnits(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	limits, ids := longLimits(), crowdedIDs()
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(1000, 1<<rapid.IntRange(0, 8).Draw(t, "shards"))
		s.Track(1, 1, nil)
		m, now := model{}, int64(1_000_000)
		net, noted := map[ID]int64{}, map[ID]bool{}
		note := func(id ID, units int64) { net[id] += units; noted[id] = true }
		collected := func(list []Change) {
			seen := map[ID]bool{}
			for _, c := range list {
				require.False(t, seen[c.ID], "%v is repeated", c.ID)
				seen[c.ID] = true
				require.Equal(t, net[c.ID], c.Units)
				if !noted[c.ID] { // the numbers of its limit were converted
					require.Zero(t, c.Units)
				}
				delete(net, c.ID)
				delete(noted, c.ID)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 1000, int64(time.Second)}).Draw(t, "elapsed")
			id := rapid.SampledFrom(ids[:8]).Draw(t, "id")
			l := rapid.SampledFrom(limits).Draw(t, "limit")
			units := rapid.OneOf(rapid.Int64Range(0, 12), rapid.SampledFrom([]int64{1<<31 - 1, 1 << 31, 1 << 33})).Draw(t, "units")
			switch op := rapid.SampledFrom([]string{"take", "take", "debit", "refund", "elsewhere", "reset", "touch", "all", "collect", "parts", "one", "hurried"}).Draw(t, "op"); op {
			case "take":
				r := m.takeUnits(id, &l, now, units)
				require.Equal(t, r, s.Take(id, &l, now, units))
				if r.Allowed && units > 0 {
					note(id, units)
				}
			case "debit", "elsewhere":
				units = max(units, 1)
				c, judge := m.count(id, &l, now)
				m[id] = c
				_, counted := judge.debit(&c.cell, c.entries(judge), now, units)
				if op == "debit" {
					s.Debit(id, &l, now, units)
				} else {
					s.SpendElsewhere(id, &l, now, units)
				}
				switch {
				case counted == 0:
				case op == "debit":
					note(id, counted)
				default:
					note(id, 0)
				}
			case "refund":
				if m[id] != nil {
					c, judge := m.count(id, &l, now)
					given, gave := judge.refund(&c.cell, c.entries(judge), now, units, 0, false, Lease{})
					require.Equal(t, gave, s.Refund(id, &l, now, units, 0, false))
					if gave {
						note(id, -given)
					}
				}
			case "reset":
				s.Reset(id, 0)
				delete(m, id)
				delete(net, id)
				note(id, 0)
			case "touch":
				s.Touch(id)
				note(id, 0)
			case "all":
				asks := []Ask{{ids[0], &l, units, false}, {ids[5], &l, units, false}}
				if s.TakeAll(asks, now, make([]Result, 2)) {
					for _, a := range asks {
						require.True(t, m.takeUnits(a.ID, &l, now, units).Allowed)
						if units > 0 {
							note(a.ID, units)
						}
					}
				} else {
					m.peek(ids[0], &l, now, units) // a peek converts too
					m.peek(ids[5], &l, now, units)
				}
			case "collect":
				collected(s.collectAll(false, nil))
				require.Empty(t, noted, "uncollected")
			case "parts":
				least := rapid.IntRange(1, 3).Draw(t, "least")
				for cursor, over := 0, false; !over; over = cursor == 0 {
					var list []Change
					cursor, list = s.Collect(cursor, least, false, nil)
					require.True(t, cursor == 0 || len(list) >= least, "a part of %d", len(list))
					collected(list)
				}
				require.Empty(t, noted, "uncollected")
			case "one":
				c, changed := s.CollectOne(id)
				if noted[id] {
					require.True(t, changed)
				}
				require.Equal(t, id, c.ID)
				require.Equal(t, net[id], c.Units)
				delete(net, id)
				delete(noted, id)
			case "hurried":
				collected(s.collectAll(true, nil))
			}
			checkStore(t, s)
		}
		collected(s.collectAll(false, nil))
		require.Empty(t, noted, "uncollected")
		require.Empty(t, s.collectAll(false, nil), "collected twice")
		checkStore(t, s)
	})
}

func TestConcurrentCollectsReturnAllUnits(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			l := &Limit{Algorithm: a, Rate: 1000, Per: time.Hour}
			s := newStore(1000, 4)
			hurry := make(chan struct{}, 1)
			s.Track(1, 1, hurry)
			all := ids(12)
			var sums [12]atomic.Int64
			index := map[ID]int{}
			for i, id := range all {
				index[id] = i
			}
			add := func(list []Change) []Change {
				for _, c := range list {
					sums[index[c.ID]].Add(c.Units)
				}
				return list[:0]
			}
			done := make(chan struct{})
			var spenders, collectors sync.WaitGroup
			for g := range 4 {
				spenders.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 3))
					results := make([]Result, 2)
					for range 3000 {
						i := rng.IntN(11)
						switch rng.IntN(8) {
						case 0, 1:
							s.Refund(all[i], l, epoch, 3, 0, false)
						case 2:
							s.Debit(all[i], l, epoch, 2)
						case 3:
							s.TakeAll([]Ask{{all[i], l, 1, false}, {all[i+1], l, 2, false}}, epoch, results)
						default:
							s.Take(all[i], l, epoch, 1)
						}
					}
				})
			}
			for _, hurried := range []bool{false, true} {
				collectors.Go(func() {
					var list []Change
					cursor := 0
					for i := 0; ; i++ {
						select {
						case <-done:
							return
						case <-hurry:
						default:
						}
						if list = add(s.collectAll(hurried, list)); !hurried {
							cursor, list = s.Collect(cursor, 2, false, list)
							list = add(list)
						}
						c, _ := s.CollectOne(all[i%len(all)])
						sums[i%len(all)].Add(c.Units)
					}
				})
			}
			spenders.Wait()
			close(done)
			collectors.Wait()
			add(s.collectAll(false, nil))
			spent := false
			for i, id := range all {
				used, _, _ := s.Used(id, epoch)
				require.Equal(t, used, sums[i].Load(), "%d", i)
				spent = spent || used > 0
			}
			require.True(t, spent)
			checkStore(t, s)
		})
	}
}

func TestHurryIsSignalledAtASixteenthOfCapacity(t *testing.T) {
	for _, test := range []struct{ rate, at int64 }{{1, 1}, {15, 1}, {16, 1}, {31, 1}, {32, 2}, {160, 10}} {
		s := newStore(100, 4)
		hurry := make(chan struct{}, 1)
		s.Track(1, 1, hurry)
		signalled := func() bool {
			select {
			case <-hurry:
				return true
			default:
				return false
			}
		}
		l := &Limit{Algorithm: FixedWindow, Rate: test.rate, Per: time.Hour}
		all := ids(3)
		for i := int64(1); i < test.at; i++ {
			s.Take(all[0], l, epoch, 1)
			require.False(t, signalled(), "%d of %d", i, test.rate)
		}
		s.Take(all[0], l, epoch, 1)
		require.True(t, signalled(), "%d of %d", test.at, test.rate)
		s.SpendElsewhere(all[1], l, epoch, test.rate)
		s.Take(all[0], l, epoch, 1)
		require.False(t, signalled(), "the signal is sent once, and units of other nodes do not hurry")
		want := min(test.at+1, test.rate)
		require.Equal(t, []Change{{all[0], want, true}}, s.collectAll(true, nil))
		require.Empty(t, s.collectAll(true, nil))
		require.Equal(t, []Change{{all[1], 0, true}}, s.collectAll(false, nil))

		s.Reset(all[0], 0)
		require.Empty(t, s.collectAll(true, nil))
		s.Take(all[0], l, epoch, test.at)
		require.True(t, signalled(), "signalled again after it was collected")
		s.Take(all[2], l, epoch, test.at) // while no goroutine receives
		s.Debit(ID{7, 7}, l, epoch, test.at)
		require.True(t, signalled())
		require.Len(t, s.collectAll(true, nil), 3)
		checkStore(t, s)
	}
}

func TestUncollectedChangesAreBounded(t *testing.T) {
	l := &Limit{Algorithm: SlidingLog, Rate: 1, Per: time.Hour}
	s := newStore(100, 1)
	s.Track(1, 1, nil)
	for i, id := range ids(20_000) {
		s.Take(id, l, epoch, 1)
		if i%10 == 0 {
			s.CollectOne(id)
			s.Touch(id)
			s.Touch(ID{uint64(i), 0})
		}
	}
	unlimited := &Limit{Rate: maxUnits, Per: time.Hour}
	for range 1000 { // the same ID, repeatedly
		s.CollectOne(ID{1, 2})
		s.Take(ID{1, 2}, unlimited, epoch, 1)
	}
	ch := s.shards[0].changes
	require.LessOrEqual(t, len(ch.ids), 2*100+64)
	require.LessOrEqual(t, len(ch.hurried), maxHurried)
	require.LessOrEqual(t, len(ch.touched), maxTouched)
	checkStore(t, s)
	require.LessOrEqual(t, len(s.collectAll(false, nil)), 100+maxTouched)
	require.Empty(t, s.collectAll(false, nil))
	require.Empty(t, s.collectAll(true, nil))
}

// A full store must forget lighter counts before a count with an uncollected refund. Otherwise other nodes
// would still count units that were refunded.
func TestFullStoreKeepsUncollectedRefunds(t *testing.T) {
	for _, a := range algorithms {
		l, flood := &Limit{Algorithm: a, Rate: 10, Per: time.Hour}, &Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Hour}
		s := newStore(16, 1)
		s.Track(1, 1, nil)
		id := ID{1, 2}
		s.Take(id, l, epoch, 7)
		s.collectAll(false, nil)
		s.Refund(id, l, epoch, 7, 0, false)
		for _, other := range ids(200) {
			s.Take(other, flood, epoch, 1)
		}
		require.NotZero(t, s.Evicted(), a)
		require.Contains(t, s.collectAll(false, nil), Change{id, -7, false}, a)
		for _, other := range ids(200) {
			s.Take(other, flood, epoch, 1)
		}
		_, held := s.Judge(id)
		require.False(t, held, "%v: the count can be evicted once it is collected", a)
		checkStore(t, s)
	}
}

// sorted returns the IDs in ascending order.
func sorted(all []ID) []ID {
	return slices.SortedFunc(slices.Values(all), func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
	})
}

func scan(s *Store) (all []ID) {
	for cursor, pieces := uint64(0), 0; ; pieces++ {
		cursor, all = s.Scan(cursor, all)
		if cursor == 0 || pieces > len(s.shards) {
			return all
		}
	}
}

// collectAll collects the changes of the whole store.
func (s *Store) collectAll(hurried bool, list []Change) []Change {
	_, list = s.Collect(0, math.MaxInt, hurried, list)
	return list
}

func TestWakeOnChangeSignalsNextChangeOnly(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Rate: 100, Per: time.Minute}
	for name, change := range map[string]func(s *Store, id ID){
		"a take":               func(s *Store, id ID) { s.Take(id, &limit, 0, 1) },
		"a debit":              func(s *Store, id ID) { s.Debit(id, &limit, 0, 1) },
		"a reset":              func(s *Store, id ID) { s.Reset(id, 1) },
		"units from elsewhere": func(s *Store, id ID) { s.SpendElsewhere(id, &limit, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s, wake := newStore(1<<16, 128), make(chan struct{}, 1)
			require.True(t, s.WakeOnChange(wake), "a store without Track has no changes")
			s.Track(1, 1, nil)
			require.True(t, s.WakeOnChange(wake))
			require.Empty(t, wake)
			change(s, ID{1, 1})
			require.Len(t, wake, 1)
			<-wake
			change(s, ID{1 << 63, 2})
			require.Empty(t, wake, "only the first change is signalled")
			require.False(t, s.WakeOnChange(wake), "there are uncollected changes")
			s.Collect(0, math.MaxInt, false, nil)
			require.True(t, s.WakeOnChange(wake))
			require.Empty(t, wake)
		})
	}
}

// A change that is concurrent with WakeOnChange is either seen by the call or signalled.
func TestWakeOnChangeMissesNoChange(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Rate: 1 << 20, Per: time.Hour}
	s, wake := newStore(1<<16, 128), make(chan struct{}, 1)
	s.Track(1, 1, nil)
	const changes = 20_000
	var all sync.WaitGroup
	all.Go(func() {
		for i := range changes {
			s.Take(ID{uint64(i) << 48, 1}, &limit, 0, 1)
		}
	})
	units := int64(0)
	for units < changes {
		_, list := s.Collect(0, math.MaxInt, false, nil)
		for _, c := range list {
			units += c.Units
		}
		if s.WakeOnChange(wake) && units < changes {
			select {
			case <-wake:
			case <-time.After(time.Minute):
				t.Fatal("a change was not signalled")
			}
		}
	}
	all.Wait()
}

package holds

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// clientAsk returns an ask for a client's hold.
func clientAsk(id, number uint64, units, rate int64, ttl time.Duration) *wire.Ask {
	a := askFor(id, 1, number, units, rate)
	a.Hold.TTL = ttl
	return a
}

// zeroAge returns the age of a cluster that has just started.
func zeroAge() time.Duration { return 0 }

// mergeAll returns the first replica, after it has merged the other replicas in their order.
func mergeAll(replicas ...record) record {
	r := replicas[0]
	for i := range replicas[1:] {
		r.merge(&replicas[i+1])
	}
	return r
}

func TestMergeIgnoresOrderAndRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		renewals := make(map[renewal]int64) // the expiry of each renewal
		replica := func() record {
			r := record{
				ref: ref{number: 1}, units: rapid.Int64Range(1, 3).Draw(t, "units"), released: rapid.IntRange(0, 5).Draw(t, "released") == 0,
				renewal: renewal(rapid.Uint64Range(1, 3).Draw(t, "count")<<tagBits | rapid.Uint64Range(1, 3).Draw(t, "tag")),
			}
			if _, known := renewals[r.renewal]; !known {
				renewals[r.renewal] = rapid.Int64Range(1, 5).Draw(t, "expires")
			}
			r.expires = renewals[r.renewal]
			r.forget = r.expires + rapid.Int64Range(0, 5).Draw(t, "forget")
			return r
		}
		a, b, c := replica(), replica(), replica()
		require.Equal(t, a, mergeAll(a, a))
		require.Equal(t, mergeAll(a, b), mergeAll(b, a))
		require.Equal(t, mergeAll(mergeAll(a, b), c), mergeAll(a, mergeAll(b, c)))
		both := mergeAll(a, b)
		require.Equal(t, a.released || b.released, both.released, "a release wins")
		if a.renewal.count() > b.renewal.count() {
			require.Equal(t, a.expires, both.expires, "the later renewal wins")
		}
		require.Equal(t, min(a.units, b.units), both.units)
		require.Equal(t, max(a.forget, b.forget), both.forget)
	})
}

// A replica that was in transit for a while expires late. Merged with an exact replica, in either order, it has
// the exact expiry.
func TestMergeKeepsExactExpiryOfOneRenewal(t *testing.T) {
	exact := record{renewal: 1<<tagBits | 7, expires: 10, forget: 10}
	late := exact
	late.expires, late.forget = 13, 13
	require.EqualValues(t, 10, mergeAll(exact, late).expires)
	require.EqualValues(t, 10, mergeAll(late, exact).expires)
	other := record{renewal: 1<<tagBits | 3, expires: 12, forget: 12}
	require.EqualValues(t, 12, mergeAll(exact, other).expires, "of two independent renewals, the longer wins")
}

// The oracle is a map of holds by name, with the result of the last op on each hold.
func TestTableEndsEachRecordAtItsExpiry(t *testing.T) {
	const rate = 10
	rapid.Check(t, func(t *rapid.T) {
		type oracle struct {
			units, expires, forget int64
			released               bool
		}
		var (
			table = newTable(1<<20, zeroAge)
			all   = make(map[ref]*oracle)
			now   = int64(time.Hour)
		)
		isLive := func(o *oracle) bool { return o != nil && !o.released && now < o.expires }
		used := func(id bucket.ID) (units int64) {
			for name, o := range all {
				if name.id == id && isLive(o) {
					units += o.units
				}
			}
			return units
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			ttl := time.Duration(rapid.Int64Range(1, 100).Draw(t, "ttl"))
			a := clientAsk(rapid.Uint64Range(0, 2).Draw(t, "id"), rapid.Uint64Range(1, 6).Draw(t, "number"), rapid.Int64Range(1, rate).Draw(t, "units"), rate, ttl)
			o := all[refOf(a)]
			extended := func() {
				o.expires = now + int64(ttl)
				o.forget = max(o.forget, o.expires)
			}
			var r wire.Result
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				table.hold(a, -1, false, now, &r)
				switch {
				case isLive(o):
					require.True(t, r.Allowed)
					extended()
				case o != nil:
					require.False(t, r.Allowed, "a hold that has ended is granted again")
				default:
					want := used(a.ID)+a.Units <= rate
					require.Equal(t, want, r.Allowed)
					if want {
						all[refOf(a)] = &oracle{units: a.Units, expires: now + int64(ttl), forget: now + int64(ttl)}
					}
				}
				require.Equal(t, max(0, rate-used(a.ID)), r.Remaining)
			case 2:
				a.Hold.Shrinks = rapid.Bool().Draw(t, "shrinks")
				table.extend(a, true, now, &r)
				require.Equal(t, isLive(o), r.Allowed)
				if r.Allowed && a.Hold.Shrinks {
					o.units = min(o.units, a.Units)
				}
				require.Equal(t, !r.Allowed, r.Firm)
				if r.Allowed {
					require.Equal(t, o.units, r.Held)
					extended()
				}
			case 3:
				table.bury(refOf(a), tombstoneTTL{unknown: int64(ttl)}, now)
				if o == nil {
					all[refOf(a)] = &oracle{released: true, forget: now + int64(ttl)}
				} else {
					o.released = true
				}
			case 4:
				table.peek(a, -1, false, now, &r)
				require.Equal(t, used(a.ID)+a.Units <= rate, r.Allowed)
			case 5:
				now += rapid.Int64Range(0, 60).Draw(t, "time")
				maps.DeleteFunc(all, func(_ ref, o *oracle) bool { return now >= o.forget })
			}
		}
		table.lookAll(nil, now, 0)
		listed := 0
		for shard := range shards {
			for before := math.MaxInt; before > 0; {
				before = table.visitRecords(shard, before, countsync.All(), func(r *record) {
					listed++
					require.Equal(t, isLive(all[r.ref]), r.live)
					require.Equal(t, all[r.ref].forget, r.forget)
				})
			}
		}
		require.Equal(t, len(all), listed)
		now += 1000
		table.lookAll(nil, now, 0)
		for i := range table.shards {
			s := &table.shards[i]
			require.Empty(t, s.counts)
			require.Empty(t, s.records)
			require.Empty(t, s.recordAt)
			require.Empty(t, s.origins)
			require.Empty(t, s.live.indexes)
			require.Empty(t, s.dead.indexes)
		}
	})
}

// Replicas of a hold arrive in any order. A replica that arrives late must not make the hold live
// again.
func TestNoReplicaRevivesEndedRecord(t *testing.T) {
	a := clientAsk(1, 5, 1, 1, time.Hour)
	free := func(table *table, now int64) bool {
		var r wire.Result
		table.peek(a, -1, false, now, &r)
		return r.Allowed
	}
	for _, c := range []struct {
		name string
		end  func(table *table)
		at   int64
	}{
		{"released", func(table *table) { table.bury(refOf(a), tombstoneTTL{unknown: int64(time.Hour)}, 1) }, 2},
		{"shortened", func(table *table) {
			short := *a
			short.Hold.TTL = time.Second
			table.extend(&short, true, 1, new(wire.Result))
		}, 2 * int64(time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newTable(1<<20, zeroAge)
			table.hold(a, -1, false, 0, new(wire.Result))
			stale, _ := table.recordOf(refOf(a))
			c.end(table)
			for now := c.at; now < int64(time.Hour); now += int64(time.Minute) {
				table.merge(stale, now)
				require.True(t, free(table, now))
			}
			now := int64(time.Hour) + 1
			require.True(t, table.look(shardOf(a.ID), nil, now, 0, new(found)))
			require.Empty(t, table.shards[shardOf(a.ID)].records)
			_, kept := table.merge(stale, now)
			require.False(t, kept, "the table kept a replica that has expired")
		})
	}
}

// After a partition, both sides count the units of the side on which the hold was shrunk, whichever
// renewal wins.
func TestFewestUnitsWinAfterPartition(t *testing.T) {
	for last := range 2 {
		var now int64
		age := func() time.Duration { return time.Hour + time.Duration(now) }
		sides := []*table{newTable(1<<20, age), newTable(1<<20, age)}
		a := clientAsk(1, 7, 5, 9, time.Minute)
		sides[0].hold(a, -1, false, now, new(wire.Result))
		first, _ := sides[0].recordOf(refOf(a))
		sides[1].merge(first, now)
		for _, side := range []int{1 - last, last} {
			now += int64(time.Second)
			renewed := clientAsk(1, 7, 2, 9, time.Minute)
			renewed.Hold.Shrinks = side == 0
			sides[side].extend(renewed, true, now, new(wire.Result))
		}
		in, _ := sides[1].recordOf(refOf(a))
		joined, _ := sides[0].merge(in, now)
		require.False(t, joined.sameState(&in), "side 0 must answer with its record")
		sides[1].merge(joined, now)
		for _, side := range sides {
			var r wire.Result
			side.peek(a, -1, false, now, &r)
			require.EqualValues(t, 7, r.Remaining)
		}
	}
}

// A client may renew its hold on both sides of a partition. After the partition, the last renewal
// wins, regardless of the number of renewals on each side.
func TestLastRenewalWinsAfterPartition(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"longer": time.Hour, "shorter": time.Second} {
		t.Run(name, func(t *testing.T) {
			var now int64
			age := func() time.Duration { return time.Hour + time.Duration(now) }
			sides := []*table{newTable(1<<20, age), newTable(1<<20, age)}
			a := clientAsk(1, 7, 1, 1, time.Minute)
			sides[0].hold(a, -1, false, now, new(wire.Result))
			first, _ := sides[0].recordOf(refOf(a))
			sides[1].merge(first, now)
			extend := func(side int, ttl time.Duration) {
				now += int64(time.Second)
				renewed := clientAsk(1, 7, 1, 1, ttl)
				var r wire.Result
				sides[side].extend(renewed, true, now, &r)
				require.True(t, r.Allowed)
			}
			for range 3 {
				extend(0, time.Minute)
			}
			extend(1, ttl)
			last := now + int64(ttl)
			replicas := make([]record, 2)
			for i := range sides {
				replicas[i], _ = sides[i].recordOf(refOf(a))
			}
			for i, side := range sides {
				merged, _ := side.merge(replicas[1-i], now)
				require.Equal(t, last, merged.expires)
			}
		})
	}
}

// Records that have ended have a bound of their own, and do not use the room of live records.
func TestEndedRecordsAreBoundedAndDenyNoHold(t *testing.T) {
	for _, c := range []struct {
		name string
		most int
		key  func(i uint64) uint64
	}{
		{"one key", 4 * shards, func(uint64) uint64 { return 1 }},
		{"many keys", 4 * shards, func(i uint64) uint64 { return i % shards }},
		{"one key in a large table", 1 << 20, func(uint64) uint64 { return 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, bound := newTable(c.most, zeroAge), min(c.most, mostOfShard)
			for i := range uint64(3 * bound) {
				a, now := clientAsk(c.key(i), i+1, 1, 1, time.Hour), int64(i)
				var r wire.Result
				table.hold(a, -1, false, now, &r)
				require.True(t, r.Allowed)
				table.bury(refOf(a), tombstoneTTL{unknown: int64(time.Hour)}, now)
			}
			kept := 0
			for i := range table.shards {
				kept += len(table.shards[i].dead.indexes)
				require.Equal(t, len(table.shards[i].records), len(table.shards[i].dead.indexes))
			}
			require.LessOrEqual(t, kept, bound)
			require.GreaterOrEqual(t, kept, bound*7/8)
			last, known := table.recordOf(refOf(clientAsk(c.key(uint64(3*bound-1)), uint64(3*bound), 1, 1, time.Hour)))
			require.True(t, known, "the table evicted a record that was not among the next to be deleted")
			require.True(t, last.released)
		})
	}
}

// A shard that is full must not remove the record of a release that other members lack while one of the next
// records to be deleted has a copy.
func TestFullShardKeepsReleaseUntilItIsCopied(t *testing.T) {
	const most = 4 * shards
	table, number := newTable(most, zeroAge), uint64(0)
	release := func(ttl time.Duration) ref {
		number++
		a := clientAsk(1, number, 1, 1, ttl)
		table.hold(a, -1, false, 0, new(wire.Result))
		table.bury(refOf(a), tombstoneTTL{}, 0)
		return refOf(a)
	}
	for range most {
		table.record(release(time.Hour)).queued = false // other members have a copy
	}
	var last []ref
	for range evictAmong - 1 {
		last = append(last, release(time.Second))
		for _, name := range last {
			require.NotNil(t, table.record(name))
		}
	}
}

func (t *table) record(name ref) *record { return t.shards[shardOf(name.id)].record(name) }

// A shard does not use the room that it has returned, however often it is filled and visited.
func TestShardDoesNotUseRoomThatItReturned(t *testing.T) {
	const most = 16 * 8 * shards
	table := newTable(most, zeroAge)
	number := uint64(0)
	fill := func(key uint64) (held []uint64) {
		for {
			var r wire.Result
			number++
			table.hold(askFor(key, 1, number, 1, 1<<40), -1, false, 0, &r)
			if !r.Allowed {
				return held
			}
			held = append(held, number)
		}
	}
	for key := range uint64(10) {
		held := fill(key)
		require.LessOrEqual(t, len(held), most)
		for _, n := range held {
			require.True(t, table.end(refOf(askFor(key, 1, n, 1, 1))))
		}
		table.lookAll(nil, 0, 0)
	}
	total := 0
	for key := range uint64(10) { // fill the rest of the room
		total += len(fill(key))
	}
	require.LessOrEqual(t, total, most)
}

// The answer to a request for holds contains no entry that has ended.
func TestPagesContainNoEndedEntries(t *testing.T) {
	table := newTable(1<<20, zeroAge)
	a := askFor(1, 1, 1, 1, 10)
	table.hold(a, -1, false, 0, new(wire.Result))
	told := func(now int64) (told int) {
		table.visitEntries(shardOf(a.ID), math.MaxInt, countsync.All(), now, func(*entry) { told++ })
		return told
	}
	require.Equal(t, 1, told(int64(Term)))
	require.Zero(t, told(int64(Term)+1))
}

// If other holds are added and removed between two pages, the pages still contain each hold that
// stays.
func TestPagesContainEachHoldThatStays(t *testing.T) {
	table := newTable(1<<20, zeroAge)
	random := rand.New(rand.NewPCG(1, 2))
	live := make(map[uint64]bool)
	number := uint64(0)
	add := func() {
		number++
		table.hold(askFor(1, 1, number, 1, 1<<40), -1, false, 0, new(wire.Result))
		table.hold(clientAsk(1, number, 1, 1<<40, time.Hour), -1, false, 0, new(wire.Result))
		live[number] = true
	}
	for range 3000 {
		add()
	}
	entries, records, stays := make(map[uint64]bool), make(map[uint64]bool), maps.Clone(live)
	shard := shardOf(askFor(1, 1, 1, 1, 1).ID)
	for at, before := math.MaxInt, math.MaxInt; at > 0 || before > 0; {
		if at > 0 {
			at = table.visitEntries(shard, at, countsync.All(), 0, func(e *entry) { entries[e.number] = true })
		}
		if before > 0 {
			before = table.visitRecords(shard, before, countsync.All(), func(r *record) { records[r.number] = true })
		}
		for range 50 {
			for n := range live {
				if random.IntN(4) > 0 {
					table.end(refOf(askFor(1, 1, n, 1, 1)))
					s := table.lockShard(shard)
					s.delete(s.recordAt[refOf(clientAsk(1, n, 1, 1, 1))])
					s.mu.Unlock()
					delete(live, n)
					delete(stays, n)
				}
				break
			}
			if random.IntN(2) == 0 {
				add()
			}
		}
	}
	for n := range stays {
		require.True(t, entries[n] && records[n], n)
	}
}

package holds

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

func askFor(id, holder, number uint64, units, rate int64) *wire.Ask {
	return &wire.Ask{
		ID: bucket.ID{Hi: id << 60, Lo: id}, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: rate}, Units: units,
		Hold: wire.Hold{Holder: holder, Number: number},
	}
}

// lookAll calls look for each shard until the shard is done.
func (t *table) lookAll(v *view.View, now, since int64) (all found) {
	for shard := range shards {
		for !t.look(shard, v, now, since, &all) {
		}
	}
	return all
}

// The oracle is a list of holds, with the time until which each hold stays.
func TestTableAgreesWithListOfHolds(t *testing.T) {
	const rate = 10
	rapid.Check(t, func(t *rapid.T) {
		type oracle struct {
			units int64
			until int64
		}
		var (
			table = newTable(1<<20, zeroAge)
			held  = make(map[ref]oracle)
			now   = int64(time.Hour)
		)
		used := func(id bucket.ID) (units int64) {
			for r, o := range held {
				if r.id == id && o.until >= now {
					units += o.units
				}
			}
			return units
		}
		sweep := func() {
			table.lookAll(nil, now, 0)
			for r, o := range held {
				if o.until < now {
					delete(held, r)
				}
			}
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			a := askFor(rapid.Uint64Range(0, 2).Draw(t, "id"), rapid.Uint64Range(1, 3).Draw(t, "holder"), rapid.Uint64Range(0, 5).Draw(t, "number"), rapid.Int64Range(1, rate).Draw(t, "units"), rate)
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				var r wire.Result
				before, known := held[refOf(a)]
				want := known || used(a.ID)+a.Units <= rate
				table.hold(a, -1, false, now, &r)
				require.Equal(t, want, r.Allowed)
				if want {
					if !known {
						before.units = a.Units
					}
					held[refOf(a)] = oracle{before.units, now + int64(Term)}
				}
				require.Equal(t, max(0, rate-used(a.ID)), r.Remaining)
				require.Equal(t, int64(rate), r.Limit)
			case 2:
				_, known := held[refOf(a)]
				require.Equal(t, known, table.end(refOf(a)))
				delete(held, refOf(a))
			case 3: // a holder renews its holds in a shard, with an equal or a different digest
				var sum uint64
				for r, o := range held {
					if r.holder == a.Hold.Holder && shardOf(r.id) == shardOf(a.ID) {
						sum ^= r.hash(o.units)
					}
				}
				if rapid.Bool().Draw(t, "differs") {
					require.False(t, table.renew(a.Hold.Holder, shardOf(a.ID), sum+1, now))
				} else if table.renew(a.Hold.Holder, shardOf(a.ID), sum, now) {
					for r, o := range held {
						if r.holder == a.Hold.Holder && shardOf(r.id) == shardOf(a.ID) {
							held[r] = oracle{o.units, now + int64(Term)}
						}
					}
				}
			case 4:
				now += rapid.Int64Range(0, int64(Term)/2).Draw(t, "time")
				sweep()
			case 5: // a listed hold is never refused, counts once, and has the fewest units of all lists
				table.put(entry{refOf(a), a.Units, now})
				o, known := held[refOf(a)]
				if !known || a.Units < o.units {
					o.units = a.Units
				}
				held[refOf(a)] = oracle{o.units, now + int64(Term)}
			case 6: // the holder does not have the holds that it did not renew lately
				since := now - rapid.Int64Range(0, int64(Term)).Draw(t, "since")
				table.endStale(refOf(a), since)
				if o, known := held[refOf(a)]; known && o.until-int64(Term) < since {
					delete(held, refOf(a))
				}
			}
		}
		sweep()
		_, known := table.countHolds(0)
		require.Equal(t, len(held), known)
		var listed int
		for shard := range shards {
			for from := math.MaxInt; from > 0; {
				from = table.visitEntries(shard, from, countsync.All(), now, func(e *entry) {
					listed++
					require.Equal(t, held[e.ref].units, e.units)
				})
			}
		}
		require.Equal(t, len(held), listed)
		now += 2 * int64(Term)
		sweep()
		_, known = table.countHolds(0)
		require.Zero(t, known)
		for i := range table.shards {
			s := &table.shards[i]
			require.Empty(t, s.counts)
			require.Empty(t, s.holders)
			require.Empty(t, s.entryAt)
		}
	})
}

// withUnits sets the units of a hold, and returns the hold.
func withUnits(o *Hold, units int64) *Hold {
	o.units.Store(units)
	return o
}

// The holds of this node count as well, even if another member answers for their counts. No other node ends them.
func TestTableCountsHoldsOfThisNode(t *testing.T) {
	m := newMembers(t, 2)[0]
	self, other := m.self(), m.env.View().Hashes[1]
	rapid.Check(t, func(t *rapid.T) {
		var (
			table  = newTable(1<<20, zeroAge)
			limit  = bucket.Limit{Algorithm: bucket.InFlight, Rate: 1000}
			own    = make(map[ref]*Hold)
			others = make(map[ref]int64)
			now    = int64(time.Hour)
			number uint64
		)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			number++
			a := askFor(rapid.Uint64Range(0, 3).Draw(t, "id"), self, number, rapid.Int64Range(1, 9).Draw(t, "units"), 1000)
			var some ref
			for name := range own {
				if some = name; rapid.Bool().Draw(t, "this one") {
					break
				}
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1: // granted by this node or by another member
				o := withUnits(&Hold{ref: refOf(a), limit: &limit, renewed: now}, a.Units)
				if rapid.Bool().Draw(t, "here") {
					table.hold(a, -1, false, now, new(wire.Result))
				}
				table.recordGrant(o, rapid.SampledFrom([]uint64{0, self, other}).Draw(t, "member"))
				own[o.ref] = o
				require.True(t, table.owns(o.ref))
			case 2:
				if o := own[some]; o != nil {
					_, held := table.release(o)
					require.True(t, held)
					_, held = table.release(o)
					require.False(t, held)
					delete(own, some)
				}
			case 3:
				require.False(t, table.end(some))
				table.endStale(some, now+1)
				if o := own[some]; o != nil { // only the holder can return units of the hold
					had := o.units.Load()
					left, _ := table.shrink(o, a.Units)
					require.Equal(t, max(0, had-a.Units), left)
					table.put(entry{some, 1, now})
				}
			case 4:
				a.Hold.Holder = other
				table.put(entry{refOf(a), a.Units, now})
				others[refOf(a)] = a.Units
			case 5:
				found := table.lookAll(m.env.View(), now, now)
				require.Zero(t, found.lost)
				require.Empty(t, found.stale)
			}
		}
		units, sums := make(map[bucket.ID]int64), make(map[uint64]uint64)
		for name, o := range own {
			units[name.id] += o.units.Load()
			sums[o.renewer.node] ^= name.hash(o.units.Load())
		}
		for name, u := range others {
			units[name.id] += u
		}
		held, _ := table.countHolds(self)
		require.Equal(t, len(own), held)
		for i := range table.shards {
			s := &table.shards[i]
			for id, c := range s.counts {
				require.Equal(t, units[id], c.units)
			}
			for member, d := range s.members {
				sums[member] ^= d.sum
			}
		}
		for _, sum := range sums {
			require.Zero(t, sum)
		}
		now += 2 * int64(Term)
		found := table.lookAll(m.env.View(), now, now)
		require.Equal(t, len(own), found.lost)
		for _, o := range own {
			require.True(t, o.revoked)
		}
		for i := range table.shards {
			require.Empty(t, table.shards[i].counts)
			require.Empty(t, table.shards[i].entries)
		}
	})
}

func TestEmptyCountsAreBoundedAndDeleted(t *testing.T) {
	table := newTable(1<<20, zeroAge)
	s := &table.shards[0]
	for i := range uint64(2 * mostIdle) {
		a := askFor(0, 1, i, 1, 10)
		a.ID.Hi = i
		table.hold(a, -1, false, 0, new(wire.Result))
		require.True(t, table.end(refOf(a)))
		require.LessOrEqual(t, len(s.counts), mostIdle+1)
	}
	table.lookAll(nil, 0, 0)
	require.Empty(t, s.counts)
	require.Empty(t, s.idle)
}

func TestHigherVersionDeterminesTheRate(t *testing.T) {
	table := newTable(1<<20, zeroAge)
	hold := func(number uint64, rate int64, version uint64) bool {
		a, r := askFor(1, 1, number, 1, rate), wire.Result{}
		a.Limit.Version = version
		table.hold(a, -1, false, 0, &r)
		return r.Allowed
	}
	require.True(t, hold(1, 3, 1))
	require.True(t, hold(2, 3, 1))
	require.False(t, hold(3, 2, 2))
	require.False(t, hold(4, 3, 1), "an ask with an older Version is judged by the newer Rate")
	require.True(t, hold(5, 3, 3))
}

func TestWaitingHoldsAreServedInOrder(t *testing.T) {
	table := newTable(1<<20, zeroAge)
	hold := func(number uint64, waits bool, ms int) bool {
		a, r := askFor(1, 1, number, 1, 1), wire.Result{}
		table.hold(a, -1, waits, int64(ms)*int64(time.Millisecond), &r)
		return r.Allowed
	}
	end := func(number uint64) { require.True(t, table.end(refOf(askFor(1, 1, number, 1, 1)))) }
	require.True(t, hold(1, false, 0))
	for ms := 0; ms <= 100; ms += 10 {
		require.False(t, hold(2, true, ms))
		require.False(t, hold(3, true, ms))
	}
	end(1)
	require.False(t, hold(3, true, 110), "the first waiting hold may still ask in time")
	require.False(t, hold(4, false, 125), "a hold that does not wait is denied while others wait")
	require.True(t, hold(3, true, 131), "the first hold has asked every 10 ms, but not in the last 31 ms")
	require.False(t, hold(2, true, 131), "the first hold keeps its place")
	require.False(t, hold(4, true, 131))
	end(3)
	require.True(t, hold(2, true, 132))
	end(2)
	require.False(t, hold(5, false, 280))
	require.True(t, hold(5, false, 281), "the waiting hold has not asked for 150 ms")
}

package countsync

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
)

// A stand-in that receives a flood of new keys keeps recovered tallies for some seconds, and not
// until the flood ends.
func TestTalliesOfAFloodOfKeysStayBounded(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	l := newLink(t)
	s, store := streamOf(2, 1<<8, 1, 2)
	limit := bucket.Limit{Rate: 10, Per: time.Second}
	const perSecond = 650
	id := 0
	for range 80 {
		for range 13 { // just often enough for rememberedFor; Handover.Run sweeps more often
			l.now += int64(time.Second / 13)
			for range perSecond / 13 {
				store.Take(someID(id), &limit, l.now, 1)
				id++
			}
			s.Collect(l.now, false, l.roles(1))
			s.Sweep(l.now)
		}
	}
	require.LessOrEqual(t, s.Tallies(), 30*perSecond)
}

// A full ledger first forgets tallies that were queued for other members, the oldest first,
// and then the oldest of all. It counts the forgotten tallies.
func TestFullLedgerForgetsQueuedTalliesFirst(t *testing.T) {
	const most = 8
	id := func(i int) bucket.ID { return bucket.ID{Hi: uint64(i)} }
	l := newLedger(1, bucket.NewStore(100, bucket.Salt{}))
	l.most = most
	for i := range most {
		l.add(id(i), tally{origin: 1, spent: 5, changed: int64(100 - i)})
	}
	l.find(id(5), 1).passed.add(firstStamp)
	l.find(id(3), 1).passed.add(firstStamp)
	for i, forgotten := range []int{5, 3, 7, 6} {
		l.add(id(most+i), tally{origin: 1, spent: 5, changed: int64(1000 + i)})
		require.Equal(t, most, l.len())
		require.False(t, l.contains(id(forgotten)), forgotten)
		require.EqualValues(t, i+1, l.dropped)
	}
	for _, i := range []int{0, 1, 2, 4, 8, 9, 10, 11} {
		require.True(t, l.contains(id(i)), i)
	}
}

// The ledger has the vectors of all ids in one list. It joins in the same way as vectors.
func TestLedgerJoinsLikeVectors(t *testing.T) {
	const self = 2
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(self, bucket.NewStore(100, bucket.Salt{}))
		vectors := make(map[bucket.ID]vector)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			id := bucket.ID{Hi: rapid.Uint64Range(1, 3).Draw(t, "id")}
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				l.drop(id)
				delete(vectors, id)
			case 1:
				if v := vectors[id]; len(v) > 0 {
					i := rapid.IntRange(0, len(v)-1).Draw(t, "tally")
					for at := l.firstEntry(id); at != noEntry; at = l.entry(at).next {
						if l.entry(at).origin == v[i].origin {
							l.remove(at)
							break
						}
					}
					vectors[id] = slices.Delete(v, i, i+1)
				}
			default:
				v := drawVector(t, "v")
				for i := range v {
					v[i].refunded = rapid.Int64Range(0, 5).Draw(t, "refunded")
					v[i].changed = rapid.Int64Range(0, 5).Draw(t, "changed")
				}
				for i := l.firstEntry(id); i != noEntry; i = l.entry(i).next {
					l.entry(i).passed.add(firstStamp)
				}
				before := l.vector(nil, id)
				grew := l.join(id, v, 0, false)
				require.NotEqual(t, before.covers(v), grew, "%v grew by %v: %v", before, v, grew)
				vectors[id] = vectors[id].join(v)
				for i := l.firstEntry(id); i != noEntry; i = l.entry(i).next {
					e := l.entry(i)
					was := before.tallyOf(e.origin)
					if grew := e.isLater(&was); e.passed.contains(firstStamp) == grew || grew && e.heard != (e.origin == self) {
						t.Fatalf("%v has become %+v", was, *e)
					}
				}
			}
			n := 0
			for i := range uint64(4) {
				id := bucket.ID{Hi: i}
				if v := l.vector(nil, id); !slices.Equal(v, vectors[id]) || l.contains(id) != (len(v) > 0) {
					t.Fatalf("of %d it has %v, and not %v", i, v, vectors[id])
				}
				n += len(vectors[id])
			}
			require.Equal(t, l.len(), n, "%d tallies, and not %d", l.len(), n)
		}
	})
}

// Refunded units are not subtracted from the next tally of the same origin.
func TestNextTallyOutgrowsForgottenRefund(t *testing.T) {
	const self = 2
	id, store := someID(0), bucket.NewStore(100, bucket.Salt{})
	store.Track(self, 1, nil)
	l, begun := newLedger(self, store), store.NewTotal(id)
	old := tally{origin: self, series: begun.Series, spent: int64(begun.Spent) + 5, refunded: 2}
	l.add(id, old)
	l.drop(id)
	next := store.NewTotal(id)
	require.False(t, old.isLater(&tally{origin: self, series: next.Series, spent: int64(next.Spent)}))
}

// Once all units of its tally have recovered, an origin begins another tally, even if its ledger
// still has the old one. A member that first hears of the old tally would count the recovered
// units.
func TestOriginBeginsNewTallyAfterRecovery(t *testing.T) {
	l, id, limit := newLink(t), someID(0), limitOf(bucket.FixedWindow)
	take := func(units int64) tally {
		l.stores[1].Take(id, &limit, l.now, units)
		l.streams[1].Collect(l.now, false, l.roles(1))
		return l.streams[1].vector(nil, id, l.now).tallyOf(2)
	}
	take(5)
	l.now += lastsFor(&limit)
	own := take(3)
	require.EqualValues(t, 3, own.spent-own.expired)
}

// If a store has lost a count, the next units begin a new count there. They belong to the tally
// of this node, beside the known tallies of other origins.
func TestUnitsOfALostCountJoinItsVector(t *testing.T) {
	l, id, limit := newLink(t), someID(0), limitOf(bucket.FixedWindow)
	s, other := l.streams[1], tally{origin: 1, series: 1, spent: 5, changed: l.now}
	s.ledger.join(id, vector{other}, lastsFor(&limit), false)
	s.recordExpired(id, l.now)
	require.Equal(t, vector{other}, s.vector(nil, id, l.now), "its units may count elsewhere")
	l.stores[1].Take(id, &limit, l.now, 3)
	s.Collect(l.now, false, l.roles(1))
	v := s.vector(nil, id, l.now)
	own := v.tallyOf(2)
	require.Equal(t, other, v.tallyOf(1))
	require.EqualValues(t, 3, own.spent-own.expired)
}

// A store can keep a single tally of a count. A vector of several tallies stays in the ledger.
func TestTalliesOfSeveralOriginsStayInTheLedger(t *testing.T) {
	l, id := newLink(t), someID(0)
	limit := limitOf(bucket.FixedWindow)
	l.stores[1].SpendElsewhere(id, &limit, l.now, 6)
	s, v := l.streams[1], vector{{origin: 3, spent: 2, changed: l.now}, {origin: 4, spent: 4, changed: l.now}}
	s.ledger.join(id, v, lastsFor(&limit), false)
	s.fold(id)
	require.Equal(t, v, s.vector(nil, id, l.now))
	s.ledger.remove(s.ledger.firstEntry(id))
	s.fold(id)
	require.Zero(t, s.Tallies())
	require.EqualValues(t, 4, s.vector(nil, id, l.now).tallyOf(4).spent)
}

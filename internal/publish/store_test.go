package publish

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

func valuesOf(s *Store) []Item {
	values, _ := Values[Item](s, "")
	return values
}

// meet compares two stores in both directions.
func meet(t require.TestingT, one, other *Store, now int64, messageBytes int, breaks func() bool) {
	compare(t, one, other, now, messageBytes, breaks)
	compare(t, other, one, now, messageBytes, breaks)
}

// compare makes a store ask another store in the same way as a node, in messages of about
// messageBytes bytes. The exchange can end after any message.
func compare(t require.TestingT, asker, answerer *Store, now int64, messageBytes int, breaks func() bool) {
	q := Question{digests: asker.digestsNow()}
	for {
		asked, err := ParseQuestion(q.append(nil))
		require.NoError(t, err)
		require.Equal(t, q, asked)
		answer := answerer.findDifference(&asked, messageBytes)
		d, err := parseDifference(answer.append(nil, now), &q, now)
		require.NoError(t, err)
		if breaks() {
			return
		}
		asker.merge(d.list, now, math.MaxUint64)
		if !d.more {
			return
		}
		q.after = d.list[len(d.list)-1].Name
	}
}

func neverBreak() bool { return false }

func drawEntry(t *rapid.T, now int64) entry {
	p := entry{Item: Item{
		Name:    rapid.StringMatching(`[ab]{0,3}x`).Draw(t, "name"),
		Version: rapid.Uint64Range(1, 4).Draw(t, "version"),
		Value:   []byte(rapid.StringMatching(`[cd]{0,2}`).Draw(t, "value")),
	}}
	if p.isTombstone() {
		p.Value, p.since = nil, now-rapid.Int64Range(0, int64(time.Hour)).Draw(t, "age")
	}
	return p
}

// The order, number and path of arrivals do not matter. After each store has met each other
// store, all stores are equal to a store that has received all entries.
func TestStoresConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := int64(30 * 24 * time.Hour)
		stores, all := make([]Store, rapid.IntRange(2, 4).Draw(t, "stores")), new(Store)
		any := rapid.IntRange(0, len(stores)-1)
		most := rapid.IntRange(1, 400).Draw(t, "bytes in a message")
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch i, j := any.Draw(t, "store"), any.Draw(t, "other"); rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if i != j {
					meet(t, &stores[i], &stores[j], now, most, func() bool { return rapid.IntRange(0, 3).Draw(t, "breaks") == 0 })
				}
			default:
				p := drawEntry(t, now)
				before := stores[i].current().revision
				news, _ := stores[i].merge([]entry{p}, now, math.MaxUint64)
				require.Equal(t, len(news) > 0, stores[i].current().revision > before, "the revision rises with each new entry")
				all.merge([]entry{p}, now, math.MaxUint64)
			}
			now += rapid.Int64Range(0, int64(time.Minute)).Draw(t, "time")
		}
		for range 2 {
			for i := range stores {
				for j := range i {
					meet(t, &stores[j], &stores[i], now, most, neverBreak)
				}
			}
		}
		for i := range stores {
			require.Equal(t, valuesOf(all), valuesOf(&stores[i]))
			require.Equal(t, all.digests, stores[i].digests)
			require.Equal(t, all.bytes, stores[i].bytes)
			require.Equal(t, all.live, stores[i].live)
		}
		now += int64(tombstoneFor)
		stores[0].sweep(now)
		require.Len(t, stores[0].current().all, len(valuesOf(all)))
		require.Equal(t, valuesOf(all), valuesOf(&stores[0]))
	})
}

func TestFullStoresDropTheSameEntries(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	var sides [2]Store
	for side := range sides {
		var list []entry
		for i := range maxValues + 1 {
			list = append(list, entry{Item: Item{Name: fmt.Sprintf("side %d, %06d", side, i), Version: 1, Value: []byte("v")}})
		}
		news, _ := sides[side].merge(list, 0, math.MaxUint64)
		require.Len(t, news, len(list))
	}
	for range 2 {
		meet(t, &sides[0], &sides[1], 0, maxMessageBytes, neverBreak)
		for i := range sides {
			require.Len(t, valuesOf(&sides[i]), maxEntries)
		}
		require.Equal(t, valuesOf(&sides[0]), valuesOf(&sides[1]))
	}
	require.EqualValues(t, 2, sides[0].dropped)
	require.EqualValues(t, 2, sides[1].dropped)
	before := sides[0].current()
	changed := sides[0].After(before.revision)
	sides[0].merge([]entry{{Item: Item{Name: "side 1, 016384", Version: 1, Value: []byte("v")}}}, 0, math.MaxUint64)
	require.Same(t, before, sides[0].current(), "a dropped entry is no change")
	select {
	case <-changed:
		t.Fatal("a dropped entry ended the wait for a change")
	default:
	}
	sides[0].merge([]entry{{Item: Item{Name: "side 0, 000000", Version: 2}, since: 0}}, 1, math.MaxUint64)
	require.Len(t, valuesOf(&sides[0]), maxEntries-1, "a tombstone takes a place that a value may have")
	sides[0].merge([]entry{{Item: Item{Name: "side 1, 016384", Version: 1, Value: []byte("v")}}}, 1, math.MaxUint64)
	require.Len(t, valuesOf(&sides[0]), maxEntries)
}

func TestPublishedValuesAreBoundedInBytes(t *testing.T) {
	var b Store
	value := bytes.Repeat([]byte("v"), MaxValue)
	var list []entry
	for i := range 3 * maxBytes / MaxValue {
		list = append(list, entry{Item: Item{Name: fmt.Sprintf("%06d", i), Version: 1, Value: value}})
	}
	b.merge(list, 0, math.MaxUint64)
	require.LessOrEqual(t, b.bytes, maxEntryBytes)
	require.Greater(t, b.bytes, maxEntryBytes-2*MaxValue)
	require.Equal(t, "000000", valuesOf(&b)[0].Name)
}

func FuzzMessages(f *testing.F) {
	var b Store
	b.merge([]entry{{Item: Item{Name: "a", Version: 7, Value: []byte("v")}}, {Item: Item{Name: "b", Version: 1}}}, 0, math.MaxUint64)
	q := Question{after: "0", digests: digests{1}}
	d := b.findDifference(&q, maxMessageBytes)
	f.Add(q.append(nil))
	f.Add(d.append(nil, 5))
	f.Add(appendEntries(nil, d.list, 5))
	f.Fuzz(func(t *testing.T, message []byte) {
		if list, err := parseEntries(message, 5); err == nil {
			b.merge(list, 5, math.MaxUint64)
		}
		if q, err := ParseQuestion(message); err == nil {
			b.findDifference(&q, 100)
		}
		if d, err := parseDifference(message, &q, 5); err == nil {
			b.merge(d.list, 5, math.MaxUint64)
		}
	})
}

// The time of an arriving tombstone is at most tombstoneFor before now, whatever its age in
// the message is.
func TestTombstoneAgeIsBounded(t *testing.T) {
	message := appendEntries(nil, []entry{{Item: Item{Name: "a", Version: 1}}}, 0)
	message = append(message[:len(message)-1], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f) // the age of the tombstone
	list, err := parseEntries(message, 0)
	require.NoError(t, err)
	require.Equal(t, int64(-tombstoneFor), list[0].since)
}

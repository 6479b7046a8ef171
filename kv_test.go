package weir

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/wire"
)

// meet has two stores ask each other.
func meet(t require.TestingT, one, other *kvStore, now int64, most int, breaks func() bool) {
	compare(t, one, other, now, most, breaks)
	compare(t, other, one, now, most, breaks)
}

// compare has one store ask another, as nodes do, in messages of at most so many
// bytes; the exchange can break off after any of them.
func compare(t require.TestingT, asker, answerer *kvStore, now int64, most int, breaks func() bool) {
	q := comparison{digests: asker.digestsNow()}
	for {
		asked, err := parseComparison(q.append(nil))
		require.NoError(t, err)
		require.Equal(t, q, asked)
		answer := answerer.differs(&asked, most)
		d, err := parseDifference(answer.append(nil, now), &q, now)
		require.NoError(t, err)
		if breaks() {
			return
		}
		asker.put(d.list, now, math.MaxUint64)
		if !d.more {
			return
		}
		q.after = d.list[len(d.list)-1].Name
	}
}

func never() bool { return false }

func drawEntry(t *rapid.T, now int64) kvEntry {
	p := kvEntry{Published: Published{
		Name:    rapid.StringMatching(`[ab]{0,3}x`).Draw(t, "name"),
		Version: rapid.Uint64Range(1, 4).Draw(t, "version"),
		Value:   []byte(rapid.StringMatching(`[cd]{0,2}`).Draw(t, "value")),
	}}
	if p.tombstone() {
		p.Value, p.since = nil, now-rapid.Int64Range(0, int64(time.Hour)).Draw(t, "age")
	}
	return p
}

// Whatever came to which store first, how often and by which way: once every two
// have met, all of them are what one would be that was told everything.
func TestStoresThatMeetBecomeOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := int64(30 * 24 * time.Hour)
		stores, all := make([]kvStore, rapid.IntRange(2, 4).Draw(t, "stores")), new(kvStore)
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
				news, _ := stores[i].put([]kvEntry{p}, now, math.MaxUint64)
				require.Equal(t, len(news) > 0, stores[i].current().revision > before, "the revision rises with what is news")
				all.put([]kvEntry{p}, now, math.MaxUint64)
			}
			now += rapid.Int64Range(0, int64(time.Minute)).Draw(t, "time")
		}
		for range 2 {
			for i := range stores {
				for j := range i {
					meet(t, &stores[j], &stores[i], now, most, never)
				}
			}
		}
		for i := range stores {
			require.Equal(t, all.current().values, stores[i].current().values)
			require.Equal(t, all.digests, stores[i].digests)
			require.Equal(t, all.bytes, stores[i].bytes)
			require.Equal(t, all.live, stores[i].live)
		}
		now += int64(tombstoneFor)
		stores[0].sweep(now)
		require.Len(t, stores[0].all, len(all.current().values))
		require.Equal(t, all.current().values, stores[0].current().values)
	})
}

func TestTwoFullSidesDropTheSameEntries(t *testing.T) {
	t.Parallel()
	var sides [2]kvStore
	for side := range sides {
		var list []kvEntry
		for i := range maxPublished + 1 {
			list = append(list, kvEntry{Published: Published{Name: fmt.Sprintf("side %d, %06d", side, i), Version: 1, Value: []byte("v")}})
		}
		news, _ := sides[side].put(list, 0, math.MaxUint64)
		require.Len(t, news, len(list))
	}
	for range 2 {
		meet(t, &sides[0], &sides[1], 0, maxMessageEntryBytes, never)
		for i := range sides {
			require.Len(t, sides[i].current().values, maxEntries)
		}
		require.Equal(t, sides[0].current().values, sides[1].current().values)
	}
	require.EqualValues(t, 2, sides[0].dropped)
	require.EqualValues(t, 2, sides[1].dropped)
	before := sides[0].current().revision
	sides[0].put([]kvEntry{{Published: Published{Name: "side 1, 016384", Version: 1, Value: []byte("v")}}}, 0, math.MaxUint64)
	require.Equal(t, before, sides[0].current().revision, "what there is no room for is no change")
	sides[0].put([]kvEntry{{Published: Published{Name: "side 0, 000000", Version: 2}, since: 0}}, 1, math.MaxUint64)
	require.Len(t, sides[0].current().values, maxEntries-1, "a tombstone takes a place that a value may have")
	sides[0].put([]kvEntry{{Published: Published{Name: "side 1, 016384", Version: 1, Value: []byte("v")}}}, 1, math.MaxUint64)
	require.Len(t, sides[0].current().values, maxEntries)
}

func TestPublishedValuesAreBoundedInBytes(t *testing.T) {
	var b kvStore
	value := bytes.Repeat([]byte("v"), maxPublishedValue)
	var list []kvEntry
	for i := range 3 * maxPublishedBytes / maxPublishedValue {
		list = append(list, kvEntry{Published: Published{Name: fmt.Sprintf("%06d", i), Version: 1, Value: value}})
	}
	b.put(list, 0, math.MaxUint64)
	require.LessOrEqual(t, b.bytes, maxEntryBytes)
	require.Greater(t, b.bytes, maxEntryBytes-2*maxPublishedValue)
	require.Equal(t, "000000", b.current().values[0].Name)
}

func TestPublishedIsSortedAndByPrefix(t *testing.T) {
	n := solo(t, Config{})
	values, revision := n.Published("")
	require.Empty(t, values)
	for _, name := range []string{"b/2", "a", "b/1", "b", "c", "b0", "\xff", "\xff\xff"} {
		require.NoError(t, n.Publish(name, 0, []byte("of "+name)))
	}
	names := func(prefix string) string {
		values, _ := n.Published(prefix)
		var s []string
		for _, p := range values {
			require.Equal(t, "of "+p.Name, string(p.Value))
			s = append(s, p.Name)
		}
		require.True(t, slices.IsSorted(s))
		return strings.Join(s, " ")
	}
	require.Equal(t, "b/1 b/2", names("b/"))
	require.Equal(t, "b b/1 b/2 b0", names("b"))
	require.Equal(t, "\xff \xff\xff", names("\xff"))
	require.Equal(t, "", names("b/3"))
	require.Equal(t, "", names("a/"))
	_, after := n.Published("b/")
	require.Equal(t, revision+8, after)
	require.NoError(t, n.Publish("b/1", 0, nil))
	require.Equal(t, "b/2", names("b/"))
	_, again := n.Published("b/")
	require.Greater(t, again, after)
	require.Equal(t, PublishedStats{Values: 7, Tombstones: 1, Bytes: 14 + 7*3 + 11, Revision: again}, n.Stats().Published)
	require.Zero(t, testing.AllocsPerRun(100, func() { n.Published("b/") }))
}

func TestWhatIsPublishedGoesOverSockets(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	large := bytes.Repeat([]byte("v"), maxPublishedValue)
	for i, n := range nodes {
		require.NoError(t, n.Publish(fmt.Sprint("from ", i), 0, large))
	}
	for _, n := range nodes {
		eventually(t, "all have what the others published", func() bool {
			values, _ := n.Published("from ")
			return len(values) == 3
		})
	}
	joiner, err := Start(t.Context(), Config{Bind: "127.0.0.1:0", Join: []string{nodes[0].Members()[0].Addr}, Logger: quiet})
	require.NoError(t, err)
	defer joiner.Close()
	eventually(t, "the joiner has what was published", func() bool {
		values, _ := joiner.Published("from ")
		return len(values) == 3
	})
}

func TestPublishRefusesWhatCannotHold(t *testing.T) {
	n := solo(t, Config{})
	require.NoError(t, n.Publish("name", 5, []byte("five")))
	require.NoError(t, n.Publish("name", 5, []byte("five")), "it holds")
	require.NoError(t, n.Publish("name", 5, []byte("fivf")), "greater bytes")
	require.NoError(t, n.Publish(strings.Repeat("n", 256), 1, make([]byte, 4096)))
	for says, err := range map[string]error{
		"version: 4 of \"name\" is not above version 5":   n.Publish("name", 4, []byte("four")),
		"version: 5 of \"name\" is not above version 5, ": n.Publish("name", 5, []byte("five")),
		"name: it has 0 bytes":                            n.Publish("", 1, nil),
		"name: it has 257 bytes":                          n.Publish(strings.Repeat("n", 257), 1, nil),
		"value: \"name\" has 4097 bytes":                  n.Publish("name", 6, make([]byte, 4097)),
		"version: 18446744073709551615 of \"name\" is a":  n.Publish("name", math.MaxUint64, nil),
		"version: 9223372036854775808 of \"other\" is ab": n.Publish("other", 1<<63, []byte("v")),
	} {
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, says)
	}

	require.NoError(t, n.Publish("name", 0, nil), "whatever version it has")

	value := []byte("mine")
	require.NoError(t, n.Publish("kept", 1, value))
	value[0] = 'd'
	values, _ := n.Published("kept")
	require.Equal(t, "mine", string(values[0].Value))

	for i := range maxPublished - 2 {
		require.NoError(t, n.Publish(fmt.Sprint(i), 1, []byte("v")))
	}
	require.ErrorContains(t, n.Publish("one more", 1, []byte("v")), "value: there is no room for \"one more\" beside 16384 values")
	require.NoError(t, n.Publish("one more", 1, nil))
	require.NoError(t, n.Publish("kept", 2, []byte("in its own place")))
	require.NoError(t, n.Publish("0", 2, nil))
	require.NoError(t, n.Publish("another", 1, []byte("v")))
	require.NoError(t, n.Close())
	require.ErrorIs(t, n.Publish("name", 0, nil), ErrClosed)
}

// A member that is gone leaves no value for good: a higher version that is taken comes
// within a nanosecond, and deletes what it left on all nodes.
func TestAPublishedValueCanBeReplacedWhateverItsVersion(t *testing.T) {
	t.Parallel()
	now := uint64(time.Now().UnixNano())
	for about, c := range map[string]struct {
		version uint64
		value   string
		held    bool
	}{
		"the highest version of all":            {math.MaxUint64, "left", false},
		"one below it":                          {math.MaxUint64 - 1, "left", false},
		"the highest, of what was taken back":   {math.MaxUint64, "", false},
		"the year 2262":                         {math.MaxInt64, "left", false},
		"two days ahead":                        {now + uint64(48*time.Hour), "left", false},
		"23 hours ahead":                        {now + uint64(23*time.Hour), "left", true},
		"23 hours ahead, of what is taken back": {now + uint64(23*time.Hour), "", true},
		"as the caller counts":                  {1, "left", true},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			log := new(logbook)
			nodes := fleet(t, 2, func(_ int, cfg *Config) { cfg.Logger = log.logger() })
			left := kvEntry{Published: Published{Name: "name", Version: c.version, Value: []byte(c.value)}, since: nodes[0].clock.Now()}
			served(nodes[0], "", append(wire.Header{Op: wire.OpPublish}.Append(nil), appendEntries(nil, []kvEntry{left}, nodes[0].clock.Now())...))
			require.Equal(t, c.held && c.value != "", published(nodes[0]) == "name=left ", published(nodes[0]))
			require.Equal(t, !c.held, strings.Contains(strings.Join(log.lines(), "\n"), tooFarAhead))

			require.NoError(t, nodes[1].Publish("name", 0, []byte("set")))
			require.NoError(t, nodes[0].Publish("name", 0, []byte("set anew")))
			for _, n := range nodes {
				eventually(t, "it is replaced", func() bool { return published(n) == "name=set anew " })
			}
			require.NoError(t, nodes[1].Publish("name", 0, nil))
			for _, n := range nodes {
				eventually(t, "it is deleted", func() bool { return published(n) == "" })
			}
		})
	}
}

// A node of a release before, or one whose clock was set back, holds such a value.
func TestAJoinerDoesNotInheritAVersionThatIsTooFarAhead(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 1, nil)
	kv := &nodes[0].kv
	for name, version := range map[string]uint64{"highest": math.MaxUint64, "ahead": uint64(time.Now().Add(48 * time.Hour).UnixNano()), "set": 5} {
		kv.put([]kvEntry{{Published: Published{Name: name, Version: version, Value: []byte("left")}}}, 0, math.MaxUint64)
	}
	joiner, err := Start(t.Context(), Config{Bind: "127.0.0.1:0", Join: []string{nodes[0].Members()[0].Addr}, Logger: quiet})
	require.NoError(t, err)
	defer joiner.Close()
	eventually(t, "the joiner has what was published", func() bool { return published(joiner) != "" })
	require.Equal(t, "set=left ", published(joiner))
	require.NoError(t, nodes[0].Publish("ahead", 0, nil), "who holds it can delete it")
	require.Equal(t, "highest=left set=left ", published(nodes[0]))
}

func published(n *Node) (s string) {
	values, _ := n.Published("")
	for _, p := range values {
		s += fmt.Sprintf("%s=%s ", p.Name, p.Value)
	}
	return s
}

func TestPublishedValuesMayHaveEightMegabytesInAll(t *testing.T) {
	n := solo(t, Config{})
	for i := range maxPublishedBytes / (maxPublishedValue + 4) {
		require.NoError(t, n.Publish(fmt.Sprintf("%04d", i), 1, make([]byte, maxPublishedValue)))
	}
	require.ErrorContains(t, n.Publish("more", 1, make([]byte, maxPublishedValue)), "there is no room for \"more\"")
}

func FuzzKVMessages(f *testing.F) {
	var b kvStore
	b.put([]kvEntry{{Published: Published{Name: "a", Version: 7, Value: []byte("v")}}, {Published: Published{Name: "b", Version: 1}}}, 0, math.MaxUint64)
	q := comparison{after: "0", digests: digests{1}}
	d := b.differs(&q, maxMessageEntryBytes)
	f.Add(q.append(nil))
	f.Add(d.append(nil, 5))
	f.Add(appendEntries(nil, d.list, 5))
	f.Fuzz(func(t *testing.T, message []byte) {
		if list, err := parseEntries(message, 5); err == nil {
			b.put(list, 5, math.MaxUint64)
		}
		if q, err := parseComparison(message); err == nil {
			b.differs(&q, 100)
		}
		if d, err := parseDifference(message, &q, 5); err == nil {
			b.put(d.list, 5, math.MaxUint64)
		}
	})
}

// A time less such an age is a time that a clock can show.
func TestTheAgeOfATombstoneIsBounded(t *testing.T) {
	entry := (&kvEntry{Published: Published{Name: "a", Version: 1}}).append(nil, 0)
	entry = append(entry[:len(entry)-1], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f) // its age
	list, err := parseEntries(entry, 0)
	require.NoError(t, err)
	require.Equal(t, int64(-tombstoneFor), list[0].since)
}

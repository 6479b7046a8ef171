package cluster

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHearing(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for name, steps := range map[string][]struct {
		ms    int
		event string
		id    uint64
		heard bool
	}{
		"nobody is heard before a pong": {
			{0, "ping", 1, false},
		},
		"a pong makes a member heard": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {301, "pong", 2, true},
		},
		"a ping without a pong by the next ping is unanswered": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {600, "ping", 3, false},
		},
		"a member that answers asks but no ping is unheard": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {599, "answer", 0, true}, {600, "ping", 3, false},
		},
		"a failed ask makes a member unheard, only a later ping's pong makes it heard": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {310, "fail", 0, false},
			{311, "pong", 2, false}, {312, "ping", 3, false}, {313, "pong", 3, true},
		},
		"an answer to an ask does not make a member heard again": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {2, "fail", 0, false}, {3, "answer", 0, false},
		},
		"the pong of a ping that was given up does not count": {
			{0, "ping", 1, false}, {300, "ping", 2, false}, {310, "pong", 1, false}, {320, "pong", 2, true},
		},
		"a pong that is older than a second does not count": {
			{0, "ping", 1, false}, {1001, "pong", 1, false}, {1002, "ping", 2, false}, {1003, "pong", 2, true},
		},
		"a process that stood still hears nobody until they answer again": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {9000, "ping", 2, false}, {9001, "pong", 2, true},
		},
		"a pong nobody asked for does not count": {
			{0, "pong", 0, false}, {0, "ping", 1, false}, {1, "pong", 9, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHearing("self")
			h.set([]string{"self", "m"})
			answered := start
			for i, s := range steps {
				before := h.hears("m")
				var changed bool
				switch s.event {
				case "ping":
					changed = h.pinged("m", s.id, answered, at(s.ms))
				case "pong":
					answered = at(s.ms)
					var inTime bool
					inTime, changed = h.ponged("m", s.id, at(s.ms))
					require.Equal(t, s.heard, inTime, "step %d", i)
				case "answer":
					answered = at(s.ms)
				case "fail":
					changed = h.failed("m")
				}
				require.Equal(t, s.heard, h.hears("m"), "step %d", i)
				require.Equal(t, before != s.heard, changed, "step %d", i)
			}
		})
	}
}

// Nodes fail and answer each other at random and pass their tables on at
// random, in any order and repeatedly. Then nobody may believe of another what
// was never so or has been superseded by what it knew; and when everyone has
// told everyone, all agree with the truth.
func TestTablesConvergeOnWhatEachMemberSaysOfItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "nodes")]
		nodes := make([]*hearing, len(names))
		for i, name := range names {
			nodes[i] = newHearing(name)
			nodes[i].set(names)
		}
		var tables []table // that are under way, and may arrive late and often
		var id uint64
		now := time.Unix(1000, 0)
		pick := rapid.IntRange(0, len(names)-1)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i, j := pick.Draw(t, "node"), pick.Draw(t, "other")
			h := nodes[i]
			version, before := h.version, h.table()
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				id++
				h.pinged(names[j], id, now, now)
				h.ponged(names[j], id, now)
			case 1:
				h.failed(names[j])
			case 2:
				tables = append(tables, h.table())
			case 3:
				if len(tables) > 0 {
					sent := tables[rapid.IntRange(0, len(tables)-1).Draw(t, "table")]
					h.merge(sent)
				}
			}
			if same(before, h.table()) != (version == h.version) {
				t.Fatalf("%s: version %d then %d, table %v then %v", names[i], version, h.version, before, h.table())
			}
		}
		for range 2 {
			for _, from := range nodes {
				for _, to := range nodes {
					decoded, err := decodeTable(encode(from.table()))
					if err != nil {
						t.Fatal(err)
					}
					to.merge(decoded)
				}
			}
		}
		for _, h := range nodes {
			rows, direct := h.matrix(names)
			for i, row := range rows {
				for j := range row {
					if want := i == j || nodes[i].hears(names[j]); row[j] != want {
						t.Fatalf("%s believes that %s hears %s: %v", h.self, names[i], names[j], row[j])
					}
				}
			}
			if !slices.Equal(direct, rows[slices.Index(names, h.self)]) {
				t.Fatal("direct is not the node's own row")
			}
			if h.merge(nodes[0].table()) {
				t.Fatal("what is known already is no change")
			}
		}
	})
}

func same(a, b table) bool { return string(encode(a)) == string(encode(b)) }

func TestWhoLeavesTheRosterIsForgottenAndWhoStaysIsNot(t *testing.T) {
	h := newHearing("self")
	require.True(t, h.set([]string{"a", "b"}))
	now := time.Unix(1000, 0)
	for i, name := range []string{"a", "b"} {
		h.pinged(name, uint64(i+1), now, now)
		inTime, changed := h.ponged(name, uint64(i+1), now)
		require.True(t, inTime && changed)
	}
	require.False(t, h.set([]string{"a"}))
	require.True(t, h.hears("a"))
	require.False(t, h.hears("b"))
	_, direct := h.matrix([]string{"a", "b"})
	require.Equal(t, []bool{true, false}, direct)
	require.True(t, h.set([]string{"a", "b"}))
	require.False(t, h.hears("b"))
}

func TestANodeThatHasLeftTheRosterStillKnowsWhomItHears(t *testing.T) {
	h := newHearing("self")
	h.set([]string{"a"})
	now := time.Unix(1000, 0)
	h.pinged("a", 1, now, now)
	h.ponged("a", 1, now)
	rows, direct := h.matrix([]string{"a"})
	require.Equal(t, [][]bool{{true}}, rows)
	require.Equal(t, []bool{true}, direct)
}

func FuzzTable(f *testing.F) {
	h := newHearing("self")
	h.set([]string{"a", "b"})
	f.Add(encode(h.table()))
	f.Add(encode(table{About: []string{"x", "y"}, Others: []string{"z"}, Numbers: []uint64{1, 2}, Bits: []byte{0x3F}}))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded, err := decodeTable(b)
		if err != nil {
			return
		}
		h := newHearing("self")
		h.set([]string{"a", "b", "x", "y"})
		h.merge(decoded)
		h.matrix([]string{"a", "self", "x"})
		again, err := decodeTable(encode(h.table()))
		require.NoError(t, err)
		require.Equal(t, string(encode(h.table())), string(encode(again)))
	})
}

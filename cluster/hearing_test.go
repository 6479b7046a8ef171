package cluster

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// at returns the time so many milliseconds after the start of a test.
func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

// hearingOf returns what a node named self hears of these members, each of which has answered at 0.
func hearingOf(members ...string) *hearing {
	h := newHearing("self")
	h.set(members)
	for i, name := range members {
		h.pinged(name, uint64(i+1), at(0))
		h.ponged(name, uint64(i+1), at(0))
	}
	return h
}

func TestHearing(t *testing.T) {
	for name, steps := range map[string][]struct {
		ms    int
		event string
		id    uint64 // of a ping or pong; when a look was due, or an answer was given
		heard bool
	}{
		"nobody is heard before a pong": {
			{0, "ping", 1, false}, {100, "look", 100, false},
		},
		"a pong makes a member heard": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {301, "pong", 2, true},
		},
		"a member is heard until it has been silent for 800 ms": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "look", 300, true}, {600, "look", 600, true},
			{800, "look", 800, true}, {801, "look", 801, false},
		},
		"an answer to an ask ends a silence": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "answer", 700, true}, {900, "look", 900, true},
			{1499, "look", 1499, true}, {1500, "look", 1500, false},
		},
		"an answer counts from when it was given": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "answer", 200, true}, {1000, "look", 1000, false},
		},
		"an older answer takes nothing back": {
			{0, "ping", 1, false}, {500, "pong", 1, true}, {501, "answer", 100, true}, {1299, "look", 1299, true},
		},
		"a member whose connection broke is heard by the pong of a later ping only": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {310, "fail", 0, false},
			{311, "pong", 2, false}, {312, "ping", 3, false}, {313, "pong", 3, true},
		},
		"so is one that was silent": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "ping", 2, true}, {801, "look", 801, false},
			{802, "pong", 2, false}, {900, "ping", 3, false}, {901, "pong", 3, true},
		},
		"an answer to an ask does not make a member heard again": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {2, "fail", 0, false}, {3, "answer", 3, false},
		},
		"the pong of an earlier ping counts as well": {
			{0, "ping", 1, false}, {100, "ping", 2, false}, {110, "pong", 1, true}, {120, "pong", 2, true},
		},
		"a pong that comes twice counts once": {
			{0, "ping", 1, false}, {10, "pong", 1, true}, {20, "fail", 0, false}, {30, "pong", 1, false},
		},
		"a pong that is older than a second does not count": {
			{0, "ping", 1, false}, {1001, "pong", 1, false}, {1002, "ping", 2, false}, {1003, "pong", 2, true},
		},
		"a process that stood still accuses nobody, and looks again": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {9000, "look", 300, true}, {9100, "look", 9100, true},
			{9400, "look", 9400, true}, {10400, "look", 10400, false},
		},
		"a look that comes late has a second one decide": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "look", 700, true}, {850, "look", 800, true}, {950, "look", 950, false},
		},
		"what lay in the socket meanwhile is read before the second look": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "look", 700, true}, {850, "look", 800, true},
			{860, "answer", 860, true}, {950, "look", 950, true},
		},
		"a process that is always late still notices silence": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {350, "look", 300, true}, {500, "look", 450, true}, {650, "look", 600, true},
			{800, "look", 750, true}, {950, "look", 900, true}, {1100, "look", 1050, true}, {1250, "look", 1200, false},
		},
		"a pong nobody asked for does not count": {
			{0, "pong", 0, false}, {0, "ping", 1, false}, {1, "pong", 9, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHearing("self")
			h.set([]string{"self", "m"})
			for i, s := range steps {
				before := h.hears("m")
				var changed bool
				switch s.event {
				case "ping":
					h.pinged("m", s.id, at(s.ms))
				case "pong":
					_, _, changed = h.ponged("m", s.id, at(s.ms))
				case "answer":
					h.answered("m", at(int(s.id)))
				case "look":
					changed = h.look("m", at(int(s.id)), at(s.ms))
				case "fail":
					changed = h.failed("m", at(s.ms))
				}
				require.Equal(t, s.heard, h.hears("m"), "step %d", i)
				require.Equal(t, before != s.heard, changed, "step %d", i)
			}
		})
	}
}

func TestAMemberThatLeavesAsksUnansweredAndSaysNothingStalls(t *testing.T) {
	const most = 100 * time.Millisecond
	h := hearingOf("m")

	require.False(t, h.unanswered("m", at(10), most, at(30), at(30)))
	require.True(t, h.unanswered("m", at(10), most, at(110), at(110)))
	require.True(t, h.stalls("m"))
	require.True(t, h.hears("m"), "slow is not gone")
	require.False(t, h.unanswered("m", at(10), most, at(120), at(120)), "that is no news")
	require.True(t, h.resumed("m"))
	require.False(t, h.stalls("m"))
	require.False(t, h.resumed("m"))

	require.False(t, h.unanswered("m", at(200), most, at(250), at(500)), "this process was late itself")
	require.True(t, h.unanswered("m", at(200), most, at(530), at(530)))
	h.pinged("m", 2, at(540))
	_, _, changed := h.ponged("m", 2, at(550))
	require.True(t, changed, "a pong ends it, whichever connection it came by")
	require.False(t, h.stalls("m"))

	require.True(t, h.unanswered("m", at(600), most, at(700), at(700)))
	require.True(t, h.failed("m", at(710)))
	require.False(t, h.stalls("m"), "it is gone")
}

func TestALateMemberIsAllowedMoreTime(t *testing.T) {
	for name, c := range map[string]struct {
		own, others int // how late this process, and the member, run, in ms
		silent      int // for how long the member may be
	}{
		"nobody runs late":                {0, 0, 800},
		"what every process runs late by": {15, 15, 800},
		"this process runs late":          {150, 0, 950},
		"the member says that it does":    {0, 300, 1100},
		"both do":                         {150, 300, 1100},
		"no more than a second":           {0, 60_000, 1800},
	} {
		t.Run(name, func(t *testing.T) {
			judge := func(silent int) (heard bool) {
				h := hearingOf("m", "other")
				h.says("m", time.Duration(c.others)*time.Millisecond)
				h.look("other", at(silent-c.own), at(silent)) // by another member's look, too
				h.look("m", at(silent), at(silent))
				return h.hears("m")
			}
			require.True(t, judge(c.silent-1))
			require.False(t, judge(c.silent))
		})
	}
}

func TestLatenessIsForgottenInFourTimesItsLength(t *testing.T) {
	h := newHearing("self")
	h.look("m", at(0), at(400))
	require.Equal(t, 400*time.Millisecond, h.late.By())
	for ms := 500; ms <= 2000; ms += 100 {
		h.look("m", at(ms), at(ms))
		require.Equal(t, time.Duration(400-(ms-400)/4)*time.Millisecond, h.late.By())
	}
	require.Zero(t, h.late.By())
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
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				id++
				now = now.Add(time.Millisecond)
				h.pinged(names[j], id, now)
				h.ponged(names[j], id, now)
			case 1:
				h.failed(names[j], now)
			case 2:
				tables = append(tables, h.table())
			case 3:
				if len(tables) > 0 {
					sent := tables[rapid.IntRange(0, len(tables)-1).Draw(t, "table")]
					h.merge(sent)
				}
			case 4:
				h.setRefused(names[j], rapid.Bool().Draw(t, "refused"))
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
			rows, direct, _ := h.matrix(names)
			for i, row := range rows {
				for j := range row {
					if want := i == j || nodes[i].hears(names[j]); row[j] != want {
						t.Fatalf("%s believes that %s hears %s: %v", h.self, names[i], names[j], row[j])
					}
				}
			}
			for i, row := range h.refusingHosts(names) {
				for j := range row {
					if want := i != j && nodes[i].members[names[j]].refused; row[j] != want {
						t.Fatalf("%s believes that %s refuses %s: %v", h.self, names[j], names[i], row[j])
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

func TestHeardMemberIsNotRefused(t *testing.T) {
	h := newHearing("self")
	h.set([]string{"a"})
	now := time.Unix(1000, 0)
	require.True(t, h.setRefused("a", true))
	require.False(t, h.setRefused("a", true), "no change")
	h.pinged("a", 1, now)
	h.ponged("a", 1, now)
	require.Equal(t, [][]bool{{false, false}, {false, false}}, h.refusingHosts([]string{"a", "self"}))
	require.False(t, h.setRefused("a", true), "it answers")
	h.failed("a", now)
	require.Equal(t, [][]bool{{false, false}, {false, false}}, h.refusingHosts([]string{"a", "self"}), "until it is dialled again")
	require.False(t, h.setRefused("nobody", true))
}

func same(a, b table) bool { return string(encode(a)) == string(encode(b)) }

func TestHearingForgetsOnlyMembersThatLeaveTheRoster(t *testing.T) {
	h := newHearing("self")
	require.True(t, h.set([]string{"a", "b"}))
	now := time.Unix(1000, 0)
	for i, name := range []string{"a", "b"} {
		h.pinged(name, uint64(i+1), now)
		_, inTime, changed := h.ponged(name, uint64(i+1), now)
		require.True(t, inTime && changed)
	}
	require.False(t, h.set([]string{"a"}))
	require.True(t, h.hears("a"))
	require.False(t, h.hears("b"))
	_, direct, _ := h.matrix([]string{"a", "b"})
	require.Equal(t, []bool{true, false}, direct)
	require.True(t, h.set([]string{"a", "b"}))
	require.False(t, h.hears("b"))
}

func TestANodeOffTheRosterStillKnowsTheMembersThatItHears(t *testing.T) {
	rows, direct, _ := hearingOf("a").matrix([]string{"a"})
	require.Equal(t, [][]bool{{true}}, rows)
	require.Equal(t, []bool{true}, direct)
}

func FuzzTable(f *testing.F) {
	h := newHearing("self")
	h.set([]string{"a", "b"})
	f.Add(encode(h.table()))
	f.Add(encode(table{About: []string{"x", "y"}, Others: []string{"z"}, Numbers: []uint64{1, 2}, Bits: []byte{0x3F}}))
	f.Add(encode(table{About: []string{"x", "y"}, Others: []string{"z"}, Numbers: []uint64{1, 2}, Bits: []byte{0}, Refused: []byte{0x3F}}))
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

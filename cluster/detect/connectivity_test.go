package detect

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// atMS returns the time that is the given number of milliseconds after the start of a test.
func atMS(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

// connected returns the table of the node self with these members. Each member has answered a ping at 0 ms.
func connected(members ...string) *Connectivity {
	c := NewConnectivity("self")
	c.SetMembers(members)
	for i, name := range members {
		c.RecordPing(name, uint64(i+1), atMS(0))
		c.RecordPong(name, uint64(i+1), atMS(0))
	}
	return c
}

func TestPongConnectsAndSilenceDisconnectsMember(t *testing.T) {
	for name, steps := range map[string][]struct {
		ms        int
		event     string
		arg       uint64 // the number of a ping or pong, or the ms at which a check was due or an answer was given
		connected bool
	}{
		"no member is connected before a pong": {
			{0, "ping", 1, false}, {100, "check", 100, false},
		},
		"a pong connects a member": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {301, "pong", 2, true},
		},
		"a member is connected until it has been silent for 800 ms": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "check", 300, true}, {600, "check", 600, true},
			{800, "check", 800, true}, {801, "check", 801, false},
		},
		"an answer to a request ends a silence": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "answer", 700, true}, {900, "check", 900, true},
			{1499, "check", 1499, true}, {1500, "check", 1500, false},
		},
		"an answer counts from when it was given": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "answer", 200, true}, {1000, "check", 1000, false},
		},
		"an older answer has no effect": {
			{0, "ping", 1, false}, {500, "pong", 1, true}, {501, "answer", 100, true}, {1299, "check", 1299, true},
		},
		"after a failure, only the pong of a later ping connects a member": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {300, "ping", 2, true}, {310, "fail", 0, false},
			{311, "pong", 2, false}, {312, "ping", 3, false}, {313, "pong", 3, true},
		},
		"after a silence, only the pong of a later ping connects a member": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "ping", 2, true}, {801, "check", 801, false},
			{802, "pong", 2, false}, {900, "ping", 3, false}, {901, "pong", 3, true},
		},
		"an answer to a request does not connect a member again": {
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
		"a suspended process disconnects no member, and checks again": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {9000, "check", 300, true}, {9100, "check", 9100, true},
			{9400, "check", 9400, true}, {10400, "check", 10400, false},
		},
		"after a late check, the second check decides": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "check", 700, true}, {850, "check", 800, true}, {950, "check", 950, false},
		},
		"an answer that waited in the socket is read before the second check": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {700, "check", 700, true}, {850, "check", 800, true},
			{860, "answer", 860, true}, {950, "check", 950, true},
		},
		"a process that is always delayed still finds silence": {
			{0, "ping", 1, false}, {1, "pong", 1, true}, {350, "check", 300, true}, {500, "check", 450, true}, {650, "check", 600, true},
			{800, "check", 750, true}, {950, "check", 900, true}, {1100, "check", 1050, true}, {1250, "check", 1200, false},
		},
		"a pong without a ping does not count": {
			{0, "pong", 0, false}, {0, "ping", 1, false}, {1, "pong", 9, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewConnectivity("self")
			c.SetMembers([]string{"self", "m"})
			for i, s := range steps {
				before := c.IsConnected("m")
				var changed bool
				switch s.event {
				case "ping":
					c.RecordPing("m", s.arg, atMS(s.ms))
				case "pong":
					_, _, changed = c.RecordPong("m", s.arg, atMS(s.ms))
				case "answer":
					c.RecordAnswer("m", atMS(int(s.arg)))
				case "check":
					changed = c.CheckSilence("m", atMS(int(s.arg)), atMS(s.ms))
				case "fail":
					changed = c.RecordFailure("m", atMS(s.ms))
				}
				require.Equal(t, s.connected, c.IsConnected("m"), "step %d", i)
				require.Equal(t, before != s.connected, changed, "step %d", i)
			}
		})
	}
}

func TestSilentMemberWithUnansweredRequestStalls(t *testing.T) {
	const timeout = 100 * time.Millisecond
	c := connected("m")

	require.False(t, c.CheckStall("m", atMS(10), timeout, atMS(30), atMS(30)))
	require.True(t, c.CheckStall("m", atMS(10), timeout, atMS(110), atMS(110)))
	require.True(t, c.IsStalled("m"))
	require.True(t, c.IsConnected("m"), "a slow member is not missing")
	require.False(t, c.CheckStall("m", atMS(10), timeout, atMS(120), atMS(120)), "it has stalled already")
	require.True(t, c.RecordMessage("m"))
	require.False(t, c.IsStalled("m"))
	require.False(t, c.RecordMessage("m"))

	require.False(t, c.CheckStall("m", atMS(200), timeout, atMS(250), atMS(500)), "this process was delayed")
	require.True(t, c.CheckStall("m", atMS(200), timeout, atMS(530), atMS(530)))
	c.RecordPing("m", 2, atMS(540))
	_, _, changed := c.RecordPong("m", 2, atMS(550))
	require.True(t, changed, "a pong on either connection ends the stall")
	require.False(t, c.IsStalled("m"))

	require.True(t, c.CheckStall("m", atMS(600), timeout, atMS(700), atMS(700)))
	require.True(t, c.RecordFailure("m", atMS(710)))
	require.False(t, c.IsStalled("m"), "it is disconnected")
}

func TestDelayedMemberHasExtraTime(t *testing.T) {
	for name, delays := range map[string]struct {
		own, reported int // in ms
		silent        int // ms for which the member may be silent
	}{
		"no delay":                   {0, 0, 800},
		"delays below 20 ms":         {15, 15, 800},
		"this process is delayed":    {150, 0, 950},
		"the member reports a delay": {0, 300, 1100},
		"both are delayed":           {150, 300, 1100},
		"at most a second":           {0, 60_000, 1800},
	} {
		t.Run(name, func(t *testing.T) {
			lasts := func(silent int) bool {
				c := connected("m", "other")
				c.SetDelay("m", time.Duration(delays.reported)*time.Millisecond)
				c.CheckSilence("other", atMS(silent-delays.own), atMS(silent)) // the check of another member counts too
				c.CheckSilence("m", atMS(silent), atMS(silent))
				return c.IsConnected("m")
			}
			require.True(t, lasts(delays.silent-1))
			require.False(t, lasts(delays.silent))
		})
	}
}

func TestDelayIsForgottenInFourTimesItsLength(t *testing.T) {
	c := NewConnectivity("self")
	c.CheckSilence("m", atMS(0), atMS(400))
	require.Equal(t, 400*time.Millisecond, c.Delay())
	for ms := 500; ms <= 2000; ms += 100 {
		c.CheckSilence("m", atMS(ms), atMS(ms))
		require.Equal(t, time.Duration(400-(ms-400)/4)*time.Millisecond, c.Delay())
	}
	require.Zero(t, c.Delay())
}

// rowsOf returns all rows that a node has.
func rowsOf(c *Connectivity) []Row {
	rows, _, _ := c.News(new(Feed), "", time.Time{})
	return rows
}

// Random nodes fail, answer pings of each other, and exchange rows. Rows may arrive more than once, and
// after later rows. Once each node has received the rows of all nodes, all tables are true.
func TestRowsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "nodes")]
		nodes := make([]*Connectivity, len(names))
		for i, name := range names {
			nodes[i] = NewConnectivity(name)
			nodes[i].SetMembers(names)
		}
		var tables [][]Row // the rows that nodes have sent, which may arrive late and repeatedly
		var id uint64
		now := time.Unix(1000, 0)
		pick := rapid.IntRange(0, len(names)-1)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i, j := pick.Draw(t, "node"), pick.Draw(t, "other")
			c := nodes[i]
			version, before := c.version, rowsOf(c)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				id++
				now = now.Add(time.Millisecond)
				c.RecordPing(names[j], id, now)
				c.RecordPong(names[j], id, now)
			case 1:
				c.RecordFailure(names[j], now)
			case 2:
				tables = append(tables, rowsOf(c))
			case 3:
				if len(tables) > 0 {
					sent := tables[rapid.IntRange(0, len(tables)-1).Draw(t, "table")]
					c.Merge("", sent)
				}
			case 4:
				c.SetRefused(names[j], rapid.Bool().Draw(t, "refused"))
			}
			if reflect.DeepEqual(before, rowsOf(c)) != (version == c.version) {
				t.Fatalf("%s: version %d then %d, rows %v then %v", names[i], version, c.version, before, rowsOf(c))
			}
		}
		for range 2 {
			for _, from := range nodes {
				for _, to := range nodes {
					rows, err := ParseRows(AppendRows(nil, rowsOf(from)))
					if err != nil {
						t.Fatal(err)
					}
					to.Merge(from.self, rows)
				}
			}
		}
		for _, c := range nodes {
			m := c.Connections(names)
			side := Side(m.Direct, m.Connected)
			for j := range names {
				ended := true
				for i := range names {
					if want := i != j && nodes[i].IsConnected(names[j]); slices.Contains(m.Connected[i], j) != want {
						t.Fatalf("%s has a connection of %s to %s: %v", c.self, names[i], names[j], !want)
					}
					ended = ended && (!side[i] || i != j && nodes[i].members[names[j]].refused)
				}
				if m.Ended[j] != ended {
					t.Fatalf("%s has %s as ended: %v", c.self, names[j], !ended)
				}
				if m.Direct[j] != (c.self == names[j] || c.IsConnected(names[j])) {
					t.Fatal("direct differs from the connections of the node")
				}
			}
			if c.Merge("", rowsOf(nodes[0])) {
				t.Fatal("known rows are a change")
			}
		}
	})
}

func TestConnectedMemberIsNotRefused(t *testing.T) {
	c := NewConnectivity("self")
	c.SetMembers([]string{"a"})
	now := time.Unix(1000, 0)
	require.True(t, c.SetRefused("a", true))
	require.True(t, c.Connections([]string{"a", "self"}).Ended[0])
	require.False(t, c.SetRefused("a", true), "no change")
	c.RecordPing("a", 1, now)
	c.RecordPong("a", 1, now)
	require.False(t, c.Connections([]string{"a", "self"}).Ended[0])
	require.False(t, c.SetRefused("a", true), "it answers")
	c.RecordFailure("a", now)
	require.False(t, c.Connections([]string{"a", "self"}).Ended[0], "until it is dialled again")
	require.False(t, c.SetRefused("unknown", true))
}

// In a large cluster, few members of a side watch a member. The member has ended only if its host
// refuses the connections of all its watchers.
func TestMemberWithReportedSilenceHasNotEnded(t *testing.T) {
	names := []string{"other", "self", "x"}
	for i := range smallCluster {
		names = append(names, crowdName(i))
	}
	slices.Sort(names)
	c := connected(names...)
	c.Arrange(names, len(names), atMS(0))
	c.RecordFailure("x", atMS(1))
	c.Arrange(names, len(names), atMS(1))
	at := slices.Index(names, "x")
	for i, row := range []Row{{}, {Refused: []uint64{MemberID("x")}}, {Silent: []uint64{MemberID("x")}}} {
		row.About, row.Number = MemberID(fmt.Sprint("n000", i)), 1
		c.Merge("other", []Row{row})
		ended := c.Connections(names).Ended[at]
		require.Equal(t, i == 1, ended, "after row %d", i)
	}
}

func TestSetMembersKeepsStateOfRemainingMembers(t *testing.T) {
	c := NewConnectivity("self")
	require.True(t, c.SetMembers([]string{"a", "b"}))
	now := time.Unix(1000, 0)
	for i, name := range []string{"a", "b"} {
		c.RecordPing(name, uint64(i+1), now)
		_, inTime, changed := c.RecordPong(name, uint64(i+1), now)
		require.True(t, inTime && changed)
	}
	require.False(t, c.SetMembers([]string{"a"}))
	require.True(t, c.IsConnected("a"))
	require.False(t, c.IsConnected("b"))
	require.Equal(t, []bool{true, false}, c.Connections([]string{"a", "b"}).Direct)
	require.True(t, c.SetMembers([]string{"a", "b"}))
	require.False(t, c.IsConnected("b"))
}

func TestMergeKeepsOwnRow(t *testing.T) {
	c := connected("a")
	require.False(t, c.Merge("a", []Row{{About: MemberID("self"), Number: 1 << 40}}))
	require.Equal(t, [][]int{nil, {0}}, c.Connections([]string{"a", "self"}).Connected)
	require.EqualValues(t, 1<<40+1, c.rows[c.id].Number, "a process that had the name before has sent the row")
}

func TestNodeOutsideRosterHasConnections(t *testing.T) {
	m := connected("a").Connections([]string{"a"})
	require.Equal(t, [][]int{nil}, m.Connected)
	require.Equal(t, []bool{true}, m.Direct)
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/weirtest"
)

// lossesOf is what crashes may have taken of each key, and of what was given back.
func lossesOf(s *stage) (lost, regained []int64) {
	l := newLedger(len(s.witness.spends))
	l.spends = s.witness.spends
	for k, gone := range s.gone() {
		e := Ending{Key: int32(k)}
		l.close(&e, gone, nil)
		lost, regained = append(lost, e.Lost), append(regained, e.Regained)
	}
	return lost, regained
}

// A crash in a whole region takes spends without a copy. Another one takes all spends, and so does one
// of more nodes than there are copies.
func TestWhatCrashesMayTake(t *testing.T) {
	const a, b, c, s = 0, 1, 2, time.Second
	split := func(at time.Duration) Fault {
		return Fault{At: at, Kind: FaultSplit, Sides: [][]string{{"a", "c"}, {"b"}}}
	}
	heal := func(at time.Duration) Fault { return Fault{At: at, Kind: FaultHeal} }
	kill := func(at time.Duration, nodes ...string) Fault { return Fault{At: at, Kind: FaultKill, Nodes: nodes} }
	start := func(at time.Duration, nodes ...string) Fault {
		return Fault{At: at, Kind: FaultStart, Nodes: nodes}
	}
	const last, all = 0b1000, 0b1111
	for _, test := range []struct {
		name     string
		replicas int
		faults   []Fault // before that of the last crash
		crashes  []crash // of the spends at 1 s by b, at 11 s and at 50 ms before 12 s by a, and at 50 ms before 12 s by b
		lost     int64
	}{
		{"all are whole", 0, nil, []crash{{at: 12 * s, hosts: []int{b}}}, last},
		{"another died long before", 0, []Fault{kill(3*s, "c")}, []crash{{at: 3 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, last},
		{"another died just before", 0, []Fault{kill(11*s, "c")}, []crash{{at: 11 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"no other is left to have a copy", 0, []Fault{kill(3*s, "a", "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"the other has no counts while a member is missing", 0, []Fault{kill(3*s, "a", "c"), start(5*s, "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}, orderly: true}}, all},
		{"the other has counts once the member is back", 0, []Fault{kill(3*s, "a", "c"), start(5*s, "a", "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}, orderly: true}}, 1},
		{"a split", 0, []Fault{split(10 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a link that is down", 0, []Fault{{At: 10 * s, Kind: FaultCut, From: "a", To: "b"}}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a heal that is noticed", 0, []Fault{split(3 * s), heal(7 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, last},
		{"a heal that is not", 0, []Fault{split(3 * s), heal(9 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"another froze", 0, []Fault{{At: 10 * s, Kind: FaultFreeze, Nodes: []string{"c"}}}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"two at once", 0, nil, []crash{{at: 12 * s, hosts: []int{b, c}}}, all},
		{"two at once, by two faults", 0, nil, []crash{{at: 12 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"two, of two copies", 2, nil, []crash{{at: 12 * s, hosts: []int{a, b}}}, last | 4},
		{"no copies", -1, nil, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a leave in order", 0, nil, []crash{{at: 12 * s, hosts: []int{b}, orderly: true}}, 0},
		{"a leave of one that is alone", 0, []Fault{split(10 * s)}, []crash{{at: 12 * s, hosts: []int{b}, orderly: true}}, all},
	} {
		ends := kill(12 * s)
		for _, h := range test.crashes[len(test.crashes)-1].hosts {
			ends.Nodes = append(ends.Nodes, string(rune('a'+h)))
		}
		sc := scene(3, append(test.faults, ends)...)
		sc.Replicas = test.replicas
		st := &stage{Scenario: sc, regions: []string{""}, courses: []*course{courseOf(sc, "", 20*s)}}
		for i, name := range sc.all() {
			st.hosts = append(st.hosts, &host{name: name, index: i})
		}
		for i := range test.crashes {
			c := &test.crashes[i]
			c.began = c.at
			for _, h := range c.hosts {
				st.witness.moves = append(st.witness.moves, move{h, c.at})
			}
		}
		st.witness.crashes = test.crashes
		st.witness.spends = [][]spent{{{units: 1, at: s, by: b}, {units: 2, at: 11 * s, by: a}, {units: 4, at: 12*s - 50*time.Millisecond, by: a}, {units: 8, at: 12*s - 50*time.Millisecond, by: b}, {units: -1, at: s, by: b}}}
		lost, regained := lossesOf(st)
		require.Equal(t, []int64{test.lost}, lost, test.name)
		require.Equal(t, []int64{test.lost & 1}, regained, test.name)
	}
}

// A check that a node dies of, or a connection, may have been granted by it, or by whom it
// asked, besides.
func TestWhatANodeOrAConnectionEndedInMayHaveBeenSpentBesides(t *testing.T) {
	const ms = time.Millisecond
	l := newLedger(1)
	l.slow = 5 * ms
	l.crash(10*ms, []int{1})
	l.breaks = append(l.breaks, 25*ms)
	for answered, unsure := range map[time.Duration]bool{9 * ms: false, 10 * ms: true, 12 * ms: true, 24 * ms: false, 25 * ms: true, 28 * ms: true, 29 * ms: false} {
		l.doubts[0] = nil
		l.note(Check{Asked: answered - 3*ms, Answered: answered, Units: 2, Allowed: true}, false)
		require.Equal(t, unsure, len(l.doubts[0]) == 1, answered)
	}
}

// Where packets are lost, what was counted since the last ping may have had no copy,
// and where it goes through others since one ping more for each. What is late is no
// later than its way and the pauses of both ends.
func TestWhatIsOnItsWay(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		link        weirtest.Link
		pause       time.Duration
		hops        int
		way, unsent time.Duration // of one hop, and of all
	}{
		{"a link that is fast enough", weirtest.Link{Latency: ms}, 0, 1, 2 * ms, 104 * ms},
		{"two of them", weirtest.Link{Latency: ms / 2}, 0, 2, 3 * ms / 2, 106 * ms},
		{"one on which checks time out", weirtest.Link{Latency: ms, Jitter: ms}, 0, 1, 3 * ms, 106 * ms},
		{"one on which they do with a hop more", weirtest.Link{Latency: ms}, 0, 2, 2 * ms, 108 * ms},
		{"one whose ends are paused", weirtest.Link{Latency: ms}, 30 * ms, 1, 62 * ms, 224 * ms},
		{"one that loses what is sent", weirtest.Link{Latency: ms, Loss: 0.01}, 0, 1, 602 * ms, 1604 * ms},
		{"three of them", weirtest.Link{Latency: ms, Loss: 0.01}, 0, 3, 602 * ms, 4612 * ms},
	} {
		require.Equal(t, c.way, way(c.link, c.pause), c.name)
		require.Equal(t, c.unsent, unsentFor(c.link, c.pause, c.hops), c.name)
	}
}

// A spend counts with the reset that its node knew of, wherever others were by then.
func TestASpendIsJudgedByTheResetThatItsNodeKnew(t *testing.T) {
	const ms = time.Millisecond
	id := [16]byte{1}
	l := newLedger(1)
	l.keys = map[[16]byte]int{id: 0}
	l.slow = time.Second
	grant := func(reset uint64, units int64, at time.Duration, by int) {
		l.observe(id, reset, units, at, by)
		l.note(Check{Asked: at - ms, Answered: at + ms, Units: units, Node: int16(by), Allowed: true}, false)
	}
	grant(0, 3, 10*ms, 0)
	l.observe(id, 7, 0, 20*ms, 0) // reset here
	grant(7, 2, 30*ms, 0)
	grant(0, 1, 40*ms, 1) // cut off: it has not heard of the reset
	ending := func(reset uint64, gone ...bool) Ending {
		e := Ending{Reset: reset}
		l.close(&e, append(gone, make([]bool, len(l.spends[0])-len(gone))...), nil)
		e.Unheard = 0 // as a reset ends leases
		return e
	}
	require.Equal(t, Ending{Reset: 7, Known: 7, Total: 6, Spent: 2, Granted: 6}, ending(7))
	require.Equal(t, Ending{Known: 7, Total: 6, Spent: 4, Granted: 6}, ending(0), "the owner has not heard of it")
	crashed := []bool{false, true, true}
	require.Equal(t, Ending{Total: 6, Spent: 4, Granted: 6}, ending(0, crashed...), "whoever knew of it has died")
	require.Equal(t, Ending{Reset: 7, Total: 6, Spent: 2, Lost: 2, Granted: 6}, ending(7, crashed...), "and yet told the others")

	// Two units are of after the reset: beyond these, what is given back was reset away.
	require.EqualValues(t, 2, l.since[0])
	for range 2 {
		reset, may := l.mayReturn(0, 2)
		require.True(t, may)
		require.EqualValues(t, 7, reset)
		l.returned(0, 2, reset)
	}
	require.EqualValues(t, 2, ending(7).Stale)
	_, may := l.mayReturn(0, 3)
	require.False(t, may, "only two are left that anybody was granted")
	reset, may := l.mayReturn(0, 2)
	require.True(t, may)
	l.observe(id, 9, 0, 50*ms, 1)
	l.returned(0, 2, reset)
	require.EqualValues(t, 2, ending(9).Stale, "it was on its way at the reset")
	require.EqualValues(t, 6, ending(7).Stale)

	l.starts(0)
	require.Zero(t, l.knows[knower{0, 0}], "another node begins without")
	require.EqualValues(t, 9, l.knows[knower{1, 0}])
}

// What was granted as a reset came may have been spent before it.
func TestAGrantAcrossAResetIsNotOfAfterIt(t *testing.T) {
	id := [16]byte{1}
	for name, under := range map[string]uint64{"before": 0, "after": 7} {
		l := newLedger(1)
		l.keys = map[[16]byte]int{id: 0}
		l.slow = time.Second
		if under == 0 {
			l.observe(id, 0, 2, 10, 1)
		}
		l.observe(id, 7, 0, 20, 0)
		if under > 0 {
			l.observe(id, 7, 2, 30, 1)
		}
		l.note(Check{Asked: 5, Answered: 40, Units: 2, Allowed: true}, false)
		require.Equal(t, map[uint64]int64{0: 0, 7: 2}[under], l.since[0], name)
	}
}

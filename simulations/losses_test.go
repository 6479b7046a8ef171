package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// lossesOf returns the spent and the returned units of each key that crashes may have
// taken.
func lossesOf(s *stage) (lost, regained []int64) {
	l := newLedger(len(s.witness.spends))
	l.spends = s.witness.spends
	for k, gone := range s.lostSpends() {
		e := Ending{Key: int32(k)}
		l.close(&e, gone, nil)
		lost, regained = append(lost, e.Lost), append(regained, e.Regained)
	}
	return lost, regained
}

// A crash in a whole region takes the spends without a copy. A crash in another region
// takes all spends, as does a crash of more nodes than there are copies.
func TestCrashTakesOnlyUncopiedSpends(t *testing.T) {
	const a, b, c, s = 0, 1, 2, time.Second
	split := func(at time.Duration) Fault {
		return Fault{At: at, Kind: FaultSplit, Sides: [][]string{{"a", "c"}, {"b"}}}
	}
	heal := func(at time.Duration) Fault { return Fault{At: at, Kind: FaultHeal} }
	kill := func(at time.Duration, nodes ...string) Fault { return Fault{At: at, Kind: FaultKill, Nodes: nodes} }
	start := func(at time.Duration, nodes ...string) Fault {
		return Fault{At: at, Kind: FaultStart, Nodes: nodes}
	}
	const last, all, alone = 0b1000, 0b1101111, 0b110000
	for _, test := range []struct {
		name     string
		replicas int
		faults   []Fault // all faults except the fault that causes the last crash
		crashes  []crash
		lost     int64
	}{
		{"all are whole", 0, nil, []crash{{at: 12 * s, hosts: []int{b}}}, last},
		{"changes waited for room in frames", 0, nil, []crash{{at: 12 * s, hosts: []int{b}, lag: 300 * time.Millisecond}}, last | 32},
		{"another died long before", 0, []Fault{kill(3*s, "c")}, []crash{{at: 3 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, last},
		{"another died just before", 0, []Fault{kill(11*s, "c")}, []crash{{at: 11 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"no other is left to have a copy", 0, []Fault{kill(3*s, "a", "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"the other has no counts while a member is missing", 0, []Fault{kill(3*s, "a", "c"), start(5*s, "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}, orderly: true}}, all | alone},
		{"the other has counts once the member is back", 0, []Fault{kill(3*s, "a", "c"), start(4*s, "a", "c")}, []crash{{at: 3 * s, hosts: []int{a, c}}, {at: 12 * s, hosts: []int{b}, orderly: true}}, 1 | alone},
		{"a split", 0, []Fault{split(10 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a link that is down", 0, []Fault{{At: 10 * s, Kind: FaultCut, From: "a", To: "b"}}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a heal that is noticed", 0, []Fault{split(3 * s), heal(4 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, last},
		{"a heal that is not", 0, []Fault{split(3 * s), heal(9 * s)}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"another froze", 0, []Fault{{At: 10 * s, Kind: FaultFreeze, Nodes: []string{"c"}}}, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"two at once", 0, nil, []crash{{at: 12 * s, hosts: []int{b, c}}}, all},
		{"two at once, by two faults", 0, nil, []crash{{at: 12 * s, hosts: []int{c}}, {at: 12 * s, hosts: []int{b}}}, all},
		{"two, of two copies", 2, nil, []crash{{at: 12 * s, hosts: []int{a, b}}}, last | 4},
		{"no copies", -1, nil, []crash{{at: 12 * s, hosts: []int{b}}}, all},
		{"a leave in order", 0, nil, []crash{{at: 12 * s, hosts: []int{b}, orderly: true}}, alone},
		{"a leave of one that is alone", 0, []Fault{split(10 * s)}, []crash{{at: 12 * s, hosts: []int{b}, orderly: true}}, all | alone},
	} {
		ends := kill(12 * s)
		for _, h := range test.crashes[len(test.crashes)-1].hosts {
			ends.Nodes = append(ends.Nodes, string(rune('a'+h)))
		}
		sc := newScene(3, append(test.faults, ends)...)
		sc.Replicas = test.replicas
		st := &stage{Scenario: sc, regions: []string{""}, courses: []*course{courseOf(sc, "", 20*s)}}
		for i, name := range sc.allNodes() {
			st.hosts = append(st.hosts, &host{name: name, index: i})
		}
		for i := range test.crashes {
			c := &test.crashes[i]
			if c.began = c.at; c.orderly {
				c.began = 11*s + s/2
			}
			for _, h := range c.hosts {
				st.witness.moves = append(st.witness.moves, move{h, c.at})
			}
		}
		st.witness.crashes = test.crashes
		st.witness.spends = [][]spent{{
			{units: 1, at: s, by: b}, {units: 2, at: 11 * s, by: a}, {units: 4, at: 12*s - 50*time.Millisecond, by: a}, {units: 8, at: 12*s - 50*time.Millisecond, by: b},
			{units: 16, at: 12*s + 50*time.Millisecond, by: b, alone: true}, {units: 32, at: 11*s + 3*s/4, by: b, alone: true},
			{units: 64, at: 11*s + s/5, by: b, alone: true}, {units: 128, at: 12*s + s/5, by: b, alone: true}, {units: -1, at: s, by: b},
		}}
		lost, regained := lossesOf(st)
		require.Equal(t, []int64{test.lost}, lost, test.name)
		require.Equal(t, []int64{test.lost & 1}, regained, test.name)
	}
}

func TestSpendOfNodeThatDecidesAloneIsMarked(t *testing.T) {
	const ms = time.Millisecond
	for source, marks := range map[weir.Source]bool{weir.Owner: false, weir.Forwarded: false, weir.Budget: true, weir.FailedOpen: true} {
		l := newLedger(1)
		l.spends[0] = []spent{{units: 2, at: 10 * ms}, {units: 2, at: 19 * ms}, {units: 2, at: 20 * ms}, {units: 1, at: 21 * ms}, {units: 2, at: 22 * ms, by: 1}}
		for range 2 { // each call marks a different spend
			l.recordGrant(Check{Asked: 15 * ms, Units: 2, Allowed: true, Source: source})
		}
		for n, s := range l.spends[0] {
			require.Equal(t, marks && (n == 1 || n == 2), s.alone, "%v: spend %d", source, n)
		}
	}
}

// If a link loses packets, the units since the last ping may have no copy. The delay of a
// message is at most the latency of the link and the pauses of both nodes.
func TestFirstCopyIsBoundedByMessageDelay(t *testing.T) {
	const ms = time.Millisecond
	link := func(to string, l weirtest.Link) Fault { return Fault{Kind: FaultLink, To: to, Link: l} }
	for _, c := range []struct {
		name        string
		faults      []Fault
		way, untold time.Duration
	}{
		{"links as they are", nil, 3 * ms, 109 * ms},
		{"a slow link", []Fault{link("b", weirtest.Link{Latency: 4 * ms, Jitter: ms})}, 6 * ms, 118 * ms},
		{"a fast link", []Fault{link("b", weirtest.Link{Latency: ms / 2})}, 3 * ms, 109 * ms},
		{"a node that is paused", []Fault{{Kind: FaultSlow, Nodes: []string{"a"}, Pauses: 30 * ms}}, 63 * ms, 289 * ms},
		{"a link that loses what is sent", []Fault{link("", weirtest.Link{Loss: 0.01})}, 603 * ms, 2209 * ms},
	} {
		s := newScene(2, c.faults...)
		s.Network = weirtest.Link{Latency: ms, Jitter: ms}
		require.Equal(t, c.way, s.maxDelay(), c.name)
		require.Equal(t, c.untold, s.firstCopyDelay(1), c.name)
		require.Equal(t, replicaAge+3*(c.untold-replicaAge), s.firstCopyDelay(3), c.name)
	}
}

// A spend belongs to the last reset that its node knew, even if other nodes knew of a
// later reset.
func TestSpendBelongsToLastResetItsNodeKnew(t *testing.T) {
	const ms = time.Millisecond
	id := [16]byte{1}
	l := newLedger(1)
	l.keys = map[[16]byte]int{id: 0}
	grant := func(reset uint64, units int64, at time.Duration, by int) {
		l.observe(id, reset, units, at, by)
		l.recordGrant(Check{Asked: at - ms, Answered: at + ms, Units: units, Node: int16(by), Allowed: true})
	}
	grant(0, 3, 10*ms, 0)
	l.observe(id, 7, 0, 20*ms, 0) // the node executes a reset
	grant(7, 2, 30*ms, 0)
	grant(0, 1, 40*ms, 1) // cut off: the node has not heard of the reset
	ending := func(reset uint64, gone ...bool) Ending {
		e := Ending{Reset: reset}
		l.close(&e, append(gone, make([]bool, len(l.spends[0])-len(gone))...), nil)
		e.Ungranted = 0 // the reset ends leases
		return e
	}
	require.Equal(t, Ending{Reset: 7, Known: 7, Total: 6, Spent: 2, Granted: 6}, ending(7))
	require.Equal(t, Ending{Known: 7, Total: 6, Spent: 4, Granted: 6}, ending(0), "the owner does not know of the reset")
	crashed := []bool{false, true, true}
	require.Equal(t, Ending{Total: 6, Spent: 4, Granted: 6}, ending(0, crashed...), "each node that knew of the reset has died")
	require.Equal(t, Ending{Reset: 7, Total: 6, Spent: 2, Lost: 2, Granted: 6}, ending(7, crashed...), "the crashed nodes had sent the reset to other nodes")

	// A refund may be of units from before a reset.
	refund := func(units int64) {
		require.True(t, l.beginRefund(0, units))
		l.endRefund(0, units)
	}
	refund(2)
	require.EqualValues(t, 2, ending(7).Stale)
	require.False(t, l.beginRefund(0, 5), "callers have four")
	require.True(t, l.beginRefund(0, 3))
	l.observe(id, 9, 0, 50*ms, 1)
	l.endRefund(0, 3)
	require.EqualValues(t, 3, ending(9).Stale, "the refund was in progress at the reset")
	require.EqualValues(t, 5, ending(7).Stale)

	l.forgetResets(0)
	require.Zero(t, l.knows[knower{0, 0}], "the next node begins without resets")
	require.EqualValues(t, 9, l.knows[knower{1, 0}])
}

// A spend without a grant breaks the invariant, unless it is in a disturbed time.
func TestUngrantedSpendsNeedDisturbedTimes(t *testing.T) {
	const ms = time.Millisecond
	spend := func(units int64, at time.Duration) spent { return spent{units: units, at: at} }
	for name, c := range map[string]struct {
		refund    int64
		spends    []spent
		disturbed []span
		want      int64
	}{
		"takes":                                  {0, []spent{spend(2, 10*ms), spend(2, 10*ms)}, nil, 0},
		"a refund":                               {2, []spent{spend(2, 10*ms), spend(-2, 20*ms)}, nil, 0},
		"a refund that no node applied":          {2, []spent{spend(2, 10*ms)}, nil, 2},
		"a refund of a part":                     {2, []spent{spend(2, 10*ms), spend(-1, 20*ms)}, nil, 1},
		"more is returned than is refunded":      {2, []spent{spend(7, 10*ms), spend(-2, 20*ms), spend(-5, 900*ms)}, nil, 0},
		"a lease that a reset ends":              {0, []spent{spend(7, 10*ms), spend(0, 300*ms)}, nil, 7},
		"a lease, and a reset when it has ended": {0, []spent{spend(7, 10*ms), spend(0, 1200*ms)}, nil, 0},
		"a lease that a crash takes":             {0, []spent{spend(7, 10*ms)}, []span{{500 * ms, 500 * ms}}, 7},
		"a lease after a disturbed time":         {0, []spent{spend(7, 10*ms)}, []span{{0, 9 * ms}}, 0},
		"a lease before a disturbed time":        {0, []spent{spend(7, 10*ms)}, []span{{1200 * ms, never}}, 0},
	} {
		require.Equal(t, c.want, maxUngranted([]refunded{{units: c.refund}}, c.spends, c.disturbed), name)
	}
}

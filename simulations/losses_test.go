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

// A link that goes down takes copies with it as a split does, until that is noticed.
func TestWhatASideHasShrunkBy(t *testing.T) {
	const cut = 12 * time.Second
	whole := []int{0, 0, 0}
	link := map[[2]int]bool{{0, 1}: true}
	for _, c := range []struct {
		name   string
		after  sides
		host   int
		before time.Duration
		since  time.Duration
	}{
		{"a split", sides{cut, []int{0, 1, 1}, nil}, 0, cut + time.Second, cut},
		{"a split that is noticed", sides{cut, []int{0, 1, 1}, nil}, 0, cut + 3*time.Second, cut + 3*time.Second},
		{"a link of it", sides{cut, whole, link}, 0, cut + time.Second, cut},
		{"a link to it", sides{cut, whole, link}, 1, cut + time.Second, cut},
		{"a link of others", sides{cut, whole, link}, 2, cut + time.Second, cut + time.Second},
		{"a link, noticed", sides{cut, whole, link}, 0, cut + 3*time.Second, cut + 3*time.Second},
		{"nothing", sides{cut, whole, nil}, 0, cut + time.Second, cut + time.Second},
	} {
		s := &stage{Scenario: &Scenario{}, past: []sides{{0, whole, nil}, c.after}}
		require.Equal(t, c.since, s.shrunk(c.host, c.before), c.name)
	}
}

// Where copies go through another member, a link of that one takes them with it.
func TestASideShrinksAsAWayOfCopiesGoesDown(t *testing.T) {
	const a, b, c, d = 0, 1, 2, 3
	const cut, long = 12 * time.Second, 3 * time.Second
	whole := []int{0, 0, 0, 0}
	direct, way := [2]int{b, a}, [2]int{a, c}
	down := map[[2]int]bool{direct: true}
	both := map[[2]int]bool{direct: true, way: true}
	for _, test := range []struct {
		name  string
		past  []sides // way goes down last
		host  int
		since time.Duration
	}{
		{"the copies have long gone through it", []sides{{cut - long, whole, down}, {cut, whole, both}}, b, cut},
		{"they were about to", []sides{{cut - time.Second, whole, down}, {cut, whole, both}}, b, cut - time.Second},
		{"they still did", []sides{{cut - long, whole, down}, {cut - 1, whole, nil}, {cut, whole, map[[2]int]bool{way: true}}}, b, cut},
		{"they did long before", []sides{{cut - 2*long, whole, down}, {cut - long, whole, nil}, {cut, whole, map[[2]int]bool{way: true}}}, b, cut + time.Second},
		{"they never did, as both its ends are heard", []sides{{cut - long, whole, down}, {cut, whole, both}}, d, cut + time.Second},
		{"it is a link of the host itself", []sides{{cut - long, whole, down}, {cut, whole, both}}, c, cut},
	} {
		s := &stage{Scenario: &Scenario{}, past: append([]sides{{0, whole, nil}}, test.past...)}
		require.Equal(t, test.since, s.shrunk(test.host, cut+time.Second), test.name)
	}
}

// What a crash may take is what nobody who lives can have had a copy of.
func TestWhatCrashesMayTake(t *testing.T) {
	const a, b, c = 0, 1, 2
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	for _, test := range []struct {
		name    string
		past    []sides
		crashes []crash
		old     bool // what was granted at the very beginning may be lost
	}{
		{"one of three, and the others have copies",
			[]sides{{0, []int{0, 0, 0}, nil}, {at(12), []int{0, -1, 0}, nil}},
			[]crash{{at: at(12), hosts: []int{b}}}, false},
		{"one that was alone, and the others have copies of what is older",
			[]sides{{0, []int{0, 0, 0}, nil}, {at(6), []int{0, 1, 0}, nil}, {at(12), []int{0, -1, 0}, nil}},
			[]crash{{at: at(12), hosts: []int{b}}}, false},
		{"the other crashed long before the cut",
			[]sides{{0, []int{0, 0, 0}, nil}, {at(2), []int{0, 0, -1}, nil}, {at(6), []int{0, 1, -1}, nil}, {at(12), []int{0, -1, -1}, nil}},
			[]crash{{at: at(2), hosts: []int{c}}, {at: at(12), hosts: []int{b}}}, false},
		{"the other crashed too soon before the cut for new copies",
			[]sides{{0, []int{0, 0, 0}, nil}, {at(5.6), []int{0, 0, -1}, nil}, {at(6), []int{0, 1, -1}, nil}, {at(12), []int{0, -1, -1}, nil}},
			[]crash{{at: at(5.6), hosts: []int{c}}, {at: at(12), hosts: []int{b}}}, true},
		{"both of a side, one after the other",
			[]sides{{0, []int{0, 0, 2}, nil}, {at(7), []int{-1, 1, 2}, nil}, {at(12), []int{-1, -1, 2}, nil}},
			[]crash{{at: at(7), hosts: []int{a}}, {at: at(12), hosts: []int{b}}}, true},
		{"the first of them has started again, and weighs nothing",
			[]sides{{0, []int{0, 0, 0}, nil}, {at(3), []int{0, 0, 2}, nil}, {at(7), []int{-1, 1, 2}, nil}, {at(9), []int{0, 0, 2}, nil}, {at(12), []int{0, -1, 2}, nil}},
			[]crash{{at: at(7), hosts: []int{a}}, {at: at(12), hosts: []int{b}}}, true},
	} {
		s := &stage{Scenario: &Scenario{}, regions: []string{""}, past: test.past}
		for i, name := range []string{"a", "b", "c"} {
			s.hosts = append(s.hosts, &host{name: name, index: i})
		}
		for i := range test.crashes {
			test.crashes[i].heldSince = test.crashes[i].at
		}
		s.witness.crashes = test.crashes
		s.witness.spends = [][]spent{{{units: 1, at: at(1), by: b}}}
		most := int64(0)
		if test.old {
			most = 1
		}
		lost, _ := lossesOf(s)
		require.Equal(t, []int64{most}, lost, test.name)
	}
}

// One that starts while another is missing has no points, and nobody's copies. What it
// admitted after the cut, and nothing older, goes with the side that it was on; so little
// it takes of others' units with it.
func TestWhatOneWithoutPointsAdmittedDiesWithItsSide(t *testing.T) {
	const s = time.Second
	const a, c, d, f = 0, 1, 2, 3
	past := []sides{
		{0, []int{0, 0, 0, absent}, nil}, {5 * s, []int{absent, 1, 1, absent}, nil}, {6 * s, []int{absent, 1, 1, 1}, nil},
		{11 * s, []int{absent, 1, 2, 2}, nil}, {13 * s, []int{absent, 1, 2, absent}, nil}, {15 * s, []int{absent, 1, absent, absent}, nil},
	}
	st := &stage{Scenario: &Scenario{}, regions: []string{""}, past: past}
	for i, name := range []string{"a", "c", "d", "f"} {
		st.hosts = append(st.hosts, &host{name: name, index: i})
	}
	st.witness.crashes = []crash{
		{at: 5 * s, hosts: []int{a}, heldSince: 5 * s},
		{at: 13 * s, hosts: []int{f}, heldSince: 13 * s, orderly: true},
		{at: 15 * s, hosts: []int{d}, heldSince: 15 * s},
	}
	st.witness.spends = [][]spent{
		{{units: 1, at: 12 * s, by: f}}, {{units: 1, at: 8 * s, by: f}},
		{{units: 1, at: 12 * s, by: d}}, {{units: 1, at: 8 * s, by: d}}, {{units: 1, at: 12 * s, by: c}},
	}
	lost, _ := lossesOf(st)
	require.Equal(t, []int64{1, 0, 1, 0, 0}, lost)
}

// A node that was apart tells the others once they hear each other, and not at the heal itself.
func TestWhatIsNotToldYetAfterAHeal(t *testing.T) {
	const a, b = 0, 1
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	whole, alone := []int{0, 0, 0}, []int{0, 1, 0}
	for _, test := range []struct {
		name    string
		gossip  bool
		past    []sides
		crashes []crash
		lost    bool // what b spent at 6 s, and gave back at 7; what it spent at 3 s is not
	}{
		{"it died at once", false,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}},
			[]crash{{at: at(8.03), hosts: []int{b}}}, true},
		{"it had the time to", false,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}},
			[]crash{{at: at(9), hosts: []int{b}}}, false},
		{"real membership needs longer", true,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}},
			[]crash{{at: at(9), hosts: []int{b}}}, true},
		{"it was cut off again at once", false,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}, {at(8.03), alone, nil}},
			[]crash{{at: at(12), hosts: []int{b}}}, true},
		{"it was cut off again once it had told", false,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}, {at(9), alone, nil}},
			[]crash{{at: at(12), hosts: []int{b}}}, false},
		{"another fault came in between", false,
			[]sides{{0, whole, nil}, {at(5), alone, nil}, {at(8), whole, nil}, {at(8.02), whole, nil}},
			[]crash{{at: at(8.03), hosts: []int{b}}}, true},
		{"one of its side has it, and lives", false,
			[]sides{{0, whole, nil}, {at(5), []int{0, 1, 1}, nil}, {at(8), whole, nil}},
			[]crash{{at: at(8.03), hosts: []int{b}}}, false},
		{"the others were frozen", false,
			[]sides{{0, whole, nil}, {at(5), []int{hangs, 1, hangs}, nil}, {at(8), whole, nil}},
			[]crash{{at: at(8.03), hosts: []int{b}}}, true},
		{"it has just started", false,
			[]sides{{0, whole, nil}, {at(5), []int{0, absent, 0}, nil}, {at(8), whole, nil}},
			[]crash{{at: at(5), hosts: []int{b}}, {at: at(8.03), hosts: []int{b}}}, false},
	} {
		s := &stage{Scenario: &Scenario{Gossip: test.gossip}, regions: []string{""}, past: test.past}
		for i, name := range []string{"a", "b", "c"} {
			s.hosts = append(s.hosts, &host{name: name, index: i})
		}
		for i := range test.crashes {
			test.crashes[i].heldSince = test.crashes[i].at
		}
		s.witness.crashes = test.crashes
		s.witness.spends = [][]spent{{{units: 1, at: at(3), by: b}, {units: 2, at: at(6), by: b, alone: true}, {units: 4, at: at(6), by: a}, {units: -1, at: at(7), by: b}}}
		var most, again int64
		if test.lost {
			most, again = 2, 1
		}
		lost, regained := lossesOf(s)
		require.Equal(t, []int64{most}, lost, test.name)
		require.Equal(t, []int64{again}, regained, test.name)
	}
}

// What a node says of itself is of it alone: the next one on its host begins anew.
func TestNodesHavePointsFromWhenTheySaySo(t *testing.T) {
	const s = time.Second
	st := &stage{Scenario: &Scenario{}, regions: []string{""}, past: []sides{{0, []int{0, 0}, nil}, {5 * s, []int{0, absent}, nil}, {6 * s, []int{0, 0}, nil}}}
	st.hosts = []*host{{name: "a"}, {name: "b", index: 1, announced: []announcement{{6 * s, "b-2", true}, {7 * s, "b-2", false}, {9 * s, "b-2", true}, {10 * s, "b-2", false}}}}
	st.witness.crashes = []crash{{at: 5 * s, hosts: []int{1}, heldSince: 5 * s}}
	for at, weighs := range map[time.Duration]bool{5*s - 1: true, 5 * s: false, 6 * s: false, 7 * s: true, 9 * s: false, 10 * s: true} {
		got, _ := st.weighing(at)
		require.Equal(t, []bool{true, weighs}, got, at)
	}
}

// A node that joins is sent copies while nobody is missing, and by when it has them is not
// known: what another dies with, and nobody else has, is lost.
func TestAJoinerHasCopiesAfterAWhile(t *testing.T) {
	const s = time.Second
	st := &stage{Scenario: &Scenario{}, regions: []string{""}, past: []sides{
		{0, []int{0, 0, 0}, nil}, {5 * s, []int{0, -1, 0}, nil}, {6 * s, []int{0, 0, 0}, nil},
		{7 * s, []int{0, 0, -1}, nil}, {8 * s, []int{0, 0, 0}, nil}, {15 * s, []int{0, 0, 0}, nil},
	}}
	for i, name := range []string{"a", "b", "c"} {
		st.hosts = append(st.hosts, &host{name: name, index: i})
	}
	st.hosts[1].announced = []announcement{{6 * s, "b-2", false}}
	st.witness.crashes = []crash{{at: 5 * s, hosts: []int{1}, heldSince: 5 * s}}
	for _, test := range []struct {
		at     time.Duration
		copies []bool
	}{
		{4 * s, []bool{true, true, true}},
		{5 * s, []bool{true, false, true}},
		{6*s + recopied/4, []bool{true, false, true}},
		{6*s + recopied, []bool{true, false, true}}, // c was missing meanwhile
		{8*s + recopied - 1, []bool{true, false, true}},
		{8*s + recopied, []bool{true, true, true}},
		{16 * s, []bool{true, true, true}},
	} {
		weighs, copies := st.weighing(test.at)
		require.Equal(t, test.copies, copies, test.at)
		require.Equal(t, test.at < 5*s || test.at >= 6*s, weighs[1], test.at)
	}
}

// A check that a node dies of, or a connection, may have been granted by it, or by whom it
// asked, besides.
func TestWhatANodeOrAConnectionEndedInMayHaveBeenSpentBesides(t *testing.T) {
	const ms = time.Millisecond
	l := newLedger(1)
	l.slow = 5 * ms
	l.crash(10*ms, []int{1}, []*host{{}, {}})
	l.breakOff(25 * ms)
	for answered, unsure := range map[time.Duration]bool{9 * ms: false, 10 * ms: true, 12 * ms: true, 24 * ms: false, 25 * ms: true, 28 * ms: true, 29 * ms: false} {
		l.note(Check{Asked: answered - 3*ms, Answered: answered, Units: 2, Allowed: true}, false)
		require.Equal(t, ask{units: 2, from: answered - 3*ms, to: answered, done: true, unsure: unsure}, l.asks[0][len(l.asks[0])-1])
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
		s := &stage{Scenario: &Scenario{Timeout: 10 * ms}, witness: ledger{link: c.link, pause: c.pause}}
		require.Equal(t, c.way, s.way(), c.name)
		require.Equal(t, c.unsent, s.unsentFor(c.hops), c.name)
	}
}

// What goes to those with the copies through others is longer on its way: how far they
// are is what a side was like before the crash.
func TestACrashTakesMoreWhereCopiesGoThroughOthers(t *testing.T) {
	const a, s = 0, time.Second
	chain := map[[2]int]bool{{2, 0}: true, {0, 3}: true, {1, 3}: true} // a-b-c-d is left
	for _, c := range []struct {
		name string
		past []sides
		hops int
		lost int64
	}{
		{"all next to each other", []sides{{0, []int{0, 0, 0, 0}, nil}}, 1, 0},
		{"a chain", []sides{{0, []int{0, 0, 0, 0}, chain}}, 3, 1},
		{"a chain that has ended in between", []sides{{0, []int{0, 0, 0, 0}, chain}, {5 * s, []int{0, 0, -1, 3}, chain}}, 1, 0},
		{"one that came to be then", []sides{{0, []int{0, 0, 0, 0}, nil}, {12 * s, []int{-1, 1, 1, 1}, chain}}, 1, 0},
	} {
		st := &stage{Scenario: &Scenario{}, regions: []string{""}, past: append(c.past, sides{12 * s, []int{-1, 1, 1, 1}, chain})}
		for i, name := range []string{"a", "b", "c", "d"} {
			st.hosts = append(st.hosts, &host{name: name, index: i})
		}
		st.witness.link.Loss = 0.01
		st.witness.crashes = []crash{{at: 12 * s, hosts: []int{a}, heldSince: 12 * s}}
		st.witness.spends = [][]spent{{{units: 1, at: 10 * s, by: a}}}
		require.Equal(t, c.hops, st.hops(a, 12*s), c.name)
		lost, _ := lossesOf(st)
		require.Equal(t, []int64{c.lost}, lost, c.name)
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
		l.returned(0, 2, reset, 0, 0)
	}
	require.EqualValues(t, 2, ending(7).Stale)
	_, may := l.mayReturn(0, 3)
	require.False(t, may, "only two are left that anybody was granted")
	reset, may := l.mayReturn(0, 2)
	require.True(t, may)
	l.observe(id, 9, 0, 50*ms, 1)
	l.returned(0, 2, reset, 0, 0)
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

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

const ms = time.Millisecond

// newFixture returns a scenario of five nodes and a limit. A test supplies the results of
// a run.
func newFixture(l weir.Limit, faults ...Fault) *Scenario {
	s := &Scenario{
		Name: "fixture", Lasts: 40 * time.Second, Network: weirtest.Link{Latency: 100 * time.Microsecond}, Settings: Settings{Forget: 5 * time.Minute},
		Limits: []weir.Limit{l}, Faults: faults,
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.Nodes = append(s.Nodes, Node{Name: name})
	}
	return s
}

// spread returns the given number of admitted checks of one unit. The checks are spread
// evenly between the two times, over the nodes in turn.
func spread(units int, from, to time.Duration, nodes ...int16) (checks []Check) {
	if len(nodes) == 0 {
		nodes = []int16{0}
	}
	for i := range units {
		at := from + (to-from)*time.Duration(i)/time.Duration(units)
		checks = append(checks, Check{Asked: at, Answered: at + 200*time.Microsecond, Units: 1, Node: nodes[i%len(nodes)], Allowed: true})
	}
	return checks
}

// spreadDenied returns checks like spread, but only the first check of each group is
// allowed. A group has as many checks as among.
func spreadDenied(every, among int, from, to time.Duration, node int16) []Check {
	checks := spread(every, from, to, node)
	for i := range checks {
		checks[i].Allowed = i%among == 0
	}
	return checks
}

func journal(s *Scenario, checks ...[]Check) *Journal {
	j := &Journal{Scenario: s, Checks: slices.Concat(checks...)}
	slices.SortStableFunc(j.Checks, func(a, b Check) int { return int(a.Asked - b.Asked) })
	return j
}

func brokenOf(j *Journal, invariant string) (says []string) {
	for _, b := range judge(j) {
		if b.Invariant == invariant {
			says = append(says, b.Finding)
		}
	}
	return says
}

var (
	splitAt10 = Fault{At: 10 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}}
	healAt25  = Fault{At: 25 * time.Second, Kind: FaultHeal}
)

// Each row allows exactly the given number of units in a window.
func TestEachRowOfTheTableHasItsBound(t *testing.T) {
	log := func(p weir.PartitionPolicy) weir.Limit {
		return weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: p}
	}
	few := func(rate int64) weir.Limit {
		l := log(weir.MajorityShare)
		l.Rate = rate
		return l
	}
	bucket := log(weir.FairShare)
	bucket.Algorithm, bucket.Burst = weir.TokenBucket, 40
	sliding, fixed := log(weir.FairShare), log(weir.FairShare)
	sliding.Algorithm, fixed.Algorithm = weir.SlidingWindow, weir.FixedWindow
	at := func(kind FaultKind, at time.Duration, nodes ...string) Fault {
		return Fault{At: at, Kind: kind, Nodes: nodes}
	}
	slow := func(at, pauses time.Duration, nodes ...string) Fault {
		return Fault{At: at, Kind: FaultSlow, Nodes: nodes, Pauses: pauses, Every: 100 * ms}
	}
	alone := func(at time.Duration) Fault {
		return Fault{At: at, Kind: FaultSplit, Sides: [][]string{{"a", "b", "c", "d"}, {"e"}}}
	}
	const calm, torn, begins, late = 5 * time.Second, 15 * time.Second, 10*time.Second - 500*ms, 35 * time.Second
	for _, row := range []struct {
		name   string
		l      weir.Limit
		faults []Fault
		change func(*Scenario)
		from   time.Duration // where the window begins
		most   int
	}{
		{"healthy, SlidingLog", log(weir.MajorityShare), nil, nil, calm, 160},
		{"healthy, SlidingWindow", sliding, nil, nil, calm, 320},
		{"healthy, FixedWindow", fixed, nil, nil, calm, 320},
		{"healthy, TokenBucket", bucket, nil, nil, calm, 200},
		{"before the split", log(weir.FairShare), []Fault{splitAt10, healAt25}, nil, calm, 160},
		{"split, FairShare, c = 0", log(weir.FairShare), []Fault{splitAt10, healAt25}, nil, torn, 160},
		{"split, FairShare, c = 1", log(weir.FairShare), []Fault{splitAt10, healAt25}, nil, begins, 320},
		{"split, FairShare, c = 1 shortly before", log(weir.FairShare), []Fault{splitAt10, healAt25}, nil, 11 * time.Second, 320},
		{"split, MajorityShare, c = 0", log(weir.MajorityShare), []Fault{splitAt10, healAt25}, nil, torn, 239},
		{"split, MajorityShare, c = 1", log(weir.MajorityShare), []Fault{splitAt10, healAt25}, nil, begins, 479},
		{"split, FailClosed, c = 0", log(weir.FailClosed), []Fault{splitAt10, healAt25}, nil, torn, 160},
		{"split, FailOpen, c = 0", log(weir.FailOpen), []Fault{splitAt10, healAt25}, nil, torn, 320},
		{"after the heal", log(weir.FairShare), []Fault{splitAt10, healAt25}, nil, late, 160},
		{"the owner crashes", log(weir.FairShare), []Fault{at(FaultKill, 10*time.Second, "a")}, nil, begins, 170},
		{"the owner of 1 unit crashes", few(1), []Fault{at(FaultKill, 10*time.Second, "a")}, nil, begins, 1},
		{"the owner of 15 units crashes", few(15), []Fault{at(FaultKill, 10*time.Second, "a")}, nil, begins, 15},
		{"the owner of 16 units crashes", few(16), []Fault{at(FaultKill, 10*time.Second, "a")}, nil, begins, 17},
		{"split of 1 unit, MajorityShare, c = 0", few(1), []Fault{splitAt10, healAt25}, nil, torn, 1},
		{"split of 4 units, MajorityShare, c = 0", few(4), []Fault{splitAt10, healAt25}, nil, torn, 5},
		{"no copy", log(weir.FairShare), []Fault{at(FaultKill, 10*time.Second, "a")}, func(s *Scenario) { s.Replicas = -1 }, begins, 320},
		{"two crash at once", log(weir.FairShare), []Fault{at(FaultKill, 10*time.Second, "a", "b")}, nil, begins, 330},
		{"the only way between four crashes", log(weir.FairShare), append(through(calm, "b", "c", "d", "e"), at(FaultKill, 10*time.Second, "a")), nil, begins, 650},
		{"the only way between four leaves", log(weir.FairShare), append(through(0, "b", "c", "d", "e"), at(FaultLeave, 10*time.Second, "a")), nil, torn, 641},
		{"the only way between four freezes", log(weir.FairShare), append(through(calm, "b", "c", "d", "e"), at(FaultFreeze, 10*time.Second, "a")), nil, begins, 800},
		{"a leaf of a star crashes", log(weir.FairShare), append(through(calm, "b", "c", "d", "e"), at(FaultKill, 10*time.Second, "b")), nil, begins, 170},
		{"both ways between three freeze", log(weir.FairShare), append(through(calm, "a", "b", "c"), at(FaultFreeze, 10*time.Second, "d", "e")), nil, begins, 800},
		{"a node that is alone freezes", log(weir.FairShare), []Fault{alone(calm), at(FaultFreeze, 10*time.Second, "e")}, nil, begins, 320},
		{"a node starts when another freezes", log(weir.FairShare), append(through(calm, "a", "b", "c", "d"), at(FaultKill, 6*time.Second, "b"), at(FaultFreeze, 10*time.Second, "d"), at(FaultStart, 10*time.Second, "b")), nil, begins, 481},
		{"one of two ways between three leaves", log(weir.FairShare), append(through(0, "c", "d", "e"), at(FaultLeave, 10*time.Second, "a")), nil, torn, 161},
		{"after a crash", log(weir.FairShare), []Fault{at(FaultKill, 10*time.Second, "a")}, nil, torn, 160},
		{"a node joins", log(weir.FairShare), []Fault{at(FaultLeave, 9*time.Second, "a")}, nil, calm + 5*time.Second, 161},
		{"a node leaves alone, FailOpen", log(weir.FailOpen), []Fault{alone(10 * time.Second), at(FaultLeave, 12*time.Second, "e")}, nil, torn, 321},
		{"a node leaves alone, MajorityShare", log(weir.MajorityShare), []Fault{alone(10 * time.Second), at(FaultLeave, 12*time.Second, "e")}, nil, torn, 161},
		{"a node left alone, FailOpen", log(weir.FailOpen), []Fault{alone(3 * time.Second), at(FaultLeave, calm, "e")}, nil, late, 160},
		{"a node leaves alone and is killed, FailOpen", log(weir.FailOpen), []Fault{alone(3 * time.Second), at(FaultLeave, calm, "e"), at(FaultKill, 9*time.Second, "e")}, nil, torn, 321},
		{"a node leaves alone until a heal, FailOpen", log(weir.FailOpen), []Fault{alone(3 * time.Second), at(FaultLeave, calm, "e"), {At: 9 * time.Second, Kind: FaultHeal}}, nil, torn, 321},
		{"a node is cut off as it leaves, FailOpen", log(weir.FailOpen), []Fault{at(FaultLeave, 9*time.Second, "e"), alone(10 * time.Second)}, nil, torn, 321},
		{"a node is cut off long after it left, FailOpen", log(weir.FailOpen), []Fault{at(FaultLeave, calm, "e"), alone(10 * time.Second)}, nil, torn, 161},
		{"a node leaves last, FailOpen", log(weir.FailOpen), []Fault{at(FaultLeave, calm, "a", "b", "c", "d"), at(FaultLeave, 10*time.Second, "e")}, nil, torn, 165 + 4*160},
		{"a freeze", log(weir.FairShare), []Fault{at(FaultFreeze, 10*time.Second, "a"), at(FaultThaw, 30*time.Second, "a")}, nil, begins, 320},
		{"a freeze and its thaw", log(weir.FairShare), []Fault{at(FaultFreeze, 9800*ms, "a"), at(FaultThaw, 10*time.Second, "a")}, nil, begins, 320},
		{"in a freeze", log(weir.FairShare), []Fault{at(FaultFreeze, 10*time.Second, "a"), at(FaultThaw, 30*time.Second, "a")}, nil, torn, 160},
		{"a freeze, FailOpen", log(weir.FailOpen), []Fault{at(FaultFreeze, 10*time.Second, "a"), at(FaultThaw, 30*time.Second, "a")}, nil, begins, 7 * 160},
		{"a link within a side", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultCut, From: "a", To: "b"}}, nil, torn, 160},
		{"a link that is newly down", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultCut, From: "a", To: "b"}}, nil, begins, 320},
		{"the other direction of a link that is down", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultCut, From: "a", To: "b"}, {At: torn, Kind: FaultCut, From: "b", To: "a"}}, nil, torn, 160},
		{"a slow link", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultLink, From: "a", To: "b", Link: weirtest.Link{Latency: 30 * ms}}}, nil, torn, 320},
		{"a clock steps forward", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultSkew, Nodes: []string{"a"}, By: time.Hour}}, nil, begins, 320},
		{"a clock steps back", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultSkew, Nodes: []string{"a"}, By: -time.Hour}}, nil, begins, 160},
		{"a bucket's clock steps a little", bucket, []Fault{{At: 10 * time.Second, Kind: FaultSkew, Nodes: []string{"a"}, By: 100 * ms}}, nil, begins, 220},
		{"pauses below the wait", log(weir.FairShare), []Fault{slow(calm, 60*ms, "a", "c")}, nil, torn, 160},
		{"pauses beyond the wait", log(weir.FairShare), []Fault{slow(calm, 80*ms, "a")}, nil, torn, 320},
		{"pauses beyond the wait at all nodes", log(weir.MajorityShare), []Fault{slow(calm, 80*ms, "a", "b", "c", "d", "e")}, nil, torn, 320},
		{"pauses beyond the wait, FailOpen", log(weir.FailOpen), []Fault{slow(calm, 80*ms, "a")}, nil, torn, 7 * 160},
		{"pauses that have ended", log(weir.FairShare), []Fault{slow(calm, 80*ms, "a"), slow(9*time.Second, 0, "a")}, nil, torn, 160},
		{"pauses that end later", log(weir.FairShare), []Fault{slow(0, 80*ms, "a"), slow(10*time.Second, 10*ms, "a")}, nil, begins, 320},
		{"pauses of a node that is newly cut off", log(weir.FairShare), []Fault{slow(calm, 30*ms, "a"), splitAt10, healAt25}, nil, begins, 480},
		{"short pauses of a node that is newly cut off", log(weir.FairShare), []Fault{slow(calm, 20*ms, "a"), splitAt10, healAt25}, nil, begins, 320},
		{"pauses in a split, c = 0", log(weir.FairShare), []Fault{slow(calm, 60*ms, "a"), splitAt10, healAt25}, nil, torn, 320},
		{"short pauses in a split, c = 0", log(weir.FairShare), []Fault{slow(calm, 40*ms, "a"), splitAt10, healAt25}, nil, torn, 160},
		{"a split in three, c = 2", log(weir.FairShare), []Fault{{At: 10 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d"}, {"e"}}}}, nil, begins, 480},
		{"three sides meet, c = 2", log(weir.FairShare), []Fault{{Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d"}, {"e"}}}, {At: 10 * time.Second, Kind: FaultHeal}}, nil, begins, 480},
		{"flapping", log(weir.FairShare), []Fault{splitAt10, {At: 10100 * ms, Kind: FaultHeal}, {At: 10200 * ms, Kind: FaultSplit, Sides: splitAt10.Sides}, healAt25}, nil, begins, 640},
		{"forgotten", log(weir.FairShare), []Fault{splitAt10, healAt25}, func(s *Scenario) { s.Forget = time.Second }, torn, 320},
		{"never met", log(weir.FairShare), []Fault{{At: 0, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}}, at(FaultStart, 8*time.Second, "c", "d", "e")},
			func(s *Scenario) { s.Nodes[2].Later, s.Nodes[3].Later, s.Nodes[4].Later = true, true, true }, torn + 15*time.Second, 320},
		{"another region's split", log(weir.FairShare), []Fault{splitAt10}, func(s *Scenario) {
			for i := range s.Nodes {
				s.Nodes[i].Region = []string{"east", "east", "west", "west", "west"}[i]
			}
		}, begins, 160},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newFixture(row.l, row.faults...)
			if row.change != nil {
				row.change(s)
			}
			from, to := row.from+ms, row.from+990*ms
			if row.from == begins {
				from, to = row.from+ms, 10*time.Second-10*ms // nothing is in flight at the fault
			}
			just := journal(s, spread(row.most, from, to, 0))
			require.Empty(t, brokenOf(just, boundInvariant))
			more := journal(s, spread(row.most+1, from, to, 0))
			says := brokenOf(more, boundInvariant)
			require.Len(t, says, 1)
			require.Contains(t, says[0], fmt.Sprintf("%d units", row.most+1))
		})
	}
}

func TestUnitsInFlightAtCrashAreAllowed(t *testing.T) {
	l := weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second}
	s := newFixture(l, Fault{At: 10 * time.Second, Kind: FaultKill, Nodes: []string{"a"}})
	before := spread(170, 9100*ms, 9900*ms)
	require.Empty(t, brokenOf(journal(s, before, spread(30, 10*time.Second-100*time.Microsecond, 10*time.Second)), boundInvariant))
	require.NotEmpty(t, brokenOf(journal(s, before, spread(30, 9950*ms, 9951*ms)), boundInvariant))
}

func TestBucketIsJudgedOverEverySpan(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Algorithm: weir.TokenBucket, Rate: 10, Per: time.Second, Burst: 20})
	paced := spread(100, 2100*ms, 12100*ms)
	require.Empty(t, judge(journal(s, spread(20, 2*time.Second, 2*time.Second), paced)))
	require.NotEmpty(t, brokenOf(journal(s, spread(21, 2*time.Second, 2*time.Second), paced), anyTime))
	extra := journal(s, spread(20, 2*time.Second, 2*time.Second), paced, spread(1, 9*time.Second, 9*time.Second))
	require.NotEmpty(t, brokenOf(extra, anyTime))
	require.Empty(t, brokenOf(extra, boundInvariant), "no window of length Per shows the excess")
}

func TestWholeClusterGrantsTheLimit(t *testing.T) {
	for _, algorithm := range []weir.Algorithm{weir.SlidingLog, weir.SlidingWindow, weir.FixedWindow, weir.TokenBucket} {
		for _, faults := range [][]Fault{nil, {splitAt10, healAt25}} {
			s := newFixture(weir.Limit{Name: "l", Algorithm: algorithm, Rate: 200, Per: time.Second}, faults...)
			require.Empty(t, brokenOf(journal(s, spreadDenied(40*800, 4, 0, s.Lasts, 0)), shareGrant), algorithm)
			require.NotEmpty(t, brokenOf(journal(s, spreadDenied(40*1000, 8, 0, s.Lasts, 0)), shareGrant), algorithm)
			require.Empty(t, brokenOf(journal(s, spread(40*180, 0, s.Lasts, 0)), shareGrant), "checks do not ask for more")
		}
	}
	s := newFixture(weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 200, Per: time.Second}, splitAt10)
	require.Empty(t, brokenOf(journal(s, spreadDenied(40*1000, 8, 0, s.Lasts, 0)), shareGrant), "not all members are connected again")
}

func TestSideGrantsItsShare(t *testing.T) {
	for policy, parts := range map[weir.PartitionPolicy][2]int{ // the shares of a limit of 200 on a side of two members and on a side of three
		weir.FairShare: {80, 120}, weir.MajorityShare: {80, 200}, weir.FailClosed: {0, 200}, weir.FailOpen: {200, 200},
	} {
		s := newFixture(weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 200, Per: time.Second, Partition: policy}, splitAt10)
		for side, part := range parts {
			granted := func(part int) *Journal {
				other := spread(parts[1-side]*40, 0, s.Lasts, int16(3-3*side))
				mine := spread(40*1000, 0, s.Lasts, int16(3*side))
				due := 0
				for i := range mine {
					due += part
					if mine[i].Allowed = due >= 1000; mine[i].Allowed {
						due -= 1000
					}
				}
				return journal(s, mine, other)
			}
			require.Empty(t, brokenOf(granted(part), shareGrant))
			if part > 0 {
				require.NotEmpty(t, brokenOf(granted(part*85/100), shareGrant), "%v, side %d", policy, side)
			}
		}
	}
}

func TestChecksArePromptAndHaveNoErrors(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second})
	check := Check{Asked: time.Second, Answered: time.Second + 101*ms, Units: 1}
	require.Empty(t, judge(journal(s, []Check{check})))
	check.Answered++
	require.Len(t, brokenOf(journal(s, []Check{check}), promptInvariant), 1)
	// A new connection counts as delayed, for 2 s from the start of the node.
	for start, broken := range map[time.Duration]int{0: 0, time.Second: 0, time.Second + 1: 1} {
		j := journal(s, []Check{check})
		j.Starts = []time.Duration{start}
		require.Len(t, brokenOf(j, promptInvariant), broken, start)
	}
	s.Timeout = 200 * ms
	require.Empty(t, judge(journal(s, []Check{check})))
	// A node that is paused when its Timeout has passed answers after the pause.
	check.Answered += 100 * ms
	require.NotEmpty(t, brokenOf(journal(s, []Check{check}), promptInvariant))
	s.Faults = []Fault{{Kind: FaultSlow, Nodes: []string{"a"}, Pauses: 100 * ms, Every: time.Second}}
	require.Empty(t, judge(journal(s, []Check{check})))
	// While members report delays, the node may wait for twice its Timeout, and a pause
	// may be added.
	check.Answered = time.Second + 501*ms
	require.Empty(t, judge(journal(s, []Check{check})))
	check.Answered++
	require.NotEmpty(t, brokenOf(journal(s, []Check{check}), promptInvariant))
	check.Answered = time.Second + 101*ms
	check.Err = "weir: something"
	require.Len(t, brokenOf(journal(s, []Check{check}), noErrors), 1)
}

func TestRunningNodeIsConnectedToAllNodes(t *testing.T) {
	slow := func(pauses time.Duration) Fault {
		return Fault{At: 5 * time.Second, Kind: FaultSlow, Nodes: []string{"a", "b", "c", "d", "e"}, Pauses: pauses, Every: time.Second}
	}
	link := func(l weirtest.Link) Fault {
		return Fault{At: 5 * time.Second, Kind: FaultLink, From: "a", To: "b", Link: l}
	}
	const from, to = 12 * time.Second, 12*time.Second + 1
	for _, c := range []struct {
		name   string
		faults []Fault
		absence
		holds bool
	}{
		{"no fault", nil, absence{By: 0, Of: 1, From: from, To: to}, false},
		{"all are slow", []Fault{slow(400 * ms)}, absence{By: 0, Of: 1, From: from, To: to}, false},
		{"all are slower than is promised", []Fault{slow(500 * ms)}, absence{By: 0, Of: 1, From: from, To: to}, true},
		{"it is far away", []Fault{link(weirtest.Link{Latency: 400 * ms})}, absence{By: 0, Of: 1, From: from, To: to}, false},
		{"it is further away than is promised", []Fault{link(weirtest.Link{Latency: 500 * ms})}, absence{By: 0, Of: 1, From: from, To: to}, true},
		{"another node is further away", []Fault{link(weirtest.Link{Latency: 500 * ms})}, absence{By: 0, Of: 2, From: from, To: to}, false},
		{"packets are lost", []Fault{link(weirtest.Link{Loss: 0.01})}, absence{By: 0, Of: 1, From: from, To: to}, true},
		{"it is cut off", []Fault{splitAt10, healAt25}, absence{By: 0, Of: 3, From: from, To: to}, true},
		{"another is cut off", []Fault{splitAt10, healAt25}, absence{By: 0, Of: 1, From: from, To: to}, false},
		{"it was cut off", []Fault{splitAt10, healAt25}, absence{By: 0, Of: 3, From: from, To: 27 * time.Second}, true},
		{"it was cut off long ago", []Fault{splitAt10, healAt25}, absence{By: 0, Of: 3, From: from, To: 27*time.Second + 1}, false},
		{"it is frozen", []Fault{{At: 10 * time.Second, Kind: FaultFreeze, Nodes: []string{"b"}}}, absence{By: 0, Of: 1, From: from, To: to}, true},
		{"it has just started", nil, absence{By: 0, Of: 1, Both: 11 * time.Second, From: from, To: to}, true},
		{"it has started", nil, absence{By: 0, Of: 1, Both: 9 * time.Second, From: from, To: to}, false},
	} {
		j := journal(newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second}, c.faults...))
		require.Empty(t, judge(j), c.name)
		j.Absences = []absence{c.absence}
		require.Equal(t, c.holds, len(brokenOf(j, absenceInvariant)) == 0, c.name)
	}
}

func TestOwnerDecidesWhileNodesAreOnlySlow(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second},
		Fault{At: 5 * time.Second, Kind: FaultSlow, Nodes: []string{"a"}, Pauses: 60 * ms, Every: 100 * ms},
		Fault{At: 20 * time.Second, Kind: FaultSlow, Nodes: []string{"a"}, Pauses: 80 * ms, Every: 100 * ms},
		Fault{At: 30 * time.Second, Kind: FaultSlow, Nodes: []string{"a"}},
		Fault{At: 35 * time.Second, Kind: FaultKill, Nodes: []string{"b"}})
	for at, holds := range map[time.Duration]bool{
		time.Second: false, 10 * time.Second: false, 21 * time.Second: true, 31 * time.Second: true, 33 * time.Second: false, 39 * time.Second: true,
	} {
		for source := weir.Owner; source <= weir.FailedClosed; source++ {
			check := Check{Asked: at, Answered: at + ms, Units: 1, Allowed: true, Source: source}
			by := source == weir.StandIn || source == weir.Budget || source == weir.FailedOpen || source == weir.FailedClosed
			require.Equal(t, holds || !by, len(brokenOf(journal(s, []Check{check}), exactInvariant)) == 0, "%v at %v", source, at)
		}
	}
}

func TestGossipRunBeginsWithJustStartedNodes(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second})
	s.Gossip = true
	for at, holds := range map[time.Duration]bool{0: true, 9 * time.Second: true, 11 * time.Second: false} {
		j := journal(s, nil)
		j.Absences = []absence{{By: 0, Of: 1, From: at, To: at + ms}}
		require.Equal(t, holds, len(brokenOf(j, absenceInvariant)) == 0, at)
	}
	for at, holds := range map[time.Duration]bool{0: true, 14 * time.Second: true, 16 * time.Second: false} {
		check := Check{Asked: at, Answered: at + ms, Units: 1, Allowed: true, Source: weir.StandIn}
		require.Equal(t, holds, len(brokenOf(journal(s, []Check{check}), exactInvariant)) == 0, at)
	}
}

func TestJudgeUsesDefaultTimeout(t *testing.T) {
	require.ErrorContains(t, weir.Config{Timeout: -1}.Validate(), fmt.Sprintf("use 0 for %v,", timeoutOf(&Scenario{})))
}

func TestEndingsAreJudged(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second})
	fine := Ending{Key: 3, Spent: 100, Total: 100, Granted: 100, Used: 100, Owners: []int16{1}, Replica: 100}
	for _, c := range []struct {
		name   string
		change func(*Journal)
		breaks string
	}{
		{"fine", func(*Journal) {}, ""},
		{"no replica was asked", func(j *Journal) { j.Ends[0].Replica = -1 }, ""},
		{"a crash took some", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Lost = 98, 98, 2 }, ""},
		{"some units may have been spent without a grant", func(j *Journal) { j.Ends[0].Granted, j.Ends[0].Ungranted = 97, 3 }, ""},
		{"more units were spent without a grant", func(j *Journal) { j.Ends[0].Granted, j.Ends[0].Ungranted = 96, 3 }, accounted},
		{"a granted unit was not spent", func(j *Journal) { j.Ends[0].Granted = 101 }, accounted},
		{"a crash took the news of a refund", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Regained = 103, 103, 3 }, ""},
		{"a unit is lost", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica = 99, 99 }, accounted},
		{"a crash took more", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Lost = 97, 97, 2 }, accounted},
		{"a unit counts twice", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica = 101, 101 }, accounted},
		{"two nodes have authority", func(j *Journal) { j.Ends[0].Owners = []int16{1, 4} }, oneAuthority},
		{"no node has authority", func(j *Journal) { j.Ends[0].Owners = nil }, oneAuthority},
		{"the copy has more", func(j *Journal) { j.Ends[0].Replica = 101 }, equalReplicas},
		{"the copy has the refunded units", func(j *Journal) { j.Ends[0].Replica, j.Ends[0].Regained = 103, 3 }, ""},
		{"the copy has more than the refunded units", func(j *Journal) { j.Ends[0].Replica, j.Ends[0].Regained = 104, 3 }, equalReplicas},
		{"the copy has less", func(j *Journal) { j.Ends[0].Replica, j.Ends[0].Regained = 99, 3 }, equalReplicas},
		{"only spends since the reset count", func(j *Journal) {
			e := &j.Ends[0]
			e.Reset, e.Known, e.Spent, e.Used, e.Replica = 7, 7, 40, 40, 40
		}, ""},
		{"units of before the reset count", func(j *Journal) { j.Ends[0].Reset, j.Ends[0].Spent = 7, 40 }, accounted},
		{"the owner has not heard of the reset", func(j *Journal) { j.Ends[0].Known = 7 }, accounted},
		{"a crash took the reset", func(j *Journal) { j.Ends[0].Reset, j.Ends[0].Known = 5, 3 }, ""},
		{"units from before the reset were refunded twice", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Stale = 103, 103, 3 }, ""},
		{"more than the refunds counts", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Stale = 104, 104, 3 }, accounted},
		{"the refunds took later spends", func(j *Journal) { j.Ends[0].Used, j.Ends[0].Replica, j.Ends[0].Stale = 97, 97, 3 }, accounted},
		{"it may have been evicted", func(j *Journal) { j.Scenario.MaxKeys, j.Ends[0].Used, j.Ends[0].Replica = 9, 50, 40 }, ""},
		{"it is not settled", func(j *Journal) { j.Unsettled = "b is not ready" }, settledInvariant},
	} {
		j := journal(s)
		j.Ends = []Ending{fine}
		c.change(j)
		broken := judge(j)
		if c.breaks == "" {
			require.Empty(t, broken, c.name)
		} else {
			require.Len(t, broken, 1, c.name)
			require.Equal(t, c.breaks, broken[0].Invariant, c.name)
		}
	}
}

// The reference counts the units of windows and spans in a simple, slow way.
func TestWindowsEqualTheSimpleCount(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := weir.Limit{Name: "l", Algorithm: weir.TokenBucket, Rate: 1 + rng.Int64N(50), Per: time.Second}
		s := newFixture(l)
		var checks []Check
		for range rng.IntN(60) {
			at := time.Duration(rng.Int64N(int64(4 * time.Second)))
			checks = append(checks, Check{Asked: at, Answered: at + time.Duration(rng.Int64N(int64(300*ms))), Units: 1 + rng.Int64N(3), Allowed: rng.IntN(4) > 0})
		}
		r := newTrial(journal(s, checks))
		if len(r.asks) == 0 {
			continue
		}
		a := r.asks[0]
		in := func(from, to time.Duration) (units int64) {
			for _, c := range checks {
				if c.Allowed && c.Asked >= from && c.Answered < to {
					units += c.Units
				}
			}
			return units
		}
		a.eachWindow(l.Per, func(w window) {
			require.Equal(t, in(w.from, w.to), w.units, "seed %d, from %v", seed, w.from)
		})
		w, above := a.densestSpan(0, time.Minute)
		if above > 0 {
			certain := float64(in(w.from, w.to+1)) - float64(w.to-w.from)*float64(l.Rate)/float64(l.Per)
			require.LessOrEqual(t, above, certain+1e-6, "seed %d: no false violation is reported", seed)
		}
	}
}

func TestCourseFollowsTheFaults(t *testing.T) {
	s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second},
		splitAt10,
		Fault{At: 12 * time.Second, Kind: FaultFreeze, Nodes: []string{"c"}},
		Fault{At: 14 * time.Second, Kind: FaultKill, Nodes: []string{"d"}},
		Fault{At: 16 * time.Second, Kind: FaultThaw, Nodes: []string{"c"}},
		Fault{At: 18 * time.Second, Kind: FaultHeal},
		Fault{At: 20 * time.Second, Kind: FaultCut, From: "a", To: "b"},
		Fault{At: 21 * time.Second, Kind: FaultCut, From: "", To: "e"},
		Fault{At: 22 * time.Second, Kind: FaultStart, Nodes: []string{"d"}},
		Fault{At: 23 * time.Second, Kind: FaultHeal},
		Fault{At: 24 * time.Second, Kind: FaultLeave, Nodes: []string{"a"}},
	)
	c := courseOf(s, "", s.Lasts)
	for at, sides := range map[time.Duration][]int{
		5:  {0, 0, 0, 0, 0},
		11: {0, 0, 1, 1, 1},
		13: {0, 0, -1, 1, 1},
		15: {0, 0, -1, -1, 1},
		17: {0, 0, 1, -1, 1},
		19: {0, 0, 0, -1, 0},
		20: {0, 0, 0, -1, 0}, // a and b are connected through c
		21: {0, 0, 0, -1, 1},
		22: {0, 0, 0, 0, 1},
		23: {0, 0, 0, 0, 0},
		24: {-1, 0, 0, 0, 0},
	} {
		require.Equal(t, sides, c.eraAt(at*time.Second).side, "at %d s", at)
	}
	require.Equal(t, 5, c.eraAt(15*time.Second).roster, "dead members count")
	require.Equal(t, 4, c.eraAt(24*time.Second).roster, "a member that has left does not")
	require.True(t, c.eraAt(15*time.Second).missing)
	require.False(t, c.eraAt(24*time.Second).missing)
	changes := 0
	for _, e := range c.events {
		if e.kind == changed {
			changes++
		}
	}
	require.Equal(t, 7, changes, "split, heal, two cuts, a heal; a start while a member is missing, and a leave before all was calm")
}

// through returns cuts of the links between all pairs of the named nodes, so that these
// nodes are connected to each other only through other nodes.
func through(at time.Duration, names ...string) (cuts []Fault) {
	for i, from := range names {
		for _, to := range names[i+1:] {
			cuts = append(cuts, Fault{At: at, Kind: FaultCut, From: from, To: to})
		}
	}
	return cuts
}

func TestLeaverIsMissingIfNoMemberReceivesLeave(t *testing.T) {
	leave := Fault{At: 15 * time.Second, Kind: FaultLeave, Nodes: []string{"e"}}
	for missing, side := range map[bool][]string{true: {"e"}, false: {"d", "e"}} {
		others := slices.DeleteFunc([]string{"a", "b", "c", "d", "e"}, func(name string) bool { return slices.Contains(side, name) })
		s := newFixture(weir.Limit{Name: "l", Rate: 10, Per: time.Second},
			Fault{At: 10 * time.Second, Kind: FaultSplit, Sides: [][]string{others, side}}, leave, healAt25)
		end := courseOf(s, "", s.Lasts).eraAt(30 * time.Second)
		require.Equal(t, missing, end.missing, "of %v", side)
		if missing {
			require.Equal(t, 5, end.roster)
		} else {
			require.Equal(t, 4, end.roster)
		}
	}
}

// Nodes that do not hear of a leave in a split still count the node that left, and their
// share is smaller by its part.
func TestSharesAreNotJudgedAfterLeaveInSplit(t *testing.T) {
	for name, faults := range map[string][]Fault{"none": nil, "leave": {{At: 12 * time.Second, Kind: FaultLeave, Nodes: []string{"c"}}}} {
		s := newFixture(weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Second, Partition: weir.MajorityShare}, append([]Fault{splitAt10}, faults...)...)
		s.Lasts = time.Minute
		j := journal(s, spreadDenied(60*4000, 4000/320, 0, s.Lasts, 0), spread(60*500, 0, s.Lasts, 3))
		require.Equal(t, faults == nil, len(brokenOf(j, shareGrant)) > 0, name)
	}
}

func TestNodesStartedInSplitHaveTimeToJoin(t *testing.T) {
	start := Fault{At: 15 * time.Second, Kind: FaultStart, Nodes: []string{"e"}}
	kill := Fault{At: 12 * time.Second, Kind: FaultKill, Nodes: []string{"e"}}
	s := newFixture(weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Second}, splitAt10, kill, start, healAt25)
	s.Lasts = time.Minute
	half := append(spreadDenied(25*5000, 8, 0, 25*time.Second, 0), spreadDenied(17*5000, 8, 25*time.Second, 42*time.Second, 0)...)
	rest := spreadDenied(18*4000, 4, 42*time.Second, s.Lasts, 0)
	require.NotEmpty(t, brokenOf(journal(s, half, rest), shareGrant))
	s.Expect = 5
	require.Empty(t, brokenOf(journal(s, half, rest), shareGrant))
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// newInFlight returns a scenario of five nodes and an in-flight limit of ten units.
func newInFlight(p weir.PartitionPolicy, faults ...Fault) *Scenario {
	s := newFixture(weir.Limit{Name: "streams", Algorithm: weir.InFlight, Rate: 10, Partition: p}, faults...)
	s.Loads = []Load{{Limit: "streams", Rate: 1, Keeps: time.Second}}
	return s
}

// newHold returns the hold of a caller at a node. The caller has the units between two
// times, in seconds.
func newHold(node int16, units int64, from, to float64) Held {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Held{Asked: at(from) - time.Millisecond, From: at(from), To: at(to), Units: units, Node: node}
}

func TestHoldsAreJudgedByUnitsHeldAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy weir.PartitionPolicy
		faults []Fault
		holds  []Held
		broken bool
	}{
		{"all units at once", weir.FairShare, nil, []Held{newHold(0, 6, 1, 9), newHold(1, 4, 2, 9)}, false},
		{"one unit more", weir.FairShare, nil, []Held{newHold(0, 6, 1, 9), newHold(1, 5, 2, 9)}, true},
		{"one after the other", weir.FairShare, nil, []Held{newHold(0, 10, 1, 2), newHold(1, 10, 2.1, 3)}, false},
		{"each side of a split holds its units and its share", weir.FairShare, []Fault{splitAt10, healAt25},
			[]Held{newHold(0, 10, 1, 24), newHold(2, 10, 20, 24)}, false},
		{"a side of a split holds more than its share", weir.FairShare, []Fault{splitAt10, healAt25},
			[]Held{newHold(0, 10, 1, 24), newHold(2, 11, 20, 24)}, true},
		{"both sides long after the split", weir.FairShare, []Fault{splitAt10, healAt25},
			[]Held{newHold(0, 6, 14, 24), newHold(2, 5, 15, 24)}, true},
		{"a grant after a heal, beside the units of both sides", weir.FairShare, []Fault{splitAt10, healAt25},
			[]Held{newHold(0, 10, 1, 29.5), newHold(2, 4, 20, 29.5), newHold(1, 1, 29, 29.5)}, true},
		{"a grant beyond the limit after a crash", weir.MajorityShare, []Fault{{At: 10 * time.Second, Kind: FaultKill, Nodes: []string{"e"}}},
			[]Held{newHold(0, 10, 1, 20), newHold(1, 1, 10.5, 20)}, true},
	} {
		j := journal(newInFlight(c.policy, c.faults...))
		j.Holds = c.holds
		require.Equal(t, c.broken, len(brokenOf(j, heldInvariant)) > 0, "%s: %v", c.name, brokenOf(j, heldInvariant))
	}
}

func TestUnitsAreBackInTime(t *testing.T) {
	denied := func(at float64) []Check {
		asked := time.Duration(at * float64(time.Second))
		return []Check{{Asked: asked, Answered: asked + time.Millisecond, Units: 5}}
	}
	dead := newHold(1, 6, 1, 4)
	dead.End = holdDied
	killed := Fault{At: 4 * time.Second, Kind: FaultKill, Nodes: []string{"b"}}
	for _, c := range []struct {
		name   string
		faults []Fault
		hold   Held
		denied float64
		broken bool
	}{
		{"during the hold", nil, newHold(0, 6, 1, 4), 3, false},
		{"at its release", nil, newHold(0, 6, 1, 4), 4.0001, false},
		{"after its release", nil, newHold(0, 6, 1, 4), 4.1, true},
		{"in a split", []Fault{splitAt10}, newHold(0, 6, 9, 11), 12, false},
		{"while nodes join that started in a split", []Fault{splitAt10, {At: 15 * time.Second, Kind: FaultKill, Nodes: []string{"e"}}, {At: 16 * time.Second, Kind: FaultStart, Nodes: []string{"e"}}, {At: 18 * time.Second, Kind: FaultHeal}},
			newHold(0, 6, 28, 29), 30, false},
		{"within the term of a dead holder", []Fault{killed, {At: 5 * time.Second, Kind: FaultStart, Nodes: []string{"b"}}}, dead, 15, false},
		{"beyond the term of a dead holder", nil, dead, 16.1, true},
	} {
		j := journal(newInFlight(weir.FairShare, c.faults...), denied(c.denied))
		j.Holds = []Held{c.hold}
		require.Equal(t, c.broken, len(brokenOf(j, backInvariant)) > 0, "%s: %v", c.name, brokenOf(j, backInvariant))
	}
	j := journal(newInFlight(weir.FairShare))
	j.Probes = []Probe{{Left: 9}}
	require.Len(t, brokenOf(j, backInvariant), 1, "a unit that is never returned")
}

func TestLostHoldsOfClientsAreJudgedByFaults(t *testing.T) {
	lost, refused := newHold(0, 1, 12, 14), newHold(0, 1, 12, 14)
	lost.End, lost.Expires, refused.Expires, refused.Wrong = holdLost, lost.To, lost.To, "weir: timed out"
	kill := func(at time.Duration, name string) Fault {
		return Fault{At: at, Kind: FaultKill, Nodes: []string{name}}
	}
	for _, c := range []struct {
		name            string
		faults          []Fault
		lost, mayRefuse bool
	}{
		{"without a fault", nil, true, false},
		{"one crash", []Fault{kill(12*time.Second, "e")}, true, true},
		{"a freeze", []Fault{{At: 12 * time.Second, Kind: FaultFreeze, Nodes: []string{"e"}}}, true, true},
		{"a deploy", []Fault{{At: 12 * time.Second, Kind: FaultLeave, Nodes: []string{"e"}}}, true, false},
		{"two crashes", []Fault{kill(10*time.Second, "d"), kill(13*time.Second, "e")}, false, true},
		{"in a split", []Fault{splitAt10, healAt25}, false, true},
		{"two crashes afterwards", []Fault{kill(15*time.Second, "d"), kill(15*time.Second, "e")}, true, true},
	} {
		j := journal(newInFlight(weir.FairShare, c.faults...))
		j.Holds = []Held{lost}
		require.Equal(t, c.lost, len(brokenOf(j, lostInvariant)) > 0, "%s: lost", c.name)
		j.Holds = []Held{refused}
		require.Equal(t, !c.mayRefuse, len(brokenOf(j, lostInvariant)) > 0, "%s: refused", c.name)
	}
}

func TestReservationsAreJudgedByTheirSettlements(t *testing.T) {
	budget := func(faults ...Fault) *Scenario {
		s := newFixture(weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: 24 * time.Hour, Partition: weir.FairShare}, faults...)
		s.Loads = []Load{{Limit: "tokens", Rate: 1, Units: 10, Settles: time.Second}}
		return s
	}
	settled := func(at float64, actual int64) Settled {
		asked := time.Duration(at * float64(time.Second))
		return Settled{asked, asked + time.Millisecond, actual}
	}
	for _, c := range []struct {
		name    string
		faults  []Fault
		settled []Settled
		spent   int64
		broken  bool
	}{
		{"settled", nil, []Settled{settled(2, 7)}, 7, false},
		{"settled above its estimate", nil, []Settled{settled(2, 12)}, 12, false},
		{"not settled", nil, nil, 10, true},
		{"settled twice", nil, []Settled{settled(2, 7), settled(3, 7)}, 7, true},
		{"given back twice", nil, []Settled{settled(2, 7)}, 4, true},
		{"debited twice", nil, []Settled{settled(2, 12)}, 14, true},
		{"debited nowhere", nil, []Settled{settled(2, 12)}, 10, true},
		{"debited nowhere, in a split", []Fault{splitAt10}, []Settled{settled(12, 12)}, 10, false},
		{"settled by each side before it knows of the split", []Fault{splitAt10}, []Settled{settled(10.1, 7), settled(10.2, 7)}, 7, false},
		{"settled by each side long after the split", []Fault{splitAt10}, []Settled{settled(14, 7), settled(15, 7)}, 7, true},
	} {
		j := journal(budget(c.faults...))
		j.Reserved = []Reserved{{Check: Check{Asked: time.Second, Answered: time.Second, Units: 10, Allowed: true}, Settled: c.settled, Tried: true}}
		j.Spends = []Spend{{Units: c.spent}}
		require.Equal(t, c.broken, len(brokenOf(j, settledOnceInvariant)) > 0, "%s: %v", c.name, brokenOf(j, settledOnceInvariant))
	}
}

func TestHoldAndReservationScenariosKeepEveryPromise(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"requests-in-flight", "token-budget"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := findScenario(name)
			require.NoError(t, err)
			if name == "token-budget" {
				s.Lasts = time.Duration(testenv.PickFull(t, 40, 60)) * time.Second // the only fault begins at 20 s
			}
			j := playAside(t, s)
			require.Empty(t, judge(j))
			if !testenv.Race && testenv.IsFull(t) { // the race detector has the scheduler pick at random
				requireReplays(t, s, j)
			}
			require.True(t, len(j.Holds) > 1000 && len(j.Probes) == 5 || len(j.Reserved) > 1000 && len(j.Spends) == 5)
		})
	}
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// lossesOverAStop plays a scenario in which all nodes stop after 9 s of 30 s. The result
// is the part of the units of the witness limit that may be lost in each region.
func lossesOverAStop(t *testing.T, nodes []Node, faults ...Fault) (lost []float64) {
	s := newScene(3, faults...)
	s.Snapshots = time.Second
	if nodes != nil {
		s.Nodes = nodes
	}
	j, err := run(t, s)
	require.NoError(t, err)
	require.Empty(t, judge(j))
	for range s.regions() {
		var spent, gone int64
		for _, e := range j.Ends[:witnessKeys] {
			spent, gone = spent+e.Total, gone+e.Lost
		}
		j.Ends = j.Ends[witnessKeys:]
		lost = append(lost, float64(gone)/float64(spent))
	}
	return lost
}

func TestStopLosesOnlyUnsavedUnits(t *testing.T) {
	all := []string{"a", "b", "c"}
	stop := Fault{At: 9 * time.Second, Kind: FaultKill, Nodes: all}
	leave := Fault{At: 9 * time.Second, Kind: FaultLeave, Nodes: all}
	start := Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all}
	for name, c := range map[string]struct {
		faults      []Fault
		least, most float64
	}{
		"in order":                          {[]Fault{leave, start}, 0, 0},
		"a crash":                           {[]Fault{stop, start}, 0.01, 0.1},
		"in order, and all is lost":         {[]Fault{leave, {At: 11 * time.Second, Kind: FaultLose, Nodes: all}, start}, 0.2, 0.5},
		"in order, and two of three revert": {[]Fault{leave, {At: 11 * time.Second, Kind: FaultRevert, Nodes: all[:2]}, start}, 0, 0.1},
		// A node that is starting when the last node ends has met no member.
		"a crash where one is starting": {[]Fault{
			{At: 9 * time.Second, Kind: FaultKill, Nodes: all[:1]}, {At: 9 * time.Second, Kind: FaultStart, Nodes: all[:1]},
			{At: 9*time.Second + time.Millisecond, Kind: FaultKill, Nodes: all[1:]}, {At: 12 * time.Second, Kind: FaultStart, Nodes: all[1:]},
		}, 0.01, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			lost := lossesOverAStop(t, nil, c.faults...)[0]
			require.GreaterOrEqual(t, lost, c.least)
			require.LessOrEqual(t, lost, c.most)
		})
	}
}

// Each region is judged by its own snapshots, even if one fault ends the nodes of several
// regions.
func TestStoppedRegionsAreJudgedByTheirSnapshots(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	nodes := []Node{{Name: "a", Region: "east"}, {Name: "b", Region: "east"}, {Name: "c", Region: "west"}, {Name: "d", Region: "west"}}
	lost := lossesOverAStop(t, nodes,
		Fault{At: 9 * time.Second, Kind: FaultKill, Nodes: all},
		Fault{At: 9 * time.Second, Kind: FaultLose, Nodes: all[2:]},
		Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all})
	require.Less(t, lost[0], 0.1, "east lost no snapshot")
	require.Greater(t, lost[1], 0.2, "west lost all snapshots")
}

// A node that leaves last executes requests until it has ended. Its refunds and resets
// after its snapshot are on no other node. The node grants no units at that time.
func TestRefundsAfterLastSnapshotMayBeLost(t *testing.T) {
	const a, ms = 0, time.Millisecond
	const end, written = 12 * time.Second, 11 * time.Second
	s := &stage{Scenario: &Scenario{Settings: Settings{Snapshots: time.Second}}, regions: []string{""}, outages: []outage{{0, end}}, named: make(map[string]*host)}
	s.disks = &disks{stage: s}
	s.courses = []*course{{eras: []era{{to: end, side: []int{0, 0}}}}}
	for i, name := range []string{"a", "b"} {
		s.named[name] = &host{name: name, index: i}
		s.hosts = append(s.hosts, s.named[name])
		s.witness.crashes = append(s.witness.crashes, crash{at: end, hosts: []int{i}, began: end, orderly: true})
		s.disks.loads = append(s.disks.loads, snapshotLoad{writer: name, began: written, reader: name, ran: end + time.Second})
	}
	s.witness.spends = [][]spent{{
		{units: 5, at: 5 * time.Second, by: a},
		{units: -2, at: written - ms, by: a},
		{units: 3, at: written + ms, by: a},
		{units: -2, at: written + ms, by: a},
		{units: 0, at: written + 2*ms, by: a, reset: 7},
	}}
	require.Equal(t, [][]bool{{false, false, false, true, true}}, s.lostSpends())
}

// A node that stops again while other nodes run loads the snapshots that it has written
// meanwhile. These snapshots do not restore the counts that an earlier crash of all nodes
// has taken.
func TestLaterSnapshotRestoresNoCountsOfEarlierCrash(t *testing.T) {
	const end, written = 12 * time.Second, 9 * time.Second
	a := &host{name: "a"}
	s := &stage{Scenario: &Scenario{Settings: Settings{Snapshots: time.Second}, Faults: []Fault{{At: end, Kind: FaultLose, Nodes: []string{"a"}}}}, regions: []string{""}, hosts: []*host{a}, named: map[string]*host{"a": a}}
	s.witness.crashes = []crash{{at: end, hosts: []int{0}, began: end}}
	s.courses = []*course{{eras: []era{{to: end, side: []int{0}}}}}
	s.disks = &disks{stage: s, loads: []snapshotLoad{
		{writer: "a", began: written, reader: "a", ran: end + time.Second},
		{writer: "a", began: end + 5*time.Second, reader: "a", ran: end + 7*time.Second},
	}}
	require.Equal(t, written, s.savedUntil(outage{0, end}))
}

// A node that starts or leaves reaches no serving node, and FailOpen does not deny in
// that case.
func TestStoppedNodesEachHaveFailOpenLimit(t *testing.T) {
	all := []string{"a", "b", "c"}
	s := newScene(3, Fault{At: 9 * time.Second, Kind: FaultLeave, Nodes: all}, Fault{At: 9500 * time.Millisecond, Kind: FaultStart, Nodes: all})
	s.Snapshots = time.Second
	s.Limits = []weir.Limit{{Name: "l", Algorithm: weir.SlidingLog, Rate: 60, Per: 4 * time.Second, Partition: weir.FailOpen}}
	s.Loads = []Load{{Limit: "l", Adversary: true}}
	j, err := run(t, s)
	require.NoError(t, err)
	require.Empty(t, judge(j))
}

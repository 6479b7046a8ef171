package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// stopping is a scenario in which a day's limit is used while all nodes stop, and start again.
func stopping(faults ...Fault) *Scenario {
	s := scene(3, faults...)
	s.Snapshots = time.Second
	s.Limits = []weir.Limit{{Name: "day", Algorithm: weir.FixedWindow, Rate: 100, Per: 24 * time.Hour}}
	s.Loads = []Load{{Limit: "day", Rate: 4}}
	return s
}

func TestAStopOfAllNodesIsHeldToWhatWasInTheirSnapshots(t *testing.T) {
	all := []string{"a", "b", "c"}
	stop := Fault{At: 9 * time.Second, Kind: FaultKill, Nodes: all}
	leave := Fault{At: 9 * time.Second, Kind: FaultLeave, Nodes: all}
	start := Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all}
	for name, c := range map[string]struct {
		faults      []Fault
		from, until time.Duration // of Saved
	}{
		"in order":                          {[]Fault{leave, start}, 9 * time.Second, 10 * time.Second},
		"a crash":                           {[]Fault{stop, start}, 7 * time.Second, 9 * time.Second},
		"in order, and all is lost":         {[]Fault{leave, {At: 11 * time.Second, Kind: FaultLose, Nodes: all}, start}, 0, 0},
		"in order, and two of three revert": {[]Fault{leave, {At: 11 * time.Second, Kind: FaultRevert, Nodes: all[:2]}, start}, 7 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := run(t, stopping(c.faults...))
			require.NoError(t, err)
			require.Len(t, j.Stops, 1)
			require.GreaterOrEqual(t, j.Stops[0].Saved, c.from)
			require.LessOrEqual(t, j.Stops[0].Saved, c.until)
			require.Empty(t, judge(j))
		})
	}
}

// Regions stop by themselves, though one fault ends the nodes of several.
func TestEachRegionThatACrashStopsIsHeldToItsSnapshots(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	s := stopping(
		Fault{At: 9 * time.Second, Kind: FaultKill, Nodes: all},
		Fault{At: 9 * time.Second, Kind: FaultLose, Nodes: all[2:]},
		Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all},
	)
	s.Nodes = []Node{{Name: "a", Region: "east"}, {Name: "b", Region: "east"}, {Name: "c", Region: "west"}, {Name: "d", Region: "west"}}
	j, err := run(t, s)
	require.NoError(t, err)
	require.Len(t, j.Stops, 2)
	require.Greater(t, j.Stops[0].Saved, 7*time.Second, "east lost none of its snapshots")
	require.Zero(t, j.Stops[1].Saved, "west lost all")
	require.Empty(t, judge(j))
}

// A node that is starting as the last one ends has met nobody.
func TestAllNodesStopWhereOneIsStarting(t *testing.T) {
	const last = 9*time.Second + time.Millisecond // before the start is over
	j, err := run(t, stopping(
		Fault{At: 9 * time.Second, Kind: FaultKill, Nodes: []string{"a"}},
		Fault{At: 9 * time.Second, Kind: FaultStart, Nodes: []string{"a"}},
		Fault{At: last, Kind: FaultKill, Nodes: []string{"b", "c"}},
		Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: []string{"b", "c"}},
	))
	require.NoError(t, err)
	require.Len(t, j.Stops, 1)
	require.Equal(t, last, j.Stops[0].At)
	require.Empty(t, judge(j))
}

// A node that leaves last does what it is asked to until it has ended: what it gives back and
// resets once its snapshot is written is nowhere else. It grants nothing then.
func TestWhatIsGivenBackAfterTheLastSnapshotMayBeGone(t *testing.T) {
	const a, ms = 0, time.Millisecond
	const end, written = 12 * time.Second, 11 * time.Second
	s := &stage{Scenario: &Scenario{Snapshots: time.Second}, regions: []string{""}, outages: []outage{{0, end}}, named: make(map[string]*host)}
	s.disks = &disks{stage: s}
	s.courses = []*course{{eras: []era{{to: end, side: []int{0, 0}}}}}
	for i, name := range []string{"a", "b"} {
		s.named[name] = &host{name: name, index: i}
		s.hosts = append(s.hosts, s.named[name])
		s.witness.crashes = append(s.witness.crashes, crash{at: end, hosts: []int{i}, began: end, orderly: true})
		s.disks.loads = append(s.disks.loads, load{of: name, began: written, by: name, ran: end + time.Second})
	}
	s.witness.spends = [][]spent{{
		{units: 5, at: 5 * time.Second, by: a},
		{units: -2, at: written - ms, by: a},
		{units: 3, at: written + ms, by: a},
		{units: -2, at: written + ms, by: a},
		{units: 0, at: written + 2*ms, by: a, reset: 7},
	}}
	require.Equal(t, [][]bool{{false, false, false, true, true}}, s.gone())
}

// A node that stops again while others run loads what it has written meanwhile. That
// does not bring back what a crash of all nodes before has taken.
func TestALaterSnapshotSavesNothingOfAnEarlierStop(t *testing.T) {
	const end, written = 12 * time.Second, 9 * time.Second
	a := &host{name: "a"}
	s := &stage{Scenario: &Scenario{Snapshots: time.Second, Faults: []Fault{{At: end, Kind: FaultLose, Nodes: []string{"a"}}}}, regions: []string{""}, hosts: []*host{a}, named: map[string]*host{"a": a}}
	s.witness.crashes = []crash{{at: end, hosts: []int{0}, began: end}}
	s.courses = []*course{{eras: []era{{to: end, side: []int{0}}}}}
	s.disks = &disks{stage: s, loads: []load{
		{of: "a", began: written, by: "a", ran: end + time.Second},
		{of: "a", began: end + 5*time.Second, by: "a", ran: end + 7*time.Second},
	}}
	require.Equal(t, written, s.saved(outage{0, end}))
}

func TestEachInvariantAllowsWhatAStopOfAllNodesTakesAndNoMore(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	day := weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 100, Per: 24 * time.Hour}
	short := day
	short.Per = 30 * time.Second // no snapshot has its counts
	for name, c := range map[string]struct {
		l     weir.Limit
		kind  FaultKind
		saved time.Duration
		most  int // after the stop
	}{
		"killed":                  {day, FaultKill, 9 * time.Second, 40},
		"killed, and all is lost": {day, FaultKill, -1, 100},
		"in order":                {day, FaultLeave, 10 * time.Second, 20},
		"old snapshots, in order": {day, FaultLeave, 9 * time.Second, 40},
		"of a short limit":        {short, FaultLeave, 10 * time.Second, 100},
	} {
		t.Run(name, func(t *testing.T) {
			s := told(c.l, Fault{At: 10 * time.Second, Kind: c.kind, Nodes: all}, Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all})
			s.Snapshots = time.Second
			for more := range 2 {
				j := journal(s,
					spread(60, 7*time.Second, 8900*time.Millisecond),
					spread(20, 9200*time.Millisecond, 9900*time.Millisecond),
					spread(c.most+more, 30*time.Second, 35*time.Second))
				j.Stops = []Stop{{At: 10 * time.Second, Saved: c.saved}}
				require.Len(t, brokenOf(j, boundInvariant), more)
			}
		})
	}
}

// A node that starts or leaves reaches no other that serves, and FailOpen denies nothing for that.
func TestEachNodeHasAFailOpenLimitForItselfInAStopOfAllNodes(t *testing.T) {
	all := []string{"a", "b", "c"}
	s := scene(3, Fault{At: 9 * time.Second, Kind: FaultLeave, Nodes: all}, Fault{At: 9500 * time.Millisecond, Kind: FaultStart, Nodes: all})
	s.Snapshots = time.Second
	s.Limits = []weir.Limit{{Name: "l", Algorithm: weir.SlidingLog, Rate: 60, Per: 4 * time.Second, Partition: weir.FailOpen}}
	s.Loads = []Load{{Limit: "l", Adversary: true}}
	j, err := run(t, s)
	require.NoError(t, err)
	require.Empty(t, judge(j))
}

func TestAFailOpenLimitIsHeldToOneForEachNodeInAStopOfAllNodes(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	day := weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 100, Per: 24 * time.Hour, Partition: weir.FailOpen}
	short := day
	short.Per = 30 * time.Second // no snapshot has its counts
	for name, c := range map[string]struct {
		l    weir.Limit
		most int // after the stop
	}{
		"of a durable limit": {day, 4*100 + 20},
		"of a short limit":   {short, 5 * 100},
	} {
		t.Run(name, func(t *testing.T) {
			s := told(c.l, Fault{At: 10 * time.Second, Kind: FaultLeave, Nodes: all}, Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: all})
			s.Snapshots = time.Second
			for more := range 2 {
				j := journal(s, spread(80, 7*time.Second, 9900*time.Millisecond), spread(c.most+more, 12*time.Second, 13*time.Second))
				j.Stops = []Stop{{At: 10 * time.Second, Saved: 10 * time.Second}}
				require.Len(t, brokenOf(j, boundInvariant), more)
			}
		})
	}
}

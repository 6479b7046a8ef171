package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
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

func TestADurableLimitIsHeldToItsAdmissionsOverAStop(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	all := []string{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		name     string
		noLeases bool
		change   func(checks []Check) // of ten before the stop, ten after it, and one at the end
		saved    time.Duration
		broken   bool
	}{
		{"all that was counted counts", true, func(c []Check) { c[20].Allowed = false }, 9 * s, false},
		{"one more is admitted", true, func([]Check) {}, 9 * s, true},
		{"one more, as one came after the snapshots", true, func(c []Check) { c[9].Asked, c[9].Answered = 8*s, 8*s+1 }, 7900 * time.Millisecond, false},
		{"one more, as a node heard no owner", true, func(c []Check) { c[15].Source = weir.FailedOpen }, 9 * s, false},
		{"a unit counts twice", true, func(c []Check) { c[19].Allowed, c[20].Allowed = false, false }, 9 * s, true},
		{"a late check's own unit may count", true, func(c []Check) { c[19].Allowed, c[19].Answered = false, c[19].Asked+80*ms }, 9 * s, false},
		{"a late check's unit may count until it comes back", true, func(c []Check) {
			c[18].Answered = c[18].Asked + 80*ms
			c[19].Asked, c[19].Answered, c[19].Allowed = c[18].Answered+s, c[18].Answered+s+ms, false
		}, 9 * s, false},
		{"a late check's unit does not come back", true, func(c []Check) {
			c[19].Allowed, c[19].Answered, c[20].Allowed = false, c[19].Asked+80*ms, false
		}, 9 * s, true},
		{"a late check's unit comes back after the last snapshots", true, func(c []Check) {
			c[9].Answered, c[9].Allowed, c[9].Source, c[20].Allowed = c[9].Asked+80*ms, false, weir.FailedClosed, false
		}, 6 * s, false},
		{"a late check's unit comes back before the last snapshots", true, func(c []Check) {
			c[9].Answered, c[9].Allowed, c[9].Source, c[20].Allowed = c[9].Asked+80*ms, false, weir.FailedClosed, false
		}, 9 * s, true},
		{"a lease is gone", false, func(c []Check) { c[19].Allowed, c[20].Allowed = false, false }, 9 * s, false},
		{"a node that heard no owner denies", true, func(c []Check) { c[19].Allowed, c[19].Source, c[20].Allowed = false, weir.Budget, true }, 9 * s, false},
	} {
		l := weir.Limit{Name: "day", Algorithm: weir.FixedWindow, Rate: 20, Per: 24 * time.Hour, Partition: weir.FailOpen, NoLeases: c.noLeases}
		sc := told(l, Fault{At: 9 * s, Kind: FaultKill, Nodes: all}, Fault{At: 10 * s, Kind: FaultStart, Nodes: all})
		sc.Snapshots = s
		j := journal(sc, spread(10, s, 7*s), spread(10, 20*s, 30*s), spread(1, 35*s, 36*s))
		j.Stops = []Stop{{At: 9 * s, Saved: c.saved}}
		c.change(j.Checks)
		require.Equal(t, c.broken, len(brokenOf(j, keptInvariant)) > 0, "%s: %v", c.name, brokenOf(j, keptInvariant))
	}
}

// Where packets are lost an owner may be late, and so may the member that has its copy. The one
// that stands in then may know of no unit.
func TestADurableLimitAllowsWhatAStandInGrantsBeyondItAndNoMore(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const loss = 0.01
	last := func(source weir.Source, at time.Duration) func([]Check) {
		return func(c []Check) { c[20].Asked, c[20].Answered, c[20].Source = at, at+80*ms, source }
	}
	for _, c := range []struct {
		name   string
		loss   float64
		change func(checks []Check) // of 20 from 20 s to 30 s, and one more
		broken bool
	}{
		{"a stand-in grants one more", loss, last(weir.StandIn, 36*s), false},
		{"it does where nothing is lost", 0, last(weir.StandIn, 36*s), true},
		{"the owner does", loss, last(weir.Forwarded, 36*s), true},
		{"the owner has yet to hear of a grant", loss, func(c []Check) { c[19].Source = weir.StandIn }, false},
		{"the owner has heard of a grant", loss, func(c []Check) { c[5].Source = weir.StandIn }, true},
	} {
		sc := told(weir.Limit{Name: "day", Algorithm: weir.FixedWindow, Rate: 20, Per: 24 * time.Hour, NoLeases: true})
		sc.Snapshots, sc.Network.Loss = s, c.loss
		j := journal(sc, spread(20, 20*s, 30*s), spread(1, 30*s, 31*s))
		c.change(j.Checks)
		require.Equal(t, c.broken, len(brokenOf(j, keptInvariant)) > 0, "%s: %v", c.name, brokenOf(j, keptInvariant))
	}
}

// Owners are late where packets are lost, whether all nodes stop or not.
func TestADurableLimitIsHeldToItsBoundWherePacketsAreLost(t *testing.T) {
	for _, replicas := range []int{1, -1} {
		s := scene(5)
		s.Lasts, s.Snapshots, s.Replicas, s.Seed = 10*time.Second, time.Second, replicas, 1
		s.Network = weirtest.Link{Latency: 146 * time.Microsecond, Loss: 0.01}
		s.Limits = []weir.Limit{{Name: "day", Algorithm: weir.FixedWindow, Rate: 20, Per: 24 * time.Hour, Partition: weir.FailClosed}}
		s.Loads = []Load{{Limit: "day", Keys: 60, Rate: 400}}
		j, err := run(t, s)
		require.NoError(t, err)
		require.Empty(t, judge(j), "%d replicas", replicas)
	}
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
				require.Len(t, brokenOf(j, healedInvariant), more)
				if durable(&c.l) {
					require.Len(t, brokenOf(j, keptInvariant), more)
				}
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

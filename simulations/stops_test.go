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

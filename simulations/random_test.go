package main

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	countsync "github.com/weir-go/weir/sync"
)

func TestRandomScenariosReadBackFromTheirFiles(t *testing.T) {
	for _, draw := range []func(seed uint64) *Scenario{randomScenario, randomPlanet} {
		for seed := range uint64(100) {
			s := draw(seed)
			text := s.yaml()
			again, err := parse(s.Name, text)
			require.NoError(t, err, "seed %d\n%s", seed, text)
			require.Equal(t, s, again, "seed %d\n%s", seed, text)
			require.Equal(t, s, draw(seed), "seed %d", seed)
		}
	}
}

// thousand returns the random scenarios of the first thousand seeds. Tests must not
// change them.
var thousand = sync.OnceValue(func() (all []*Scenario) {
	for seed := range uint64(1000) {
		all = append(all, randomScenario(seed))
	}
	return all
})

func TestRandomScenariosEndWithWholeRegions(t *testing.T) {
	for seed, s := range thousand() {
		lasts := 60 * time.Second
		if s.Snapshots > 0 {
			lasts += stopsTake
		}
		if more := s.Lasts - lasts; s.Snapshots > 0 && (more == leaveWithin || more == 2*leaveWithin) {
			lasts = s.Lasts // leaves that last long
		}
		require.Equal(t, lasts, s.Lasts, "seed %d", seed)
		require.True(t, len(s.Nodes) >= 3 && len(s.Nodes) <= 9, "seed %d", seed)
		hosts, cut := s.beginning().hosts, false
		for _, f := range s.Faults {
			require.LessOrEqual(t, f.At, lasts-24*time.Second, "seed %d", seed)
			switch f.Kind {
			case FaultSplit, FaultCut, FaultLink:
				cut = true
			case FaultHeal:
				cut = false
			case FaultSkew, FaultSlow, FaultLose, FaultRevert:
			default:
				for _, name := range f.Nodes {
					hosts[name] = transitions[f.Kind].makes
				}
			}
		}
		require.False(t, cut, "seed %d", seed)
		runs := make(map[string]int)
		for _, n := range s.Nodes {
			require.NotEqual(t, frozen, hosts[n.Name], "seed %d", seed)
			if hosts[n.Name] == running {
				runs[n.Region]++
			}
		}
		for region, n := range runs {
			require.GreaterOrEqual(t, n, 2, "seed %d, region %q", seed, region)
		}
		require.Len(t, runs, len(s.regions()), "seed %d", seed)
	}
}

func TestRandomScenariosHaveFewChecks(t *testing.T) {
	for seed, s := range thousand() {
		most := 400 * s.Lasts.Seconds()
		if slices.ContainsFunc(s.Limits, func(l weir.Limit) bool { return l.Name == "many" }) { // one in nine
			most += manyAsks
		}
		require.LessOrEqual(t, (&dice{s: s}).countChecks(), most, "seed %d", seed)
	}
}

func TestRandomScenariosHaveEveryFault(t *testing.T) {
	faults := make(map[FaultKind]int)
	var holds, clients, reservations, adversaries, bans, pauses, criticals, joinsInSplits, threeSides, regions, gossips, cut, breaks, capped, full int
	tally := func(n *int, has bool) {
		if has {
			*n++
		}
	}
	for _, s := range thousand() {
		split := false
		tally(&cut, slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == FaultSplit || f.Kind == FaultCut }))
		tally(&breaks, slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Breaks }))
		for _, f := range s.Faults {
			faults[f.Kind]++
			split = f.Kind != FaultHeal && (split || f.Kind == FaultSplit)
			tally(&threeSides, f.Kind == FaultSplit && len(f.Sides) == 3)
			tally(&joinsInSplits, f.Kind == FaultStart && split)
		}
		for _, l := range s.Loads {
			tally(&adversaries, l.Adversary)
			tally(&clients, l.TTL > 0)
			tally(&criticals, l.Critical)
			tally(&pauses, l.Pauses > 0)
			tally(&holds, l.TTL == 0 && l.Keeps > 0)
			tally(&reservations, l.Settles > 0)
		}
		tally(&regions, s.Nodes[0].Region != "")
		tally(&gossips, s.Gossip)
		tally(&full, s.MaxKeys > 0)
		tally(&bans, slices.ContainsFunc(s.Limits, func(l weir.Limit) bool { return l.Ban != (weir.Ban{}) }))
		tally(&capped, s.Caps != (countsync.Caps{}))
	}
	for kind := FaultSplit; kind <= FaultSlow; kind++ {
		require.Greater(t, faults[kind], 50, kind)
	}
	require.Greater(t, adversaries, 500)
	require.Greater(t, bans, 100)
	require.Greater(t, pauses, 100)
	require.Greater(t, criticals, 150)
	require.Greater(t, joinsInSplits, 100)
	require.Greater(t, threeSides, 100)
	require.Greater(t, regions, 20)
	require.InDelta(t, 20, gossips, 10)
	require.InDelta(t, 250, holds, 60)
	require.InDelta(t, 250, clients, 60)
	require.InDelta(t, 250, reservations, 60)
	require.InDelta(t, cut/4, breaks, 40)
	require.Greater(t, capped, 100)
	require.InDelta(t, 56, full, 20)
}

// Rounding of a share, of a sixteenth, or of a unit in the estimate of a window affects
// limits of few units most.
func TestThirdOfRandomLimitsHaveFewUnits(t *testing.T) {
	limits, few := 0, 0
	ones := make(map[weir.Algorithm]map[weir.PartitionPolicy]int)
	for _, s := range thousand() {
		for _, l := range s.Limits {
			if limits++; l.Rate <= 10 {
				few++
			}
			if ones[l.Algorithm] == nil {
				ones[l.Algorithm] = make(map[weir.PartitionPolicy]int)
			}
			if l.Rate == 1 {
				ones[l.Algorithm][l.Partition]++
			}
		}
	}
	require.Greater(t, 3*few, limits)
	for a := weir.SlidingWindow; a <= weir.LeakyBucket; a++ {
		for p := weir.MajorityShare; p <= weir.FailClosed; p++ {
			require.Positive(t, ones[a][p], "%v of one unit, %v", a, p)
		}
	}
}

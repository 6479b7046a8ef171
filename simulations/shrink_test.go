package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// shrunk shrinks a scenario, and requires that shrink keeps its promises.
func shrunk(t *testing.T, s *Scenario, breaks func(*Scenario) bool) (least *Scenario, tries int) {
	before := s.clone()
	least = shrink(s, func(s *Scenario) bool {
		tries++
		require.True(t, s.valid(), "seed %d", s.Seed)
		require.True(t, slices.IsSortedFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) }))
		return breaks(s)
	})
	require.Equal(t, before, s, "seed %d: the scenario given was changed", s.Seed)
	require.True(t, least.valid(), "seed %d", s.Seed)
	require.True(t, breaks(least))
	require.LessOrEqual(t, tries, maxTries)
	return least, tries
}

// hasFault reports whether a fault of a kind hits a node, or any node if the name is empty.
func hasFault(s *Scenario, kind FaultKind, node string) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool {
		return f.Kind == kind && (node == "" || slices.Contains(f.Nodes, node))
	})
}

func TestShrinkKeepsOnlyNeededParts(t *testing.T) {
	found := 0
	for seed := range uint64(testenv.PickFull(t, 20, 200)) {
		s := randomScenario(seed)
		breaks := func(s *Scenario) bool {
			return hasFault(s, FaultSplit, "") && hasFault(s, FaultStart, "a") && len(s.Loads) > 0
		}
		if !breaks(s) {
			continue
		}
		found++
		least, _ := shrunk(t, s, breaks)
		require.LessOrEqual(t, len(least.Faults), 3, "seed %d\n%s", seed, least.yaml()) // the start needs an earlier kill or leave
		require.Len(t, least.Nodes, 2, "seed %d\n%s", seed, least.yaml())
		require.Len(t, least.Limits, 1, "seed %d\n%s", seed, least.yaml())
		require.Len(t, least.Loads, 1, "seed %d\n%s", seed, least.yaml())
		require.Zero(t, least.Replicas+least.Expect+int(least.Timeout+least.Forget), "seed %d\n%s", seed, least.yaml())
		for _, f := range least.Faults {
			require.Zero(t, f.At%(100*time.Millisecond), "seed %d\n%s", seed, least.yaml())
		}
	}
	require.Greater(t, found, testenv.PickFull(t, 0, 10))
}

func TestShrinkGivesUpInTime(t *testing.T) {
	for seed := range uint64(testenv.PickFull(t, 1, 20)) {
		s := randomScenario(seed)
		least, _ := shrunk(t, s, func(o *Scenario) bool { return o.equal(s) })
		require.Equal(t, s, least, "seed %d", seed)
	}
}

func TestShrinkReducesScenarioThatAlwaysFails(t *testing.T) {
	for seed := range uint64(5) {
		least, tries := shrunk(t, randomScenario(seed), func(*Scenario) bool { return true })
		require.Len(t, least.Nodes, 1, "seed %d", seed)
		require.Empty(t, least.Faults, "seed %d", seed)
		require.Less(t, tries, 100, "seed %d", seed)
	}
}

func TestShrinkShortensAndRounds(t *testing.T) {
	s := randomScenario(1)
	s.Faults = []Fault{{At: 12345678912, Kind: FaultKill, Nodes: []string{"a"}}}
	least, _ := shrunk(t, s, func(s *Scenario) bool { return hasFault(s, FaultKill, "a") })
	require.Equal(t, []Fault{{At: 12 * time.Second, Kind: FaultKill, Nodes: []string{"a"}}}, least.Faults)
	require.Less(t, least.Lasts, 20*time.Second)
	require.Equal(t, weirtest.Link{Latency: s.Network.Latency}, least.Network)
}

func TestReplayHintWarnsThatGossipRunsDiffer(t *testing.T) {
	s := randomScenario(1)
	s.Gossip = true
	least, _ := shrunk(t, s, func(*Scenario) bool { return true })
	require.False(t, least.Gossip)
	require.Equal(t, "Replay it with", least.replayHint())

	least, _ = shrunk(t, s, func(s *Scenario) bool { return s.Gossip })
	require.Contains(t, least.About, "it broke an invariant, and no simpler scenario that was tried did")
	require.Contains(t, least.replayHint(), "Its runs differ")
}

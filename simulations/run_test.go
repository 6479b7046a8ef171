package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// newScene returns a scenario of this number of nodes "a", "b" ..., with a limit of 200 a
// second and callers that ask for twice as much.
func newScene(nodes int, faults ...Fault) *Scenario {
	s := &Scenario{
		Name: "scene", Seed: 1, Lasts: 30 * time.Second,
		Network: weirtest.Link{Latency: 500 * time.Microsecond, Jitter: time.Millisecond},
		Limits:  []weir.Limit{{Name: "calls", Algorithm: weir.SlidingLog, Rate: 200, Per: time.Second}},
		Loads:   []Load{{Limit: "calls", Rate: 400}},
		Faults:  faults,
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, Node{Name: string(rune('a' + i))})
	}
	return s
}

// newScenes returns scenarios with every kind of fault, except those of snapshots.
func newScenes() map[string]*Scenario {
	healthy := newScene(3)
	split := newScene(5,
		Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}},
		Fault{At: 20 * time.Second, Kind: FaultHeal})
	split.Limits = append(split.Limits, weir.Limit{Name: "logins", Algorithm: weir.TokenBucket, Rate: 50, Per: 10 * time.Second, Burst: 20, Partition: weir.FairShare})
	split.Loads = append(split.Loads, Load{Limit: "logins", Keys: 20, Zipf: 1.2, Rate: 100}, Load{Limit: "logins", Adversary: true, Begins: 3 * time.Second})
	crash := newScene(4,
		Fault{At: 8 * time.Second, Kind: FaultKill, Nodes: []string{"b"}},
		Fault{At: 12 * time.Second, Kind: FaultStart, Nodes: []string{"b"}},
		Fault{At: 18 * time.Second, Kind: FaultKill, Nodes: []string{"c"}})
	deploy := newScene(3,
		Fault{At: 5 * time.Second, Kind: FaultStart, Nodes: []string{"d"}},
		Fault{At: 8 * time.Second, Kind: FaultLeave, Nodes: []string{"a"}},
		Fault{At: 9 * time.Second, Kind: FaultStart, Nodes: []string{"a"}},
		Fault{At: 15 * time.Second, Kind: FaultLeave, Nodes: []string{"b"}},
		Fault{At: 16 * time.Second, Kind: FaultStart, Nodes: []string{"b"}})
	deploy.Nodes = append(deploy.Nodes, Node{Name: "d", Later: true})
	frozen := newScene(3,
		Fault{At: 5 * time.Second, Kind: FaultFreeze, Nodes: []string{"a"}},
		Fault{At: 9 * time.Second, Kind: FaultThaw, Nodes: []string{"a"}},
		Fault{At: 12 * time.Second, Kind: FaultFreeze, Nodes: []string{"b"}},
		Fault{At: 13 * time.Second, Kind: FaultSkew, Nodes: []string{"c"}, By: -3 * time.Second},
		Fault{At: 22 * time.Second, Kind: FaultThaw, Nodes: []string{"b"}})
	links := newScene(4,
		Fault{At: 4 * time.Second, Kind: FaultCut, From: "a", To: "b"},
		Fault{At: 8 * time.Second, Kind: FaultCut, From: "", To: "c"},
		Fault{At: 12 * time.Second, Kind: FaultHeal},
		Fault{At: 14 * time.Second, Kind: FaultLink, From: "d", Link: weirtest.Link{Latency: 30 * time.Millisecond, Jitter: 10 * time.Millisecond, Loss: 0.1}},
		Fault{At: 22 * time.Second, Kind: FaultHeal})
	regions := newScene(6, Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c"}}})
	for i := range regions.Nodes {
		regions.Nodes[i].Region = []string{"east", "west"}[i/3]
	}
	slow := newScene(5,
		Fault{At: 2 * time.Second, Kind: FaultSlow, Nodes: []string{"a", "b", "c", "d", "e"}, Pauses: 60 * time.Millisecond, Every: 100 * time.Millisecond},
		Fault{At: 8 * time.Second, Kind: FaultKill, Nodes: []string{"b"}},
		Fault{At: 14 * time.Second, Kind: FaultSlow, Nodes: []string{"a", "c"}, Pauses: 200 * time.Millisecond, Every: 700 * time.Millisecond},
		Fault{At: 20 * time.Second, Kind: FaultSlow, Nodes: []string{"c", "d"}})
	hasty := newScene(5) // a round trip can take longer than the wait for an owner
	hasty.Timeout, hasty.Network = 10*time.Millisecond, weirtest.Link{Latency: 1900 * time.Microsecond, Jitter: 900 * time.Microsecond}
	return map[string]*Scenario{
		"hasty": hasty, "healthy": healthy, "split": split, "crash": crash, "deploy": deploy, "frozen": frozen, "links": links, "regions": regions, "slow": slow,
	}
}

// requireAccounted requires that, at the end of the run, each key of the witness limit has
// one owner, and that the count of the owner is the number of spent units, except for units
// that crashes may have lost or restored.
func requireAccounted(t *testing.T, j *Journal) {
	t.Helper()
	t.Log(j.Took, len(j.Checks))
	require.Empty(t, j.Unsettled)
	require.True(t, slices.ContainsFunc(j.Ends, func(e Ending) bool { return e.Reset > 0 }))
	for _, e := range j.Ends {
		require.Positive(t, e.Granted)
		require.Len(t, e.Owners, 1, "%+v", e)
		require.GreaterOrEqual(t, e.Used, e.Spent-e.Lost, "%+v", e)
		require.LessOrEqual(t, e.Used, e.Spent+e.Regained+e.Stale, "%+v", e)
		require.GreaterOrEqual(t, e.Reset, e.Known, "%+v", e)
		require.True(t, e.Reset == 0 || e.Key%witnessKeys < witnessForgets, "%+v", e)
		if e.Replica >= 0 {
			require.Equal(t, e.Used, e.Replica, "%+v", e)
		}
	}
}

func TestRunAccountsForEveryUnit(t *testing.T) {
	t.Parallel()
	// Only the faults of a scene cause decisions with this source.
	sources := map[string]weir.Source{"split": weir.Budget, "regions": weir.Budget, "crash": weir.StandIn, "frozen": weir.StandIn, "links": weir.Relayed}
	requireStruck := func(t *testing.T, name string, j *Journal) {
		if source, found := sources[name]; found {
			require.True(t, slices.ContainsFunc(j.Checks, func(c Check) bool { return c.Source == source }), "no check was decided as %v", source)
		}
	}
	for name, s := range newScenes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := playAside(t, s)
			requireAccounted(t, first)
			requireStruck(t, name, first)
			require.True(t, len(first.Starts) > 0 && first.Starts[0] < 0, "nodes run from the beginning, and began to start at %v", first.Starts)
			if !testenv.Race && testenv.IsFull(t) { // TestPlayerPlaysLikeThisProcess and TestRegionRunReplaysFromItsSeed replay as well; the race detector has the scheduler pick at random
				requireReplays(t, s, first)
			}
		})
		t.Run(name+", gossip", func(t *testing.T) {
			t.Parallel()
			if name != "split" {
				testenv.SkipUnlessFull(t, "TestRunAccountsForEveryUnit/"+name+" with simulated membership")
			}
			gossip := s.clone()
			gossip.Gossip = true
			j := playAside(t, gossip)
			requireAccounted(t, j)
			requireStruck(t, name, j)
		})
	}
}

// A decision of Wait reaches the caller that asks for it, and no other caller.
func TestLastDecisionOfWaitIsRecorded(t *testing.T) {
	var last weir.Decision
	ctx := context.WithValue(t.Context(), lastDecision{}, &last)
	for _, source := range []weir.Source{weir.Budget, weir.Owner} {
		lastDecision{}.Decided(ctx, weir.DecisionEvent{Decision: weir.Decision{Source: source}})
		lastDecision{}.Decided(t.Context(), weir.DecisionEvent{Decision: weir.Decision{Source: weir.StandIn}})
		require.Equal(t, source, last.Source)
	}
}

package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCrowdAgreesAtABoundedCost, in package simulations, plays crashes, freezes, splits and joins of
// large clusters.

func crowdName(i int) string { return fmt.Sprintf("n%04d", i) }

func crowdNames(n int) (names []string) {
	for i := range n {
		names = append(names, crowdName(i))
	}
	return names
}

// arranged returns the table of the node self, whose name is in names, and the members that the node has
// chosen to watch.
func arranged(self string, names []string) (c *Connectivity, chosen []string) {
	c = NewConnectivity(self)
	c.SetMembers(names)
	c.Arrange(names, len(names), atMS(0))
	return c, c.chosen()
}

// chosen returns the members that this node has chosen to watch.
func (c *Connectivity) chosen() (names []string) {
	for _, name := range c.names {
		if _, chosen := c.IsWatched(name); chosen {
			names = append(names, name)
		}
	}
	return names
}

// In a large cluster of any size, a node watches about eight members, and these members watch the node.
func TestNeighborsWatchEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := crowdNames(rapid.IntRange(smallCluster+1, 200).Draw(t, "members"))
		base := rapid.SampledFrom(names).Draw(t, "base")
		c, neighbors := arranged(base, names)
		if len(neighbors) < 2 || len(neighbors) > 2*cycles {
			t.Fatalf("%d neighbors", len(neighbors))
		}
		for _, name := range neighbors {
			if _, watched := arranged(name, names); !slices.Contains(watched, base) {
				t.Fatalf("%s does not watch %s", name, base)
			}
		}
		for _, name := range names {
			c.RecordFailure(name, atMS(1))
		}
		c.Arrange(names, len(names), atMS(1))
		require.LessOrEqual(t, len(c.chosen()), 2*cycles*(maxTried+1), "a node without connections")
		require.GreaterOrEqual(t, len(c.chosen()), min(len(names)-1, maxTried+1))
	})
}

// This node watches a connected member for 5 s after the member has ceased to be a neighbor. It watches a
// member that has chosen to watch this node until 3 s after the last ping of the member.
func TestFormerNeighborIsWatchedFor5s(t *testing.T) {
	names := crowdNames(40)
	c := NewConnectivity(names[0])
	arrange := func(size, ms int) {
		c.SetMembers(names[:size])
		c.Arrange(names[:size], size, atMS(ms))
	}
	arrange(20, 0)
	var former string
	for _, former = range c.chosen() {
		c.RecordPing(former, 1, atMS(1))
		c.RecordPong(former, 1, atMS(1))
		if arrange(40, 2); !c.members[former].chosen {
			break
		}
		arrange(20, 3)
	}
	for _, step := range []struct {
		ms      int
		event   string
		watched bool
		proven  bool // the row of this node lists the connection
	}{
		{10, "", true, true}, {5001, "", true, true}, {5010, "", false, false},
		{6000, "watches", true, false}, {6001, "pong", true, true}, {8999, "", true, true}, {9000, "", false, false},
	} {
		switch step.event {
		case "watches":
			require.True(t, c.RecordWatcher(former, atMS(step.ms)))
		case "pong":
			c.RecordPing(former, uint64(step.ms), atMS(step.ms))
			c.RecordPong(former, uint64(step.ms), atMS(step.ms))
		}
		arrange(40, step.ms)
		watched, chosen := c.IsWatched(former)
		require.Equal(t, step.watched, watched, step.ms)
		require.False(t, chosen)
		require.Equal(t, step.proven, slices.Contains(c.rows[c.id].Connected, MemberID(former)), step.ms)
	}
}

// A view of 1,000 members is built in less than 5 ms.
func BenchmarkConnectionsOfThousandMembers(b *testing.B) {
	names := crowdNames(1000)
	c, _ := arranged(names[0], names)
	for _, name := range names {
		o, _ := arranged(name, names)
		for k, to := range names {
			if watched, _ := o.IsWatched(to); watched {
				o.RecordPing(to, uint64(k+1), atMS(0))
				o.RecordPong(to, uint64(k+1), atMS(0))
			}
		}
		c.Merge(name, rowsOf(o))
	}
	b.ReportAllocs()
	for b.Loop() {
		c.SetMembers(names)
		c.Arrange(names, len(names), atMS(0))
		c.Connections(names)
	}
}

// Rows keep the indexes of their members, which change with the roster.
func TestConnectionsFollowChangesOfRoster(t *testing.T) {
	c := NewConnectivity("b")
	connect := func(number uint64, to ...string) {
		r := Row{About: MemberID("d"), Number: number}
		for _, name := range to {
			r.Connected = append(r.Connected, MemberID(name))
		}
		slices.Sort(r.Connected)
		c.Merge("d", []Row{r})
	}
	expect := func(names string, want ...int) {
		t.Helper()
		all := strings.Split(names, "")
		c.SetMembers(all)
		for range 2 {
			c.Arrange(all, len(all), atMS(0))
			require.Equal(t, want, c.Connections(all).Connected[slices.Index(all, "d")])
		}
		require.Equal(t, []int{0}, c.Connections([]string{"b", "d"}).Connected[1], "a roster that was not arranged")
		require.Equal(t, want, c.Connections(all).Connected[slices.Index(all, "d")])
	}
	connect(1, "b", "c")
	expect("bcd", 0, 1)
	expect("abcd", 1, 2)
	expect("abd", 1)
	connect(2, "a", "b")
	expect("abd", 0, 1)
	expect("bcd", 0)
}

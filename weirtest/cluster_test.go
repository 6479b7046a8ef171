package weirtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// This example deploys one node of three. A test should use a testing/synctest bubble,
// where waiting takes no real time and answers arrive at exact times.
func ExampleCluster() {
	ctx := context.Background()
	cluster, err := weirtest.NewCluster(ctx, weirtest.Options{
		Config: weir.Config{
			Timeout: 10 * time.Second, // the example runs in real time, and a busy machine may be slow
			Logger:  slog.New(slog.DiscardHandler),
		},
	})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	logins := weir.Limit{Name: "logins", Rate: 9, Per: time.Hour, Partition: weir.FairShare}
	try := func(times int, nodes ...string) {
		admitted := 0
		for i := range times {
			limiter, err := cluster.Node(nodes[i%len(nodes)]).Limiter(logins)
			if err != nil {
				panic(err)
			}
			if d, err := limiter.Allow(ctx, "ada"); err == nil && d.Allowed {
				admitted++
			}
		}
		fmt.Println(nodes, "admit", admitted, "of", times)
	}

	try(3, "a", "b", "c")
	if err := cluster.Leave(ctx, "c"); err != nil {
		panic(err)
	}
	try(3, "a", "b")
	if _, err := cluster.Start(ctx, "c"); err != nil {
		panic(err)
	}
	if err := cluster.Await(ctx, cluster.Settled); err != nil {
		panic(err)
	}
	try(9, "a", "b", "c")
	// Output:
	// [a b c] admit 3 of 3
	// [a b] admit 3 of 3
	// [a b c] admit 3 of 9
}

// newCluster returns a cluster in virtual time, and closes it at the end of the test.
func newCluster(t *testing.T, o weirtest.Options) *weirtest.Cluster {
	t.Helper()
	o.Config.Logger = slog.New(slog.DiscardHandler)
	c, err := weirtest.NewCluster(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// countAdmitted sends checks to the nodes in turn, and returns the number of admitted
// checks.
func countAdmitted(t *testing.T, c *weirtest.Cluster, l weir.Limit, key string, times int, nodes ...string) (n int) {
	t.Helper()
	for i := range times {
		limiter, err := c.Node(nodes[i%len(nodes)]).Limiter(l)
		require.NoError(t, err)
		d, err := limiter.Allow(t.Context(), key)
		require.NoError(t, err)
		if d.Allowed {
			n++
		}
	}
	return n
}

// ownerOf returns the host whose node owns a key.
func ownerOf(t *testing.T, c *weirtest.Cluster, l weir.Limit, key string) string {
	t.Helper()
	for _, name := range c.Names() {
		limiter, err := c.Node(name).Limiter(l)
		require.NoError(t, err)
		if limiter.Owner(key).Self {
			return name
		}
	}
	t.Fatal("no node owns the key")
	return ""
}

func awaitSettled(t *testing.T, c *weirtest.Cluster, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, c.Await(ctx, c.Settled), "the nodes do not agree again within %v", within)
}

// runBothWays runs a test in virtual time, with simulated membership and with the code that
// nodes run in production.
func runBothWays(t *testing.T, test func(t *testing.T, o weirtest.Options)) {
	for name, gossip := range map[string]bool{"simulated": false, "gossip": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, weirtest.Options{Gossip: gossip}) })
		})
	}
}

func TestSidesOfSplitDivideLimit(t *testing.T) {
	runBothWays(t, func(t *testing.T, o weirtest.Options) {
		c := newCluster(t, o) // nodes a, b and c
		limit := weir.Limit{Name: "exports", Rate: 90, Per: time.Hour, Partition: weir.FairShare}
		require.Equal(t, 12, countAdmitted(t, c, limit, "acme", 12, "a", "b", "c"))
		time.Sleep(time.Second)

		c.Cut([]string{"a", "b"}, []string{"c"})
		time.Sleep(3 * time.Second) // a second until the silence is noticed, and another until a stand-in answers
		large := countAdmitted(t, c, limit, "fresh", 200, "a", "b")
		small := countAdmitted(t, c, limit, "fresh", 200, "c")
		require.Equal(t, 60, large, "two of three nodes have two thirds")
		require.Equal(t, 30, small, "the third node has the rest")
		require.LessOrEqual(t, countAdmitted(t, c, limit, "acme", 200, "a", "b", "c"), 90-12)

		c.Heal()
		awaitSettled(t, c, 30*time.Second)
		time.Sleep(50 * time.Millisecond) // the exchange of counts between the sides takes a round trip
		require.Zero(t, countAdmitted(t, c, limit, "fresh", 30, "a", "b", "c"), "the units that both sides spent count")
	})
}

func TestSkewStepsClockOfOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weirtest.Options{})
		limit := weir.Limit{Name: "exports", Algorithm: weir.FixedWindow, Rate: 90, Per: time.Hour}
		counts := ownerOf(t, c, limit, "acme")
		for _, name := range c.Names() {
			if name != counts {
				c.Skew(name, time.Hour) // these nodes only ask
			}
		}
		require.Equal(t, 90, countAdmitted(t, c, limit, "acme", 100, "a", "b", "c"))
		c.Skew(counts, time.Hour)
		time.Sleep(time.Second) // other nodes may cache denials of the owner for this time
		require.Equal(t, 90, countAdmitted(t, c, limit, "acme", 100, "a", "b", "c"), "another hour, by the owner's clock")
		c.Skew(counts, -30*time.Minute)
		require.Zero(t, countAdmitted(t, c, limit, "acme", 100, "a", "b", "c"), "a step back of a clock refills nothing")
		require.True(t, c.Settled())
	})
}

func TestRegionsKeepSeparateCounts(t *testing.T) {
	runBothWays(t, func(t *testing.T, o weirtest.Options) {
		o.Nodes = []string{"oslo1", "oslo2", "rome1", "rome2"}
		o.Regions = map[string]string{"oslo1": "oslo", "oslo2": "oslo", "rome1": "rome", "rome2": "rome", "rome3": "rome"}
		c := newCluster(t, o)
		_, err := c.Start(t.Context(), "rome3")
		require.NoError(t, err)
		awaitSettled(t, c, 30*time.Second)
		limit := weir.Limit{Name: "exports", Rate: 90, Per: time.Hour}
		require.Equal(t, 90, countAdmitted(t, c, limit, "acme", 200, "oslo1", "oslo2"))
		require.Equal(t, 90, countAdmitted(t, c, limit, "acme", 200, "rome1", "rome2", "rome3"))
		for name, members := range map[string]int{"oslo1": 2, "rome2": 3} {
			require.Len(t, c.Node(name).Members(), members)
			for _, m := range c.Node(name).Members() {
				require.True(t, strings.HasPrefix(m.Name, name[:4]), "%s sees %s", name, m.Name)
			}
		}
	})
}

func TestHealRestoresLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weirtest.Options{})
		limit := weir.Limit{Name: "exports", Rate: 90, Per: time.Hour}
		took := func(asker string) time.Duration {
			begun := time.Now()
			countAdmitted(t, c, limit, "acme", 1, asker)
			return time.Since(begun)
		}
		counts := ownerOf(t, c, limit, "acme")
		asker := map[string]string{"a": "b", "b": "c", "c": "a"}[counts]
		before := took(asker)
		c.Network().SetLink(asker, counts, weirtest.Link{Latency: 5 * time.Millisecond})
		require.Greater(t, took(asker), before+4*time.Millisecond)
		c.Heal()
		require.InDelta(t, before, took(asker), float64(2*time.Microsecond))
	})
}

func TestClusterRefusesImpossibleCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := weirtest.NewCluster(t.Context(), weirtest.Options{Nodes: []string{"a", "b", "a"}})
		require.ErrorContains(t, err, `"a" twice`)
		_, err = weirtest.NewCluster(t.Context(), weirtest.Options{Nodes: []string{"a", ""}})
		require.ErrorContains(t, err, "the name of the host is empty")
		_, err = weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Timeout: -1}})
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, `starting a node on host "a"`)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = weirtest.NewCluster(ended, weirtest.Options{})
		require.ErrorIs(t, err, context.Canceled)

		c := newCluster(t, weirtest.Options{})
		_, err = c.Start(t.Context(), "b")
		require.ErrorContains(t, err, `"b" runs a node already`)
		require.ErrorContains(t, c.Leave(t.Context(), "d"), `"d" runs no node`)
		c.Kill("d")
		require.Equal(t, []string{"a", "b", "c"}, c.Names())

		c.Cut([]string{"a", "b", "c"}, []string{"d"})
		begun := time.Now()
		go func() {
			time.Sleep(100 * time.Millisecond)
			c.Kill("d")
		}()
		_, err = c.Start(t.Context(), "d") // the new node waits for other nodes, to which it has no link
		require.Error(t, err)
		require.Less(t, time.Since(begun), 3*time.Second)
		require.Nil(t, c.Node("d"))
		require.NoError(t, c.Close())
		require.Empty(t, c.Names())
		_, err = c.Start(t.Context(), "e")
		require.ErrorContains(t, err, "the Cluster is closed")
	})
}

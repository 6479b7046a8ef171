package clustertests

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/weirtest"
)

// warnings records the log lines at Warn and above.
type warnings struct{ lab.Text }

func (w *warnings) about(name string) []string { return w.Lines("limit=" + name + " ") }

// logged starts a cluster in virtual time and returns it with its warnings.
func logged(t *testing.T, o weirtest.Options) (*weirtest.Cluster, *warnings) {
	t.Helper()
	log := new(warnings)
	o.Config.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := weirtest.NewCluster(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, log
}

func conflicts(c *weirtest.Cluster) (sum uint64) {
	for _, name := range c.Names() {
		sum += c.Node(name).Stats().Conflicts
	}
	return sum
}

func askAt(t *testing.T, c *weirtest.Cluster, node string, l weir.Limit, key string) weir.Decision {
	t.Helper()
	limiter, err := c.Node(node).Limiter(l)
	require.NoError(t, err)
	d := allowed(t, limiter, key, 1)
	return d
}

func TestConflictingNumbersAreLoggedOnceAndCounted(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		c, log := logged(t, weirtest.Options{Gossip: gossip})
		api := weir.Limit{Name: "api", Rate: 1000, Per: time.Minute}
		wider := weir.Limit{Name: "api", Rate: 2000, Per: time.Minute, Partition: weir.FairShare}
		for range 60 {
			require.True(t, askAt(t, c, "a", api, "ada@example.com").Allowed)
			require.True(t, askAt(t, c, "b", wider, "ada@example.com").Allowed)
			require.True(t, askAt(t, c, "c", weir.Limit{Name: "other", Rate: 1, Per: time.Minute, Varies: true}, time.Now().String()).Allowed)
			time.Sleep(time.Second)
		}
		lines := log.about("api")
		require.Len(t, lines, 2, "each of the two nodes logs it once")
		for _, line := range lines {
			for _, part := range []string{"level=WARN", "version=0", "1000 per 1m, sliding_window, regional, majority_share", "2000 per 1m, sliding_window, regional, fair_share"} {
				require.Contains(t, line, part)
			}
			require.NotContains(t, line, "ada@")
		}
		require.Contains(t, lines[0]+lines[1], "member=a-")
		require.Contains(t, lines[0]+lines[1], "member=b-")
		require.Positive(t, c.Node("a").Stats().Conflicts)
		require.Positive(t, c.Node("b").Stats().Conflicts)
		require.Zero(t, c.Node("c").Stats().Conflicts)

		before := conflicts(c)
		time.Sleep(time.Minute)
		require.Greater(t, conflicts(c), before, "the conflict is counted as long as the numbers differ")
		wider.Version = 1
		askAt(t, c, "b", wider, "ada@example.com")
		before = conflicts(c)
		time.Sleep(time.Minute)
		require.Equal(t, before, conflicts(c), "the higher Version holds")
		require.Len(t, log.about("api"), 2)
	})
}

func TestConflictingAlgorithmsAreLogged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, log := logged(t, weirtest.Options{})
		askAt(t, c, "a", weir.Limit{Name: "api", Rate: 100, Per: time.Minute}, "k")
		askAt(t, c, "b", weir.Limit{Name: "api", Algorithm: weir.TokenBucket, Rate: 100, Per: time.Minute}, "k")
		time.Sleep(time.Minute)
		lines := log.about("api")
		require.Len(t, lines, 2)
		for _, line := range lines {
			require.Contains(t, line, "100 per 1m, sliding_window")
			require.Contains(t, line, "100 per 1m, burst 100, token_bucket")
		}
	})
}

// The numbers by which a node judges a count may differ from the numbers of the declared limit
// without a conflict. The reasons are shares, parts of a region, windows of a calendar, and
// numbers of an older version.
func TestNoFalseConflictIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		regions := map[string]string{"eu1": "eu", "eu2": "eu", "eu3": "eu", "us1": "us", "us2": "us"}
		c, log := logged(t, weirtest.Options{Nodes: []string{"eu1", "eu2", "eu3", "us1", "us2"}, Regions: regions})
		limits := []weir.Limit{
			{Name: "sliding", Rate: 100, Per: time.Minute},
			{Name: "fair", Rate: 100, Per: time.Minute, Partition: weir.FairShare},
			{Name: "bucket", Algorithm: weir.TokenBucket, Rate: 100, Per: time.Minute, Burst: 7},
			{Name: "daily", Algorithm: weir.FixedWindow, Rate: 100, Calendar: weir.Day},
			{Name: "fixed", Algorithm: weir.FixedWindow, Rate: 100, Per: time.Minute, Scope: weir.Global},
			{Name: "global", Rate: 100, Per: time.Minute, Scope: weir.Global},
			{Name: "level", Algorithm: weir.TokenBucket, Rate: 100, Per: time.Minute, Scope: weir.Global},
		}
		load := func(seconds int) {
			for range seconds {
				for _, name := range c.Names() {
					var asks []weir.Ask
					for _, l := range limits {
						limiter, err := c.Node(name).Limiter(l)
						require.NoError(t, err)
						asks = append(asks, weir.Ask{Limiter: limiter, Key: "k", Shadow: l.Name == "bucket"})
						_, err = limiter.Debit(t.Context(), "k", 1)
						require.NoError(t, err)
					}
					_, err := c.Node(name).AllowAll(t.Context(), asks...)
					require.NoError(t, err)
				}
				time.Sleep(time.Second)
			}
		}
		load(20)
		c.Cut([]string{"eu1", "eu2"}, []string{"eu3"}, []string{"us1"}, []string{"us2"})
		load(20)
		c.Heal()
		load(20)
		c.Kill("eu2")
		load(20)
		_, err := c.Start(t.Context(), "eu2")
		require.NoError(t, err)
		for i := range limits {
			limits[i].Rate, limits[i].Version = 50, 1
		}
		load(30)
		require.Zero(t, conflicts(c))
		for _, l := range limits {
			require.Empty(t, log.about(l.Name))
		}
	})
}

package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

func TestJoinEntryIsUnansweredUntilMemberAnswers(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		h.Host("c")
		accepts, packets, err := h.Host("silent").Network().Listen(t.Context(), "silent:7946") // a server that accepts connections and sends no bytes
		require.NoError(t, err)
		defer accepts.Close()
		defer packets.Close()

		b := startNode(t, h.configure("b", config("b")))
		cfg := h.configure("a", config("a", b))
		cfg.Join = append(cfg.Join, "nobody.invalid", "c:7946", "silent:7946")
		a := startNode(t, cfg)
		require.Equal(t, 1, a.Stats().JoinedCount)
		unanswered := a.Stats().Unanswered
		require.Len(t, unanswered, 3)
		require.NotContains(t, unanswered, b.addr)
		require.Contains(t, unanswered["nobody.invalid"], "does not resolve")
		for _, host := range []string{"c", "silent"} {
			at, err := cfg.Network.LookupHost(t.Context(), host)
			require.NoError(t, err)
			require.Contains(t, unanswered[host+":7946"], at[0])
		}

		startNode(t, h.configure("c", config("c")))
		waitFor(t, 10*time.Second, "c is joined", func() bool { return len(a.Stats().Unanswered) == 2 })
		require.NotContains(t, a.Stats().Unanswered, "c:7946")
	})
}

// A process may not know all addresses that lead to it, but the answer at such an address has its name.
func TestOwnAddressesAreNotInUnanswered(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		at, err := h.Host("a").Network().LookupHost(t.Context(), "a")
		require.NoError(t, err)
		h.SetName("service", "a")
		for advertise, joins := range map[string][][]string{
			"":               {nil, {"a:7946"}, {at[0], at[0] + ":7946", "[::ffff:" + at[0] + "]:7946"}},
			"10.99.0.1:7946": {{"service"}},
		} {
			for _, join := range joins {
				cfg := h.configure("a", config("a"))
				cfg.Advertise, cfg.Join = advertise, join
				a := startNode(t, cfg)
				require.Empty(t, a.Stats().Unanswered, "%q", join)
				require.NoError(t, a.Close())
			}
		}
	})
}

// Start waits only as long as its context allows. Later attempts find the members that Start has not
// found.
func TestUntriedJoinEntryIsUnanswered(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		cfg := h.configure("a", config("a"))
		h.SetName("service", "a")
		own, err := cfg.Network.LookupHost(t.Context(), "a")
		require.NoError(t, err)
		cfg.Advertise, cfg.Join, cfg.Network = own[0]+":7946", []string{"service"}, slowNames{cfg.Network, time.Second}
		c := cluster.NewGossip(cfg)
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		require.NoError(t, c.Start(ctx, mute))
		require.LessOrEqual(t, time.Since(begun), 100*time.Millisecond)
		require.Contains(t, c.Stats().Unanswered, "service")
		time.Sleep(3 * time.Second)
		require.Empty(t, c.Stats().Unanswered, "it stands for this node alone")
	})
}

// slowNames is a network whose lookups are slow.
type slowNames struct {
	cluster.Network
	wait time.Duration
}

func (s slowNames) LookupHost(ctx context.Context, host string) ([]string, error) {
	select {
	case <-time.After(s.wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Network.LookupHost(ctx, host)
}

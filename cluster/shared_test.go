package cluster_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
)

// bridged is a host with an address that other hosts have, too, such as that of docker0. On each host
// the address leads to the host itself.
type bridged struct {
	cluster.Network
	self string
}

const bridge = "172.17.0.1:7946"

func (b bridged) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == bridge {
		addr = b.self + ":7946"
	}
	return b.Network.Dial(ctx, addr)
}

// The join error has the name of the other member, the shared address, and Advertise as the remedy.
func TestSharedAdvertisedAddressIsReported(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		on := func(host string, join ...string) (*node, *lab.Text) {
			log := new(lab.Text)
			cfg := h.configure(host, config(host))
			cfg.Network, cfg.Advertise, cfg.Join = bridged{cfg.Network, host}, bridge, join
			cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
			return startNode(t, cfg), log
		}
		a, _ := on("a")
		b, log := on("b", "a:7946")
		time.Sleep(10 * time.Second) // longer than joinGrace, so that the problem is logged
		for _, said := range []string{b.Stats().JoinError, b.Stats().Unanswered["a:7946"], log.String()} {
			for _, word := range []string{"two members advertise one address", a.name, bridge, "Advertise"} {
				require.Contains(t, said, word)
			}
		}
		require.Equal(t, rosterOf(cluster.Serving, b), b.roster(), "they would not reach each other")
	})
}

func TestOwnAddressInJoinIsLoggedOnce(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		log := new(lab.Text)
		cfg := h.configure("a", config("a"))
		cfg.Network, cfg.Join = bridged{cfg.Network, "a"}, []string{bridge, "a:7946", "b:7946"}
		h.Host("b")
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		startNode(t, cfg)
		time.Sleep(time.Minute)
		var back []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "leads back to this node") {
				back = append(back, line)
			}
		}
		require.Len(t, back, 1, "its own name is not logged")
		require.Contains(t, back[0], bridge)
	})
}

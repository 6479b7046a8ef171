package gossip

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
)

// configOf returns the configuration of a node whose advertised address is addr.
func configOf(addr string) Config {
	roster := detect.NewRoster(detect.Record{Name: "a", Addr: addr}, time.Minute)
	return Config{
		Name: "a", Addr: netip.MustParseAddrPort("127.0.0.1:1"),
		Step:    func(event func(*detect.Roster) detect.Change) { event(roster) },
		Refused: func(string, net.Addr, error) {},
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// Otherwise memberlist would keep, probe and spread a member that the roster does not have.
func TestMemberWithoutRoomIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no time passes, in which the roster would get room
		c := configOf("a:1")
		refused := 0
		c.Refused = func(reason string, from net.Addr, err error) {
			require.ErrorIs(t, err, ErrFull)
			require.Equal(t, "127.1.2.3:9", from.String())
			refused++
		}
		g, err := New(t.Context(), c)
		require.NoError(t, err)
		node := func(name string, seed [16]byte) *memberlist.Node {
			var alive gossiptest.Node
			require.NoError(t, Decode(gossiptest.Alive(name, seed)[1:], &alive))
			return &memberlist.Node{Name: name, Addr: net.IPv4(127, 1, 2, 3), Port: 9, Meta: alive.Meta}
		}
		configured, err := g.config()
		require.NoError(t, err)
		d := delegate{g}
		require.Equal(t, d, configured.Merge)
		for i := range detect.NewMembers {
			n := node(fmt.Sprint("m", i), c.Seed)
			require.NoError(t, configured.Alive.NotifyAlive(n))
			d.NotifyJoin(n)
		}
		require.ErrorIs(t, d.NotifyAlive(node("z", c.Seed)), ErrFull)
		require.Equal(t, 1, refused)
		require.NoError(t, d.NotifyAlive(node("m0", c.Seed)), "a known member")
		require.ErrorIs(t, d.NotifyAlive(node("m0", [16]byte{1})), ErrSeed)
	})
}

func TestLabelDependsOnSeedAndRegion(t *testing.T) {
	require.Equal(t, gossiptest.LabelOf([16]byte{1}, "r"), label([16]byte{1}, "r"))
	require.NotEqual(t, label([16]byte{1}, "r"), label([16]byte{2}, "r"))
	require.NotEqual(t, label([16]byte{1}, "r"), label([16]byte{1}, "s"))
}

func TestLongMetadataIsRefused(t *testing.T) {
	c := configOf(strings.Repeat("a", 600) + ":1")
	_, err := New(t.Context(), c)
	require.ErrorContains(t, err, "Advertise")
}

package cluster

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An address may lead to another node than the member that advertises it. The error names that node,
// and a member that is alive does not count as replaced.
func TestMemberAtWrongAddressIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about    string
		addr     func(a, c *testPeer) string // the address of b in the roster of a
		lives    bool                        // b is connected to a
		err      error
		names    []string
		replaced bool // b counts as replaced
	}{
		{"back to this node, by its own address", func(a, _ *testPeer) string { return a.cfg.Self.Addr }, false, errSelf, []string{"b advertises", "a answers"}, true},
		{"back to this node, by its own address, of a member that lives", func(a, _ *testPeer) string { return a.cfg.Self.Addr }, true, errShared, []string{"b and a advertise"}, false},
		{"back to this node, by another address", func(*testPeer, *testPeer) string { return "172.17.0.1:7946" }, false, errSelf, []string{"b advertises 172.17.0.1:7946", "a answers"}, false},
		{"back to this node, by another address, of a member that lives", func(*testPeer, *testPeer) string { return "172.17.0.1:7946" }, true, errSelf, []string{"b advertises 172.17.0.1:7946", "a answers"}, false},
		{"to another member that has it too", func(_, c *testPeer) string { return c.cfg.Self.Addr }, true, errShared, []string{"b and c advertise"}, false},
		{"to the member that came after it", func(_, c *testPeer) string { return c.cfg.Self.Addr }, false, errName, []string{"it is c"}, true},
		{"to another member by mistake", func(*testPeer, *testPeer) string { return "stale:7946" }, false, errName, []string{"it is c"}, false},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			inMemory(t, func(t *testing.T, lo *loopback) {
				var log lines
				var replaced atomic.Bool
				var dials atomic.Int32
				other := lo.peer(t, "c", nil)
				var a *testPeer
				a = lo.peer(t, "a", nil, func(cfg *peersConfig) {
					cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
					cfg.Replaced = func(name string) { replaced.Store(replaced.Load() || name == "b") }
					dial := cfg.Dial
					cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						dials.Add(1)
						switch addr {
						case "172.17.0.1:7946":
							addr = a.cfg.Self.Addr
						case "stale:7946":
							addr = other.cfg.Self.Addr
						}
						return dial(ctx, addr)
					}
				})
				b := lo.peer(t, "b", nil)
				if c.lives {
					b.set([]Member{b.member(), a.member()})
					eventually(t, time.Second, func() bool { return a.isCalling("b") }, "b does not connect")
				}
				said := b.member()
				said.Addr = c.addr(a, other)
				a.set([]Member{a.member(), said})
				eventually(t, 5*time.Second, func() bool { return log.countLines(c.err.Error()) > 0 }, "it is not logged: %s", &log)
				for _, name := range c.names {
					require.Positive(t, log.countLines(name), "%s: %s", name, &log)
				}
				time.Sleep(5 * dialPace)
				require.Equal(t, c.replaced, replaced.Load())
				require.Less(t, dials.Load(), int32(20), "one every dialPace, for no longer than ten")
			})
		})
	}
}

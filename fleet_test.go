package weir

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

var quiet = slog.New(slog.DiscardHandler)

type decisions = lab.Decisions[Source]

// unanswered returns the result of a test of lab.WhileHealthy in which a member did not answer
// in time.
func unanswered() decisions { return decisions{0: 1} }

// requireOwners skips this attempt of lab.WhileHealthy unless each of the decisions was made by
// the owner, a lease or a pushback. In a fleet, a check is relayed only if a node was
// paused.
func requireOwners(t *testing.T, ds ...Decision) {
	t.Helper()
	decided := make(decisions)
	for _, d := range ds {
		decided[d.Source]++
	}
	if decided.Strayed() || decided[Relayed] > 0 {
		t.Skipf("a member did not answer in time: decided by %v", decided)
	}
}

// fleet starts nodes on loopback sockets, and waits until each node is connected to all other nodes.
// Timeout is two seconds, so that only a fault makes a check time out.
func fleet(t testing.TB, nodes int, edit func(i int, cfg *Config)) []*Node {
	t.Helper()
	var fleet []*Node
	for i := range nodes {
		cfg := Config{Name: fmt.Sprintf("node%d", i), Bind: "127.0.0.1:0", Timeout: 2 * time.Second, Logger: quiet}
		for _, n := range fleet {
			v := n.handover.View()
			cfg.Join = append(cfg.Join, v.Members[v.Self].Addr)
		}
		if edit != nil {
			edit(i, &cfg)
		}
		n, err := Start(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		fleet = append(fleet, n)
	}
	lab.Eventually(t, "all are ready and hear each other", func() bool {
		for _, n := range fleet {
			if !n.Ready() {
				return false
			}
		}
		return areConnected(fleet)
	})
	return fleet
}

func areConnected(nodes []*Node) bool {
	for _, n := range nodes {
		v := n.handover.View()
		if len(v.Members) != len(nodes) {
			return false
		}
		for i := range v.Members {
			for j := range v.Members {
				if !v.IsConnected(i, j) {
					return false
				}
			}
		}
	}
	return true
}

// limiters returns the Limiters of a limit, in the order of the nodes.
func limiters(t testing.TB, nodes []*Node, l Limit) []*Limiter {
	t.Helper()
	var ls []*Limiter
	for _, n := range nodes {
		one, err := n.Limiter(l)
		require.NoError(t, err)
		ls = append(ls, one)
	}
	return ls
}

// findOwnedKey finds a key that a node owns.
func findOwnedKey(t testing.TB, l *Limiter, owner *Node) string {
	t.Helper()
	v := owner.handover.View()
	return findKey(t, l, v.Members[v.Self].Name)
}

// findKey finds a key that the member with the given name owns.
func findKey(t testing.TB, l *Limiter, name string) string {
	t.Helper()
	for i := range 10_000 {
		if key := fmt.Sprintf("key %d", i); l.Owner(key).Name == name {
			return key
		}
	}
	t.Fatal("no key of 10,000 is owned by ", name)
	return ""
}

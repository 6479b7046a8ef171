// Package testnode starts nodes for tests. It closes each node at the end of its test,
// except the nodes of Open.
package testnode

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/rules"
)

// Node is a node whose view and counts a test can read.
type Node struct {
	*weir.Node
	env.Inside
}

// Open starts a node that the caller must close.
func Open(ctx context.Context, cfg weir.Config) (*Node, error) {
	n := new(Node)
	var err error
	n.Node, err = weir.Start(env.WithInside(ctx, &n.Inside), cfg)
	return n, err
}

// Self returns this node as a member of its view.
func (n *Node) Self() cluster.Member { v := n.View(); return v.Members[v.Self] }

// Start starts a node. If cfg has no Logger, the node logs nothing.
func Start(t testing.TB, cfg weir.Config) *weir.Node {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n, err := weir.Start(t.Context(), cfg)
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, n.Close()) })
	return n
}

func requireNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fleet starts nodes on loopback sockets, and waits until all nodes are ready and connected to each other.
// Timeout is two seconds, so that only a fault makes a check time out. If edit is not nil, it
// changes the Config of each node.
func Fleet(t testing.TB, nodes int, edit func(i int, cfg *weir.Config)) []*Node {
	t.Helper()
	var fleet []*Node
	for i := range nodes {
		cfg := weir.Config{Name: fmt.Sprintf("node%d", i), Bind: "127.0.0.1:0", Timeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
		for _, n := range fleet {
			cfg.Join = append(cfg.Join, n.Self().Addr)
		}
		if edit != nil {
			edit(i, &cfg)
		}
		n, err := Open(t.Context(), cfg)
		requireNoError(t, err)
		t.Cleanup(func() { requireNoError(t, n.Close()) })
		fleet = append(fleet, n)
	}
	lab.Eventually(t, "all nodes are ready and connected to each other", func() bool {
		return !slices.ContainsFunc(fleet, func(n *Node) bool { return !n.Ready() || !n.isFullyConnected(nodes) })
	})
	return fleet
}

// isFullyConnected reports whether, in the view of this node, the roster has the given number of
// members, and all of them serve and are connected to each other.
func (n *Node) isFullyConnected(members int) bool {
	v := n.View()
	return len(v.Members) == members &&
		!slices.ContainsFunc(v.Members, func(m cluster.Member) bool { return m.State != cluster.Serving }) &&
		!slices.ContainsFunc(v.Connected, func(row []int) bool { return len(row) < members-1 })
}

// Limiter returns a limiter of a node. If l has no name, its name is "test".
func Limiter(t testing.TB, n interface {
	Limiter(weir.Limit) (*weir.Limiter, error)
}, l weir.Limit) *weir.Limiter {
	t.Helper()
	l.Name = cmp.Or(l.Name, "test")
	limiter, err := n.Limiter(l)
	requireNoError(t, err)
	return limiter
}

// Limiters returns a limiter for l on each node.
func Limiters(t testing.TB, nodes []*Node, l weir.Limit) (all []*weir.Limiter) {
	t.Helper()
	for _, n := range nodes {
		all = append(all, Limiter(t, n, l))
	}
	return all
}

// KeyOf returns a key that the given node owns, for the limiter l.
func KeyOf(t testing.TB, l *weir.Limiter, owner *Node) string {
	t.Helper()
	name := owner.Self().Name
	for i := range 10_000 {
		if key := fmt.Sprintf("key %d", i); l.Owner(key).Name == name {
			return key
		}
	}
	t.Fatalf("%s owns none of 10,000 keys", name)
	return ""
}

// Book returns a Book of the rules in text. The rules do not change.
func Book(t testing.TB, n *weir.Node, text string) *rules.Book {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	requireNoError(t, err)
	book, err := rules.Static(n, set)
	requireNoError(t, err)
	t.Cleanup(func() { requireNoError(t, book.Close()) })
	return book
}

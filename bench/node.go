package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// memberWait bounds each wait for a member.
const memberWait = 3 * time.Minute

// awaitMembers waits until a node is ready, with the given number of serving members in its roster.
func awaitMembers(n *weir.Node, members int, within time.Duration) error {
	serving := func() int {
		return len(slices.DeleteFunc(n.Members(), func(m weir.Member) bool { return m.State != weir.Serving }))
	}
	for begun := time.Now(); !n.Ready() || serving() != members; time.Sleep(time.Millisecond) {
		if time.Since(begun) > within {
			return fmt.Errorf("bench: after %v, a node is not ready, or does not have %d serving members: %v", within, members, n.Members())
		}
	}
	return nil
}

func addrOf(n *weir.Node) string {
	all := n.Members()
	return all[slices.IndexFunc(all, func(m weir.Member) bool { return m.Self })].Addr
}

// awaitAuthority waits until a hundred consecutive keys are decided with authority.
func awaitAuthority(l *weir.Limiter, within time.Duration) error {
	keys := worker.KeysThat(100, worker.AnyKey)
	for begun := time.Now(); time.Since(begun) < within; time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(keys, func(key string) bool {
			d, _ := l.Peek(context.Background(), key)
			return !byAuthority(d.Source)
		}) {
			return nil
		}
	}
	return fmt.Errorf("bench: after %v, some checks are still decided without authority", within)
}

// byAuthority reports whether a decision is that of the owner: a current decision, a
// denial that is cached, or a decision within a lease.
func byAuthority(s weir.Source) bool {
	return s == weir.Owner || s == weir.Forwarded || s == weir.Relayed || s == weir.Pushback || s == weir.Leased
}

// quiet returns a logger of errors only: the output of a benchmark is its figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

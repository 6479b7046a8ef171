package weir

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/snapshots"
)

// joining is what is kept of whether this node has found any of those that
// Config.Join names, and of what it loads as it starts.
type joining struct {
	began     int64       // when Start was called, by the monotonic clock
	over      atomic.Bool // no other member is waited for any more; it stays so
	snapshots *snapshots.Snapshots
}

// awaitsJoin reports whether the node is not ready yet because Config.Join names
// others and none has been met, or because it is a joiner that reaches no member that
// serves: a machine that is busy may have gossip arrive seconds before the first
// connection stands. A deploy that took such a node for ready would stop the member that
// has the counts, and nobody would have copies. It lasts JoinTimeout at most. Once over it
// stays over: a name that stood for this node alone may come to stand for others as well,
// which is no reason to take a ready node out of service.
func (n *Node) awaitsJoin() bool {
	if n.joining.over.Load() {
		return false
	}
	v := n.env.View()
	if n.env.Monotonic()-n.joining.began < int64(n.cfg.JoinTimeout) {
		switch {
		case v.Met == 0 && len(n.cluster.Stats().Unanswered) > 0, v.Joins() && v.Side == 0:
			return true
		case v.Joins() && v.Side == len(v.Points):
			return false // it waits for its counts, and may come to reach nobody before it has them
		}
	}
	n.joining.over.Store(true)
	return false
}

// unjoined is Stats.Unjoined.
func (n *Node) unjoined(c *cluster.Stats) time.Duration {
	if n.env.View().Met != 0 || len(c.Unanswered) == 0 || n.env.Ended() {
		return 0
	}
	return time.Duration(n.env.Monotonic() - n.joining.began)
}

// reportJoin logs, once JoinTimeout is over, which entries of Config.Join have not
// led to a member, and what that means.
func (n *Node) reportJoin() {
	timeout := time.NewTimer(n.cfg.JoinTimeout - time.Duration(n.env.Monotonic()-n.joining.began))
	defer timeout.Stop()
	select {
	case <-timeout.C:
	case <-n.env.Done():
		return
	}
	v, c := n.env.View(), n.cluster.Stats()
	if v.Self < 0 || len(c.Unanswered) == 0 {
		return
	}
	unanswered := make([]string, 0, len(c.Unanswered))
	for _, entry := range slices.Sorted(maps.Keys(c.Unanswered)) {
		unanswered = append(unanswered, fmt.Sprintf("%s: %s", entry, c.Unanswered[entry]))
	}
	attrs := []any{"waited", n.cfg.JoinTimeout.String(), "unanswered", unanswered}
	if v.Met != 0 {
		n.cfg.Logger.Warn("no member answered at some Join addresses; fix or remove them", attrs...)
	} else {
		n.cfg.Logger.Warn("no other member has answered; counting alone: check Join, firewall and Advertise",
			append(attrs, "expect", n.cfg.Expect)...)
	}
}

// load loads what all nodes have written before they stopped, and then has snapshots
// written. It waits for the loading until ctx is done; then that goes on, and the node is
// not Ready until it is over.
func (n *Node) load(ctx context.Context) {
	if n.cfg.Snapshots == nil {
		return
	}
	n.handover.Track()
	loaded := make(chan struct{})
	n.env.Go(func() {
		n.joining.snapshots.Load(n.env.Context())
		close(loaded)
		n.joining.snapshots.Run()
	})
	select {
	case <-loaded:
	case <-ctx.Done():
	}
}

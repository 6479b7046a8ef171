package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/holds"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/reserve"
	"github.com/weir-go/weir/internal/snapshots"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/view"
)

// Node is a member of the cluster, embedded in a process. Its methods are safe for concurrent use.
type Node struct {
	cfg         Config // the Config of Start, with defaults
	env         env.Env
	identity    identity.Identity
	counts      *bucket.Store // counts with authority, replicas, and counts of the shares of this node
	cluster     cluster.Cluster
	handover    *handover.Handover
	published   *publish.Publisher
	regions     *regions.Regions
	registry    *limits.Registry // the limits of all Limiters
	meters      stats.Meters
	asker       *asker.Asker
	owner       *owner.Owner
	clients     clients
	epochs      *epoch.Members
	checks      *check.Checks
	requests    atomic.Uint64 // number of the last AllowAll that an Observer receives
	usesCallers bool          // result of UsesCallers
	snapshots   *snapshots.Snapshots
	outage      stats.OutageTracker // the current outage
}

// clients are the parts that serve the callers of this node, beside checks.
type clients struct {
	queues       *queue.Queues
	holds        *holds.Holds
	reservations *reserve.Reservations
	survey       *stats.Survey
}

// Ready reports whether the node has authority over all keys that it owns. A node that joins is also ready
// while a member is missing: before that member is reached or forgotten, the node owns no keys, and answers
// through other members. Ready returns false while the node loads snapshots, after Leave and after Close.
// If a deploy waits for Ready before it stops the next node, every count is handed over.
//
// While Config.Join names other nodes and no other member has ever been met, Ready returns false,
// so that a deploy detects a wrong address. Ready also returns false while the node has met other
// members, but reaches no serving member. For these two reasons, Ready returns false for at most
// Config.JoinTimeout after Start.
func (n *Node) Ready() bool {
	return !n.env.Ended() && !n.snapshots.Loading() && n.handover.IsReady()
}

// Leave transfers the counts of this node to their next owners, and then leaves the cluster: the
// other members remove this node from the roster. From then on, until Close, the node forwards
// its own checks and any checks that still arrive. Further calls do nothing.
//
// At first, within two seconds, each reachable member answers once or is found to be missing. The transfer
// takes as long as ctx allows: at most ten seconds, and at most five more for the holds of clients. If
// this is too short, Leave returns an error and does not leave the cluster: until Close the node still
// answers for the remaining counts, and transfers them. Leave may then be called again. With
// Config.Snapshots, Leave writes a last snapshot before it leaves the cluster, unless the node still loads
// snapshots. This takes at most ten minutes, and ends if the store accepts nothing for a minute.
//
// Leave returns ctx.Err if ctx is done before the other members are notified, and ErrClosed if
// Close is called first. It returns a different error if the counts were not transferred in time, or if the
// snapshot was not written.
func (n *Node) Leave(ctx context.Context) error {
	if n.env.Ended() {
		return ErrClosed
	}
	member := n.env.View().Self >= 0
	left := n.handover.Leave(ctx)
	if left == nil {
		left = n.clients.holds.Leave(ctx)
	}
	var saved error
	if member {
		saved = n.snapshots.Leave(ctx) // this node now has all counts that other members transferred to it
	}
	switch {
	case errors.Is(left, cluster.ErrClosed):
		return ErrClosed
	case left != nil:
		return left
	}
	err := errors.Join(n.cluster.Leave(ctx), saved)
	n.handover.Refresh()
	switch {
	case errors.Is(err, cluster.ErrClosed) || n.env.Ended():
		return ErrClosed
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("weir: leaving: %w", err)
	}
	return nil
}

// Close stops the node at once, like a crash, and waits for its goroutines. From then on every
// check returns ErrClosed.
func (n *Node) Close() error {
	if !n.env.Ended() {
		n.clients.holds.ReleaseAll()
	}
	return n.env.Close(n.cluster.Close)
}

// Member is a process in the roster.
type Member struct {
	Name   string // label-incarnation, unique for each start
	Addr   string // "host:port" that other members dial
	Region string
	Self   bool
	State  MemberState
}

// MemberState is the state of a member, as known to this node.
type MemberState = cluster.State

// The states of a member.
const (
	Joining = cluster.Joining // forwards checks to other members, and owns no keys yet
	Serving = cluster.Serving // in the roster and reachable, directly or through other members
	Missing = cluster.Missing // in the roster, but no member on this side is connected to it
	Dead    = cluster.Dead    // has died without leaving, and is not yet forgotten
)

// memberOf returns a member of a view.
func memberOf(v *view.View, i int) Member {
	m := &v.Members[i]
	state := m.State
	if state == cluster.Leaving {
		state = Serving // the member still answers, and leaves in a moment
	}
	return Member{Name: m.Name, Addr: m.Addr, Region: m.Region, Self: i == v.Self, State: state}
}

// Members returns the roster that this node knows, sorted by name. The roster has each member that is
// alive, or died without leaving and is not yet forgotten.
func (n *Node) Members() []Member {
	v := n.env.View()
	members := make([]Member, len(v.Members))
	for i := range members {
		members[i] = memberOf(v, i)
	}
	return members
}

// Ring returns the part of all keys that the ring assigns to each member, by name. Each part is
// above 0, and the sum is 1. A member that owns nothing, as it joins or leaves, is not included. The
// first call after a change of the ring takes about 10 µs per member.
func (n *Node) Ring() map[string]float64 { return n.env.View().Ring.Parts() }

// Forget removes a dead member that will not come back from the roster at once. The error is
// ErrClosed, or ErrInvalid if the member is not in the roster or not Dead.
func (n *Node) Forget(member string) error {
	if n.env.Ended() {
		return ErrClosed
	}
	if err := n.cluster.Forget(member); err != nil {
		return fmt.Errorf("%w member: %w", ErrInvalid, err)
	}
	return nil
}

// Published is a small value that Publish has sent to all nodes.
type Published struct {
	Name    string
	Version uint64
	Value   []byte // must not be changed
}

// Publish sends a small value with a name to all nodes, such as changed rules or an override for
// a key. Of two values with the same name, every node keeps the value with the higher version. If
// the versions are equal, it keeps the value with the greater bytes. A nil or empty value
// deletes the name. Publish returns when this node has the value. Other nodes have it when they
// meet a node that has it, also after a partition or a restart of all nodes but one.
//
// Version 0 stands for the time of day in nanoseconds since 1970, so that the last writer wins, or
// for the known version plus 1 if that is higher. So version 0 with an empty value deletes the
// present value, whatever its version. A node accepts no version that is more than a day ahead of
// its time of day, except the known version plus 1, because no later value could replace a value of the
// highest version.
//
// A name has 1 to 256 bytes, and a value at most 4 KiB. Publish refuses a value beyond 16,384 values or
// 8 MiB in all. After a partition, a node keeps up to twice as many. A deletion is remembered for a day:
// a node that was disconnected for longer brings the value back. Values do not expire.
//
// The error is ErrClosed, or ErrInvalid with the reason, such as a version that is not above the
// present version or is too far ahead, or a value for which there is no room. Publishing the
// present value again is not an error.
func (n *Node) Publish(name string, version uint64, value []byte) error {
	if n.env.Ended() {
		return ErrClosed
	}
	if err := n.published.Put(name, version, value); err != nil {
		return fmt.Errorf("%w %w", ErrInvalid, err)
	}
	return nil
}

// Published returns the values whose names begin with prefix, sorted by name, without deleted
// values. revision rises with each change of any value, so that a caller that polls can skip
// equal revisions. The slice and the values are shared, and must not be changed.
func (n *Node) Published(prefix string) (values []Published, revision uint64) {
	return publish.Values[Published](&n.published.Store, prefix)
}

// PublishedAfter returns a channel that is closed once the revision of Published differs from
// the given revision, so that a caller need not poll. Close does not close the channel.
func (n *Node) PublishedAfter(revision uint64) <-chan struct{} {
	return n.published.After(revision)
}

// UsesCallers reports whether the Observer of the node has a method UsesCallers that returns true, as the
// Log of package audit has. Adapters, such as httplimit, call WithCaller only for such a node.
func (n *Node) UsesCallers() bool { return n.usesCallers }

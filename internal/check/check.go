// Package check is the path of a check: on the node whose caller asks (Do, TakeAll), and on the member
// that answers (Serve).
//
// A node with authority over the count, a pushback or a lease decides by itself. Otherwise the node
// asks the member that answers for the count, and then the stand-in for that member. If neither
// answers in time, the node decides within its share. A member that receives a request decides in the
// same way. The member passes the request on if another member has authority, and keeps the request
// while authority is being transferred to the member.
//
// Each file has a step. The asking node runs decide.go, ask.go and attempt.go. The member that answers runs
// serve.go, keep.go and pass.go. Both run learn.go, for holds. asklist.go, takeall.go and group.go have the
// checks that are decided together, hold.go has the holds of callers, late.go the refund of a late response, and
// reset.go the reset of a count. count.go counts decisions and strikes, trace.go creates spans, and message.go
// has the requests of members that are not checks.
package check

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/holds"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/stats"
)

// Config contains the dependencies of Checks: settings, and the parts of a node.
type Config struct {
	Env     *env.Env
	Timeout time.Duration // longest wait of a check for other members, before its extension for a delay that a member has reported
	Tracer  Tracer        // creates spans; nil for no spans
	// Hopped is called after each request that a check or a reset of this node has sent, or failed to send,
	// to another member, once the member has answered or the wait has ended. It must not block, and may be
	// nil.
	Hopped func(ctx context.Context, h Hop)
	Log    *slog.Logger
	Meters *stats.Meters
	Outage *stats.OutageTracker

	Handover  *handover.Handover
	Owner     *owner.Owner
	Asker     *asker.Asker
	Holds     *holds.Holds
	Regions   *regions.Regions
	Published *publish.Publisher
	Registry  *limits.Registry
	Epochs    *epoch.Members
	Survey    *stats.Survey
}

// Hop is a request to another member.
type Hop struct {
	To   string // the name of the member
	Err  error  // nil if the member has answered
	Took time.Duration
}

// Checks implements the checks of a node. It is a cluster.Handler, and its methods are safe for
// concurrent use.
type Checks struct {
	Config
	exchanges sync.Pool // has values of *exchange
	rooms     sync.Pool // has values of *owner.Room
	lists     sync.Pool // has values of *AskList
	banLines  loglimit.Line
}

// New returns Checks that the caller must Connect before a method is called.
func New() *Checks {
	c := new(Checks)
	c.exchanges.New = func() any { return new(exchange) }
	c.rooms.New = func() any { return new(owner.Room) }
	c.lists.New = func() any { return new(AskList) }
	return c
}

// Connect sets the parts of the node. Some parts call Checks, so Checks must exist before these
// parts.
func (c *Checks) Connect(cfg Config) { c.Config = cfg }

// exchange contains the bytes of a request and of its response. Exchanges come from a pool, so that a
// check allocates nothing.
type exchange struct {
	request, answer []byte
	served          request // the request that Serve handles now
}

// Changed updates the view after a change in the cluster.
func (c *Checks) Changed() { c.Handover.Refresh() }

// Answered records that another member has answered.
func (c *Checks) Answered() { c.Env.Hear(c.Env.Monotonic()) }

// WhenReset calls the function reset, which resets a count on this node. WhenReset also deletes the lent units,
// leases, pushbacks and listed bans of the count from before the reset. The reset may have begun on another node.
func (c *Checks) WhenReset(id bucket.ID, number uint64, reset func()) {
	c.Owner.Reset(id, reset)
	c.Asker.Reset(id, number)
	c.Meters.BanList.Forget(identity.Bytes(id))
	c.Handover.Stir() // the tombstone must be forgotten later, even if the store does not track
}

// LongestWait bounds the time for which a node with the given timeout works on a request, whatever
// wait the sender states. The bound is the longest time for which this node itself waits for the
// response of a member of its region to a check or a message.
func LongestWait(timeout time.Duration) time.Duration {
	return max(LongestCheck(timeout), stats.TopWait, handover.LocateWait)
}

// Package handover maintains the current view of a node, replicates its counts to other members,
// and transfers authority when members join or leave.
//
// Only this package replaces the view, under a single lock, so that authority over a range is never
// held by two nodes, and never lost. Before a node takes a range that no member seems to hold, it
// asks all members. This package decides no checks and stores no counts. Package countsync defines
// replicas, and package view computes each new view from the previous view.
package handover

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	countsync "github.com/weir-go/weir/sync"
)

// HearFor is the maximum time for which Started waits until this node is connected to the living
// members. A joiner that has met other nodes, but knows of no serving member, waits as long before
// it begins to serve.
const HearFor = time.Second

// Config contains the dependencies of a Handover.
type Config struct {
	Expect      int           // Config.Expect of the node
	JoinTimeout time.Duration // Config.JoinTimeout of the node
	Replicas    int           // replicas of each count; may be 0
	Regions     bool          // whether there are other regions
	Log         *slog.Logger
	Env         *env.Env // Handover replaces its view
	Cluster     cluster.Cluster
	Counts      *bucket.Store
	Stream      *countsync.Stream // replicates Counts

	// Swapped is called with each new view, after it has replaced the previous view. It is called
	// with Handover.swap held, and must not block.
	Swapped func(v *view.View)
	// Regain is called, with the same lock held, if Replicas is 0 and this node takes authority
	// over ranges that no member transfers to it: any counts of these ranges are lost.
	Regain func()
	// Cease stops lending, or resumes lending if cease is false. It reports whether all leases have
	// expired at the monotonic time steady. Authority is not transferred while there are leases.
	Cease func(cease bool, steady int64) (expired bool)
	// Leaving is called after this node has announced that it leaves.
	Leaving func()
}

// Handover maintains the current view of a node and transfers authority between members.
//
// The mutex swap must be held to replace the view. Each new view is computed from the current
// view by a function of package view. Both the computation and the replacement happen while swap
// is held, so that no update is lost or applied twice. If two views were computed from the same
// view, the second could restore authority that the first has given away. A check does not need
// the lock, and no code waits for another member while the lock is held.
//
// The stream replicates counts. This node cedes a range only once the receiver has all but a few
// counts of the range. The frame that transfers authority is sent after the receiver has
// acknowledged the remaining counts.
type Handover struct {
	cfg    Config
	stream *countsync.Stream
	// starting is set until Started has waited for the other members. Until then, Refresh does not pass
	// the previous view to view.New, so that each view follows from the ring alone.
	starting atomic.Bool
	created  int64       // monotonic time of New
	joined   atomic.Bool // set once the node no longer waits for another member (awaitsJoin); never cleared

	begun atomic.Bool // set once stream has the hash of this node; never cleared

	hurry  chan struct{} // signals that a sixteenth of the limit of a count was spent since the count was last collected
	turned chan struct{} // signals that the view has changed, or that authority may be able to move
	// stirred signals the end of the rest of Run: a count has changed or was reset, a frame has
	// arrived, snapshots were loaded, or the store begins to track changes.
	stirred chan struct{}
	tracks  sync.Once // tracks calls Counts.Track before the first frame is sent or received

	swap     sync.Mutex                // guards the fields up to feeding
	leavers  map[countsync.Member]bool // the members that are known to be leaving, even if gossip has not reported this yet
	complete map[countsync.Member]bool // members from which this node, as a joiner, has received all counts
	recalls  bool                      // a view that was installed since the last call of followView has Recalls set

	feeding sync.Mutex
	feeders map[countsync.Member]*feeder

	// The fields below are used only by the goroutine of Run.
	owed    map[countsync.Member]countsync.Ranges // ranges owed to each member
	known   *view.View                            // owed was computed from this view
	moves   uint64                                // number of the last transfer of authority
	waiting int64                                 // monotonic time of the last call of locate without a wait for authority, or of the first call after a rest of Run; 0 during the rest
	located int64                                 // monotonic time of the last round of locate
	warned  bool                                  // a warning about the long wait has been logged

	locating atomic.Bool // a round of locate is in progress
}

// Stats is the internal form of weir.StreamStats.
type Stats struct {
	Unsent  int
	Lag     time.Duration
	Tallies int
	Resets  int
	Sent    uint64
	Bytes   int

	TalliesDropped, ResetsDropped uint64
}

// New returns the Handover of a node that does not know any members yet.
func New(c Config) *Handover {
	h := &Handover{
		cfg: c, stream: c.Stream, created: c.Env.Monotonic(),
		hurry: make(chan struct{}, 1), turned: make(chan struct{}, 1), stirred: make(chan struct{}, 1),
		leavers: make(map[countsync.Member]bool), complete: make(map[countsync.Member]bool),
		feeders: make(map[countsync.Member]*feeder),
	}
	h.starting.Store(true)
	h.cfg.Env.Hear(h.created)
	nobody := view.New(h.created, &cluster.View{Self: -1}, h.terms(), nil)
	nobody.Replaced = make(chan struct{})
	h.cfg.Env.Store(nobody)
	return h
}

// View returns the current view, which a check loads once.
func (h *Handover) View() *view.View { return h.cfg.Env.View() }

// Stream returns the stream that replicates counts.
func (h *Handover) Stream() *countsync.Stream { return h.stream }

// Starting reports whether Started has not been called yet, or still waits for the other members.
func (h *Handover) Starting() bool { return h.starting.Load() }

// Started waits at most HearFor until this node is connected to all living members. After that, the
// node becomes the owner of its part of the ring as soon as mayServe allows it.
func (h *Handover) Started(ctx context.Context) {
	h.hearOthers(ctx)
	h.starting.Store(false)
	h.enlist()
}

// Replicate sends the changed holdings of ids to their replicas.
func (h *Handover) Replicate(ids []bucket.ID, now int64, v *view.View) {
	h.Wake(h.stream.Replicate(ids, now, v))
}

// Step replaces the view with the result of a function, so that a test can install a view that no
// cluster would produce.
func (h *Handover) Step(step func(before *view.View) *view.View) {
	h.swap.Lock()
	defer h.swap.Unlock()
	h.replace(step(h.View()))
}

// terms returns the parameters from which the views of this node are built.
func (h *Handover) terms() view.Terms {
	t := view.Terms{Expect: h.cfg.Expect, Replicas: h.cfg.Replicas, Leavers: h.leavers}
	if v := h.View(); v != nil {
		t.Ring = v.Ring
	}
	return t
}

// Refresh builds a new view from the state of the cluster. Nothing changes if the current view was
// built from the same state and is not stale. This is frequent: a node that announces a state calls
// Refresh, and the cluster then reports the same change.
func (h *Handover) Refresh() {
	h.swap.Lock()
	defer h.swap.Unlock()
	before, seen, now := h.View(), h.cfg.Cluster.View(), h.cfg.Env.Monotonic()
	if before.View == seen && !before.Stale(now) {
		return
	}
	if h.starting.Load() {
		before = nil
	}
	v := view.New(now, seen, h.terms(), before)
	if !h.begun.Load() && v.Self >= 0 {
		h.begun.Store(true)
		h.stream.Begin(v.Hashes[v.Self]) // not earlier, because Config.Cluster may choose the name of this node when it starts
	}
	if h.cfg.Replicas == 0 && len(v.Ranges(view.Held).Minus(h.View().Ranges(view.Held))) > 0 {
		h.cfg.Regain()
	}
	if v.Self >= 0 && v.JoinsAgain(v.Self, h.View()) {
		clear(h.complete) // the other members send all counts again
	}
	h.replace(v)
}

// replace sets the current view to v. The caller must hold h.swap.
func (h *Handover) replace(v *view.View) {
	before := h.View()
	if before.MeetsApart(v) {
		h.track(v)
		h.stream.Yield(before.Ranges(view.Held), h.cfg.Env.Now())
	}
	v.Replaced = make(chan struct{})
	h.cfg.Env.Store(v)
	close(before.Replaced)
	h.recalls = h.recalls || v.Recalls
	env.Signal(h.turned)
	h.cfg.Swapped(v)
}

// hearOthers waits at most HearFor until this node is connected to all living members, so that the
// first checks are not limited to a share.
func (h *Handover) hearOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, HearFor)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !h.View().IsFullyConnected() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

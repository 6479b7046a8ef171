// Package handover has the view that a node's checks go by, keeps copies of counts on other
// members, and moves authority as members join and leave.
//
// It alone replaces the view, under one lock, so that authority is never held twice and
// never lost: where a range is waited for that nobody has, all members are asked before the
// node takes it. It decides no check and holds no count: package sync says what a copy is,
// and package view what each step makes of the view before.
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

// HearFor is how long Started waits to hear the members it has joined, and how long
// nodes that have met, and know of none that serves, wait to hear of one.
const HearFor = time.Second

// Config is what a Handover needs of its node.
type Config struct {
	Expect   int  // Config.Expect of the node
	Replicas int  // of each count, 0 for none
	Regions  bool // there are other regions
	Log      *slog.Logger
	Env      *env.Env // Handover replaces its view
	Cluster  cluster.Cluster
	Counts   *bucket.Store
	Stream   *countsync.Stream // of Counts

	// Swapped is told of each view that takes the place of another. It is called under the
	// lock of the swap, and waits for nothing.
	Swapped func(v *view.View)
	// Regain is called under that lock as well, as this node comes to hold what nobody has a
	// copy of.
	Regain func()
	// Cease stops lending, or begins again, and reports whether all leases
	// are over by a time of the monotonic clock: authority over what is lent does not move.
	Cease func(cease bool, steady int64) (over bool)
	// Leaving is called once this node has said that it leaves.
	Leaving func()
}

// Handover has the view that a node's checks go by, and moves authority between members.
//
// swap is the only lock under which a view takes the place of another. Each change is a
// step of package view from the view before, made and put in place while it is held, so
// that no step is lost and none is made twice: of two steps from one view, one would give
// authority back that the other has given away. No check takes it, and nothing that is done
// under it waits for another member.
//
// The stream carries copies of counts. A range is ceded only when all but a few of its counts
// are where it goes, and its last ones travel in the frame that gives it.
type Handover struct {
	cfg    Config
	stream *countsync.Stream
	// starting reports whether Started has not returned: the node takes the ring as it finds it.
	starting atomic.Bool

	begun atomic.Bool // set once stream has been given the hash of this node; never cleared

	hurry  chan struct{} // some count has spent a sixteenth of its limit since it was last sent
	turned chan struct{} // the view has changed
	// stirred ends the rest of Run: a count has changed, a frame has come, or a count was reset
	// before the store tracks.
	stirred chan struct{}
	tracks  sync.Once // before the first frame comes or goes

	swap     sync.Mutex                // guards what follows, as far as the next lock
	leavers  map[countsync.Member]bool // members that have said themselves that they leave, before gossip does
	complete map[countsync.Member]bool // members that have sent this node, which joins, all that it is to have
	recalls  bool                      // a view since the last turn recalls copies

	feeding sync.Mutex
	feeders map[countsync.Member]*feeder

	// Of the goroutine of Run.
	owed    map[countsync.Member]countsync.Ranges // what each member is to have
	known   *view.View                            // the view that owed is of
	moves   uint64                                // of authority
	waiting int64                                 // since when this node waits for authority from others, by the monotonic clock
	located int64                                 // when it last asked who has it
	warned  bool                                  // that this takes long has been logged

	locating atomic.Bool // a round of asking is under way
}

// Stats is a weir.StreamStats.
type Stats struct {
	Unsent  int
	Lag     time.Duration
	Tallies int
	Resets  int
	Sent    uint64
	Bytes   int

	TalliesDropped, ResetsDropped uint64
}

// New returns the Handover of a node that knows of nobody yet.
func New(c Config) *Handover {
	h := &Handover{
		cfg: c, stream: c.Stream,
		hurry: make(chan struct{}, 1), turned: make(chan struct{}, 1), stirred: make(chan struct{}, 1),
		leavers: make(map[countsync.Member]bool), complete: make(map[countsync.Member]bool),
		feeders: make(map[countsync.Member]*feeder),
	}
	h.starting.Store(true)
	h.cfg.Env.Hear(c.Env.Monotonic())
	nobody := view.New(c.Env.Monotonic(), &cluster.View{Self: -1}, h.terms(), nil)
	nobody.Replaced = make(chan struct{})
	h.cfg.Env.Store(nobody)
	return h
}

// View returns the view of now. A check loads it once.
func (h *Handover) View() *view.View { return h.cfg.Env.View() }

// Stream returns the stream of copies.
func (h *Handover) Stream() *countsync.Stream { return h.stream }

// Starting reports whether Started has not returned yet.
func (h *Handover) Starting() bool { return h.starting.Load() }

// Started waits a moment to hear all members, and has this node own its part of the ring
// from then on, as soon as it may.
func (h *Handover) Started(ctx context.Context) {
	h.hearOthers(ctx)
	h.starting.Store(false)
	h.enlist()
}

// Replicate has copies sent of holdings that have changed.
func (h *Handover) Replicate(ids []bucket.ID, now int64, v *view.View) {
	h.Wake(h.stream.Replicate(ids, now, v))
}

// Step puts a view in place that follows from the one before. It is for tests, which make
// views that no cluster would.
func (h *Handover) Step(step func(before *view.View) *view.View) {
	h.swap.Lock()
	defer h.swap.Unlock()
	h.replace(step(h.View()))
}

// terms are what this node's views are made by.
func (h *Handover) terms() view.Terms {
	t := view.Terms{Expect: h.cfg.Expect, Replicas: h.cfg.Replicas, Leavers: h.leavers}
	if v := h.View(); v != nil {
		t.Ring = v.Ring
	}
	return t
}

// Refresh makes the view anew of what the cluster says, unless it is of that already:
// a node that has announced something refreshes, and is told of the change as well.
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
		h.stream.Begin(v.Hashes[v.Self]) // only now is it known what a Cluster of the caller's calls this node
	}
	if h.cfg.Replicas == 0 && len(v.Ranges(view.Held).Minus(h.View().Ranges(view.Held))) > 0 {
		h.cfg.Regain()
	}
	if v.Self >= 0 && v.JoinsAgain(v.Self, h.View()) {
		clear(h.complete) // the others send all anew
	}
	h.replace(v)
}

// replace puts a view in place of the one before. h.swap is held.
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

// hearOthers waits a moment until every living member is connected, so that the
// first checks need no budget.
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

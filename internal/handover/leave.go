package handover

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// cedeBelow is the maximum number of queued counts with which authority moves. A frame has
	// room for about that many counts.
	cedeBelow = 256
	// handOverFor is the maximum duration of Leave.
	handOverFor = 10 * time.Second
	// lastCopies is the minimum time for which Leave continues while there is no member to transfer
	// the authority to. During that time, a member that has just become a stand-in receives copies.
	lastCopies = 4 * collectEvery
	// copiesFor is the maximum time for which a leaver that holds no authority sends copies to the
	// members that will replace it as a replica. The owners of these counts create new copies as
	// well, but later, and an owner may be disconnected or may end before.
	copiesFor = time.Second
	// A node that leaves first waits for an answer of each member. At most callsAtOnce members are
	// asked at a time. Each call waits for callWait, and is repeated after callPause. Within
	// callsFor, this node detects that a member is gone.
	callsAtOnce = 16
	callsFor    = 2 * time.Second
	callWait    = time.Second
	callPause   = 10*time.Millisecond - 7
)

// handExcess hands over the ranges that this node holds and the ring assigns to another member, as
// soon as the member that answers for them has all but the last changes. It returns the members for
// which data is queued.
func (h *Handover) handExcess(v *view.View) (ready []countsync.Member) {
	if v.Settled || !v.HasAny(view.Held) {
		h.cfg.Cease(false, 0)
		return nil
	}
	excess := v.Answerers(v.Excess())
	cease := false
	for _, i := range v.Points {
		ranges := excess[i]
		if len(ranges) == 0 || i == v.Self || !v.Reaches(i) {
			continue
		}
		lag := h.stream.Lag(v.Hashes[i], h.cfg.Env.Now())
		cease = cease || !lag.Scanning
		if lag.Scanning || lag.Counts > cedeBelow {
			ready = append(ready, v.Hashes[i])
			continue
		}
		if !h.cfg.Cease(true, h.cfg.Env.Monotonic()) {
			continue // leases end by time alone, so the next round of Run checks again
		}
		ready = append(ready, h.cede(&v.Members[i], ranges)...)
	}
	h.cfg.Cease(cease, 0)
	return ready
}

// cede transfers authority over ranges to a member. From then on, this node passes the checks of
// these ranges on. The units of a check that still uses the previous view are collected as spent
// without authority.
func (h *Handover) cede(member *cluster.Member, ranges countsync.Ranges) []countsync.Member {
	receiver := view.NameHash(member.Name)
	ready := h.stream.Collect(h.cfg.Env.Now(), false, h.View())
	h.swap.Lock()
	v := h.View()
	ranges = ranges.Intersect(v.Ranges(view.Held)) // if this node has meanwhile met members that began separately, it may hold no part of the ranges
	h.replace(v.TransferRanges(ranges, member.Name, h.cfg.Env.Monotonic()))
	ready = append(ready, h.stream.Collect(h.cfg.Env.Now(), false, h.View())...)
	h.moves++
	h.stream.Transfer(receiver, h.moves, ranges, h.cfg.Env.Now())
	h.swap.Unlock()
	return append(ready, receiver)
}

// enlist makes a joiner the owner of its part of the ring, once other members have sent all counts
// of this part, or if no member can send them.
func (h *Handover) enlist() {
	v := h.View()
	if h.starting.Load() || !v.Joins() || !h.mayServe(v) {
		return
	}
	if err := h.cfg.Cluster.Announce(cluster.Serving); err != nil {
		return // this node has left or is closed
	}
	h.swap.Lock()
	clear(h.complete)
	h.swap.Unlock()
	h.Refresh()
}

// mayServe reports whether a joiner has all counts that it needs. If no member serves, only the
// eldest joiner begins to serve, with the counts of the leaving members. The eldest joiner first
// waits for HearFor after it has met other nodes, because nodes that start together may meet each
// other before they hear of a serving member.
func (h *Handover) mayServe(v *view.View) bool {
	if len(v.Points) == 0 {
		if v.Met != 0 && uint64(h.cfg.Env.Monotonic()-v.Met) < uint64(HearFor) {
			return false
		}
		if v.Eldest() != v.Self {
			return false
		}
	} else if v.Side < len(v.Points) || v.Yields() {
		return false
	}
	h.swap.Lock()
	defer h.swap.Unlock()
	for i, m := range v.Hashes {
		gives := slices.Contains(v.Points, i)
		if len(v.Points) == 0 {
			gives = v.Members[i].Announced == cluster.Leaving && v.Reaches(i)
		}
		if gives && !h.complete[m] {
			return false
		}
	}
	return true
}

// ErrUnfinished is returned by Leave if it could not hand over all counts in time.
var ErrUnfinished = errors.New("weir: leaving: not every count was handed over in time: call Leave again to wait longer; Close loses counts that no replica has")

// Leave announces that this node leaves, and waits until the node holds no authority and other
// members have acknowledged its changes. Run does the work, and continues even if Leave returns
// early. The error is ErrUnfinished, cluster.ErrClosed or the error of ctx. Leave returns nil at
// once if this node has left or knows no other member.
func (h *Handover) Leave(ctx context.Context) error {
	v := h.View()
	if v.Self < 0 || len(v.Members) == 1 {
		return nil
	}
	deadline := time.NewTimer(handOverFor)
	defer deadline.Stop()
	if err := h.callRoll(ctx); err != nil {
		return err
	}
	h.stream.Leaving()
	if h.cfg.Cluster.Announce(cluster.Leaving) != nil {
		return nil // this node has left or is closed
	}
	h.Refresh()
	h.cfg.Leaving()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var (
		stage  leaveStage
		fence  int64     // the time of the stream at which the stage began, or idle was set
		idle   time.Time // the time since which this node has authority, but no member to transfer it to; zero if there is one
		copies time.Time // the end of the stage copying
	)
	for {
		v := h.View()
		switch {
		case !h.isFree(v):
			if h.receives(v) {
				idle = time.Time{}
			} else if idle.IsZero() {
				idle, fence = time.Now(), h.stream.Time()
			} else if time.Since(idle) > lastCopies && h.acknowledged(v, fence) {
				return ErrUnfinished
			}
		case stage != transferring && !h.acknowledged(v, fence):
			if stage >= copying && time.Now().After(copies) {
				h.stream.Forgo()
			}
		case stage == finishing:
			return nil
		default:
			switch stage++; stage {
			case copying:
				copies = h.giveCopies(ctx, v)
			case finishing:
				h.sendRest()
			}
			fence = h.stream.Time()
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return ErrUnfinished
		case <-h.cfg.Env.Done():
			return cluster.ErrClosed
		}
	}
}

// leaveStage is a stage of Leave. A stage ends once the other members have acknowledged all of
// the items that were in the queue when the stage began. There is no wait for later items,
// because a node that stands in for a late owner always has more to send.
type leaveStage uint8

const (
	transferring leaveStage = iota // this node transfers its authority, and waits for no acknowledgment
	settling                       // this node sends the items that are in the queue
	copying                        // this node sends replicas to the members that replace it
	finishing                      // this node sends the units that were spent in the meantime
)

// giveCopies makes the stream send copies to the members that become replicas when this node
// leaves. It returns the end of this stage: after half of the remaining time of ctx, and at most
// copiesFor from now.
func (h *Handover) giveCopies(ctx context.Context, v *view.View) (until time.Time) {
	for m, ranges := range v.Successions() {
		h.stream.Owe(m, ranges)
	}
	h.Wake(v.Hashes)
	wait := copiesFor
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	return time.Now().Add(wait)
}

// callRoll waits until each reachable member has answered once, or is not reached any more. Without
// it, a member could be beyond a cut that this side has not noticed yet, and authority that is
// handed over to this member would be lost for this side. callRoll takes at most callsFor.
func (h *Handover) callRoll(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, callsFor)
	defer cancel()
	members := h.View().Hashes
	env.Gather(len(members), callsAtOnce, func(i int) { h.awaitAnswer(bounded, members[i]) })
	if h.cfg.Env.Ended() {
		return cluster.ErrClosed
	}
	return ctx.Err()
}

// awaitAnswer repeats a request to a member, directly or through other members, until the member answers
// or is not reached.
func (h *Handover) awaitAnswer(ctx context.Context, member countsync.Member) {
	header := wire.Header{Op: wire.OpStream, Hops: wire.MaxHops, Wait: callWait / 2, To: member}
	for {
		v := h.View()
		i, known := v.Named[member]
		if !known || i == v.Self || v.Next[i] < 0 {
			return
		}
		_, err := env.Call(ctx, v.Members[v.Next[i]].Peer, header, nil, callWait) // an empty frame
		if err == nil || errors.Is(err, wire.ErrMalformed) || errors.Is(err, cluster.ErrClosed) {
			return
		}
		select {
		case <-time.After(callPause):
		case <-ctx.Done():
			return
		}
	}
}

// sendRest sends the units that were spent since the last collection, including units spent without
// authority. The next round of Run may be too late, because a node that has left may be closed
// before that round.
func (h *Handover) sendRest() {
	h.swap.Lock() // no authority may move during the collection
	ready := h.stream.Collect(h.cfg.Env.Now(), false, h.View())
	h.swap.Unlock()
	h.Wake(ready)
}

// isFree reports whether this node has no authority left to transfer, and the receivers have
// acknowledged each transfer.
func (h *Handover) isFree(v *view.View) bool {
	return !h.stream.Transferring() && (!v.HasAny(view.Held) || len(v.Points) == 0) && !h.receives(v)
}

// receives reports whether there is another member to which this node has to transfer authority.
func (h *Handover) receives(v *view.View) bool {
	if v.HasAny(view.Vacant) {
		return true // this node takes these ranges first, and then transfers them
	}
	held := v.Answerers(v.Ranges(view.Held))
	return anyOther(v, func(i int) bool {
		return len(held[i]) > 0 || len(v.Points) == 0 && v.HasAny(view.Held) && v.Members[i].Announced == cluster.Joining
	})
}

// acknowledged reports whether the other members have acknowledged the items that were queued for them at the
// time fence of the stream. It ignores members that are away (view.View.Away).
func (h *Handover) acknowledged(v *view.View, fence int64) bool {
	return !anyOther(v, func(i int) bool { return !h.stream.Acknowledged(v.Hashes[i], fence) })
}

// anyOther reports whether f returns true for another member that is not away.
func anyOther(v *view.View, f func(i int) bool) bool {
	for i := range v.Hashes {
		if i != v.Self && !v.Away[i] && f(i) {
			return true
		}
	}
	return false
}

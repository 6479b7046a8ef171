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
	// cedeBelow is how many counts may wait to be sent when authority moves:
	// about what goes into one frame.
	cedeBelow = 256
	// handOverFor bounds Leave.
	handOverFor = 10 * time.Second
	// lastCopies is how long Leave goes on when it can give no authority away: a member
	// that has just come to stand in for another is sent copies.
	lastCopies = 4 * collectEvery
	// copiesFor bounds how long it gives copies to the members that are to have them in its
	// place, once it holds nothing. The owners of these counts make new copies, too, but at
	// leisure; and an owner may be cut off, and end, before it has made them.
	copiesFor = time.Second
	// Before it, each member answers once: callsAtOnce of them are asked at a time,
	// for callWait, and again after callPause; in callsFor a member that is gone is found
	// to be.
	callsAtOnce = 16
	callsFor    = 2 * time.Second
	callWait    = time.Second
	callPause   = 10*time.Millisecond - 7
)

// handExcess hands over what this node holds and another owns, as soon as the other
// has all but the last changes. It says for whom something waits then.
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
			continue // time alone ends that: the next round looks again
		}
		ready = append(ready, h.cede(&v.Members[i], ranges)...)
	}
	h.cfg.Cease(cease, 0)
	return ready
}

// cede gives authority away. From the swap on this node passes checks on; what
// those spend that are still at it with the view before is collected as spent
// without authority.
func (h *Handover) cede(to *cluster.Member, ranges countsync.Ranges) []countsync.Member {
	receiver := view.NameHash(to.Name)
	ready := h.stream.Collect(h.cfg.Env.Now(), false, h.View())
	h.swap.Lock()
	v := h.View()
	ranges = ranges.Intersect(v.Ranges(view.Held)) // if it has met others meanwhile, there may be nothing to give
	h.replace(v.TransferRanges(ranges, to.Name, h.cfg.Env.Monotonic()))
	ready = append(ready, h.stream.Collect(h.cfg.Env.Now(), false, h.View())...)
	h.moves++
	h.stream.Transfer(receiver, h.moves, ranges, h.cfg.Env.Now())
	h.swap.Unlock()
	return append(ready, receiver)
}

// enlist makes this node the owner of its part of the ring, once it has been sent what it
// needs for that; or at once if no member could send it anything.
func (h *Handover) enlist() {
	v := h.View()
	if h.starting.Load() || !v.Joins() || !h.mayServe(v) {
		return
	}
	if err := h.cfg.Cluster.Announce(cluster.Serving); err != nil {
		return // it has left or is closed
	}
	h.swap.Lock()
	clear(h.complete)
	h.swap.Unlock()
	h.Refresh()
}

// mayServe reports whether a joiner has all that it is to have. If no member serves, the
// eldest joiner begins, with what the leaving members have. Nodes that start together may
// meet each other before they hear of a member that serves, so each waits a moment for that.
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

// ErrUnfinished: Leave could not hand everything over.
var ErrUnfinished = errors.New("weir: leaving: not every count was handed over in time: call Leave again to wait longer; Close loses counts that no replica has")

// Leave announces that this node leaves, and waits until it holds nothing and
// all that it has to tell is told. What it does meanwhile is done in Run,
// which goes on when nobody waits.
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
		return nil // it has left, or is closed
	}
	h.Refresh()
	h.cfg.Leaving()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var (
		stage  leaveStage
		fence  int64     // the time of the stream at which the stage, or idle, began
		idle   time.Time // since when this node has authority, but no member to transfer it to
		copies time.Time // until when copies are given
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
		case stage != handing && !h.acknowledged(v, fence):
			if stage >= copying && time.Now().After(copies) {
				h.stream.Forgo()
			}
		case stage == telling:
			return nil
		default:
			switch stage++; stage {
			case copying:
				copies = h.giveCopies(ctx, v)
			case telling:
				h.tellRest()
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

// leaveStage is a stage of Leave. Each ends once the other members have acknowledged all that waited
// for them when it began. What is queued later does not count: a node that decides checks in the
// stead of a late owner always has more to send.
type leaveStage uint8

const (
	handing  leaveStage = iota // this node transfers its authority, and waits for no acknowledgment
	settling                   // it sends the queued items
	copying                    // it sends replicas to the members that replace it
	telling                    // it sends the units that it has spent since
)

// giveCopies has members sent those that they come to have as this node leaves, and says
// until when: half of what time is left, copiesFor at most.
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

// callRoll waits until each member that is reached has answered once, or is found to be
// gone: what is handed over to one that is behind a cut that nobody has noticed yet is
// lost to this side. It takes callsFor at most.
func (h *Handover) callRoll(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, callsFor)
	defer cancel()
	members := h.View().Hashes
	env.Gather(len(members), callsAtOnce, func(i int) { h.call(bounded, members[i]) })
	if h.cfg.Env.Ended() {
		return cluster.ErrClosed
	}
	return ctx.Err()
}

// call has a member answer, directly or through others, for as long as it is reached.
func (h *Handover) call(ctx context.Context, member countsync.Member) {
	header := wire.Header{Op: wire.OpStream, Hops: wire.MaxHops, Wait: callWait / 2, To: member}
	for {
		v := h.View()
		i, known := v.Named[member]
		if !known || i == v.Self || v.Next[i] < 0 {
			return
		}
		_, err := env.Call(ctx, v.Members[v.Next[i]].Peer, header, nil, callWait) // a frame with nothing in it
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

// tellRest has told what was spent since it was last collected: without authority,
// too, and once this node has said goodbye it may be closed before the next round.
func (h *Handover) tellRest() {
	h.swap.Lock() // no authority moves meanwhile
	ready := h.stream.Collect(h.cfg.Env.Now(), false, h.View())
	h.swap.Unlock()
	h.Wake(ready)
}

// isFree reports whether this node has no authority left to give away, and its receivers have
// taken what it gave.
func (h *Handover) isFree(v *view.View) bool {
	return !h.stream.Transferring() && (!v.HasAny(view.Held) || len(v.Points) == 0) && !h.receives(v)
}

// receives reports whether another member has yet to receive authority from this node.
func (h *Handover) receives(v *view.View) bool {
	if v.HasAny(view.Vacant) {
		return true // no other member transfers these ranges
	}
	held := v.Answerers(v.Ranges(view.Held))
	return anyOther(v, func(i int) bool {
		return len(held[i]) > 0 || len(v.Points) == 0 && v.HasAny(view.Held) && v.Members[i].Announced == cluster.Joining
	})
}

// acknowledged reports whether the other members have acknowledged what waited for them at a time
// of the stream.
func (h *Handover) acknowledged(v *view.View, at int64) bool {
	return !anyOther(v, func(i int) bool { return !h.stream.Acknowledged(v.Hashes[i], at) })
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

package handover

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// collectEvery is the maximum time until a change is queued. A change must reach the replicas
	// within 100 ms. The value is odd, so that in virtual time events that begin together with a
	// round do not coincide with later rounds.
	collectEvery = 50*time.Millisecond - 9
	// sweepRested is the time between two rounds of a resting node that has tallies or resets to
	// forget. Such a round makes up for the sweeps that the rest has omitted, one for each collectEvery. So the
	// rest delays the removal of a tally by at most sweepRested.
	sweepRested = time.Second - 9
	maxSweeps   = 128 // the maximum number of sweeps in a round, which is enough to visit all tallies
	// reviewEvery is the time between two parts of a review. At this rate, a review uses a fifth of
	// a processor, and takes two seconds for a million resets.
	reviewEvery = time.Millisecond - 7
	// collectParts is the maximum number of parts in which changes are collected per collectEvery
	// if there are many changes.
	collectParts = 16
	// frameBytes is the maximum size of a frame. It bounds the time for which a frame delays the
	// checks behind it on the same connection. If more than longQueue counts wait, the maximum is
	// longFrameBytes, because the next frame is sent only after the answer to a frame.
	frameBytes     = 16 << 10
	longFrameBytes = 40 << 10
	longQueue      = 2048
	// frameWait is the maximum time until the answer to a frame, enough for a route of several slow
	// hops. With a shorter timeout, each attempt to send a frame could end just before the answer
	// arrives, and the frame would never be delivered.
	frameWait = time.Second
	// longestPause is the maximum pause between two frames of a scan or a review.
	longestPause = 20 * time.Millisecond
	// resendAfter is the pause after a frame was not sent or not answered. Its content is sent
	// again after the pause.
	resendAfter = 50 * time.Millisecond
)

// feeder controls the goroutine that sends frames to a member.
type feeder struct {
	wake chan struct{}
	stop context.CancelFunc
}

// Run replicates changes to other members and transfers authority. It returns when the node is
// closed. While there is no work, Run rests, and its timer fires only to sweep. A change of a count
// ends the rest, and Run collects the change within collectEvery.
func (h *Handover) Run() {
	var begun time.Time // start of the current round of collection
	over, rests := true, false
	// ready has the members whose feeders are to be woken. They are woken only after all other work
	// is done, because a frame that is sent earlier can delay the transfer of authority.
	var ready []countsync.Member
	tick := time.NewTimer(collectEvery)
	defer tick.Stop()
	review := time.NewTimer(time.Hour) // fires when the next part of a review is due
	defer review.Stop()
	for {
		hurried, due := false, false
		select {
		case <-h.hurry:
			hurried = true
			runtime.Gosched() // on a busy node, more changes are collected in this way
		case <-h.turned:
		case <-h.stirred:
			if rests {
				rests = false
				tick.Reset(collectEvery)
			}
			continue
		case <-review.C:
			found, reviewed := h.stream.ReviewPart(h.cfg.Env.Now(), h.View())
			if !reviewed {
				review.Reset(reviewEvery)
			}
			h.Wake(found)
			continue
		case <-tick.C:
			due, rests = true, false
			if over {
				h.sweep(time.Since(begun))
				begun = time.Now()
			}
		case <-h.cfg.Env.Done():
			return
		}
		if h.View().Stale(h.cfg.Env.Monotonic()) {
			h.Refresh()
		}
		if rests {
			rests = false
			tick.Reset(collectEvery)
		}
		v := h.View()
		if v != h.known {
			h.followView(v)
			review.Reset(reviewEvery) // for the rest of the review, if there is any
			ready = append(ready, v.Hashes...)
		}
		if !hurried && (over || !due) {
			ready = append(ready, h.handExcess(v)...)
			h.enlist()
			h.locate(h.View())
			ready = append(ready, h.membersBehind(v)...)
			v = h.View()
		}
		var more []countsync.Member
		switch {
		case hurried:
			more = h.stream.Collect(h.cfg.Env.Now(), true, v)
		case due:
			more, over = h.stream.CollectPart(h.cfg.Env.Now(), v)
			next := collectEvery / collectParts
			if over {
				next = max(next, collectEvery-time.Since(begun))
				if rests = h.mayRest(v); rests {
					h.waiting, next = 0, h.restFor()
				}
			}
			tick.Reset(next)
		}
		if ready = append(ready, more...); len(h.turned) == 0 {
			h.Wake(ready)
			ready = ready[:0]
		}
	}
}

// Stir ends the rest of Run, and does not block.
func (h *Handover) Stir() { env.Signal(h.stirred) }

// sweep removes old resets from the stream, and the tallies whose units have recovered. It calls
// Sweep once for each collectEvery in the given time, but at least once and at most maxSweeps
// times.
func (h *Handover) sweep(since time.Duration) {
	for range min(max(1, since/collectEvery), maxSweeps) {
		h.stream.Sweep(h.cfg.Env.Now())
	}
}

// mayRest reports whether this node has no work before the next event. The last step of each event
// is a signal on a channel of Run, so an event that mayRest has not seen ends the rest.
func (h *Handover) mayRest(v *view.View) bool {
	if v != h.View() || h.starting.Load() || !v.Stays() || v.Joins() || !v.Settled || !v.Lasts() {
		return false
	}
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) && !h.stream.Idle(m) {
			return false
		}
	}
	return h.cfg.Counts.WakeOnChange(h.stirred)
}

// restFor returns the maximum duration of the next rest of Run. The duration is short only if there are
// tallies or resets to forget.
func (h *Handover) restFor() time.Duration {
	if b := h.stream.Stats(); b.Tallies+b.Resets > 0 {
		return sweepRested
	}
	return time.Hour
}

// followView handles a change of the view. It updates the feeders and the ranges owed to each
// member, and starts a review. The review queues the units that were spent without authority for
// the members that answer for them now.
func (h *Handover) followView(v *view.View) {
	if !h.begun.Load() {
		h.known = v
		return
	}
	if (len(v.Members) > 1 || h.cfg.Regions) && h.owed == nil {
		h.track(v) // without another member or region, changes need not be tracked
	} else if h.owed == nil {
		h.known = v
		return
	}
	h.keepFeeders(v)
	if h.owed == nil || !v.OwesAs(h.known) {
		h.oweRanges(v)
	}
	h.known = v
	h.swap.Lock()
	recalls := h.recalls
	h.recalls = false
	h.swap.Unlock()
	if recalls {
		h.stream.RequestCounts()
	}
	h.stream.Review(h.cfg.Env.Now(), v)
}

// Track makes the store track the units that this node spends, even if there is no other member to
// send them to, because a snapshot must name their origins.
func (h *Handover) Track() { h.track(h.View()) }

// track makes the store record the units that this node spends from now on. All units that are
// already in the store are recorded as spent by this node, because counts of other members arrive
// only after the first call of track. A call has no effect before this node has its name, because
// the units would have no origin.
func (h *Handover) track(v *view.View) {
	if !h.begun.Load() {
		return
	}
	h.tracks.Do(func() {
		var self countsync.Member // 0 once this node has left
		if v.Self >= 0 {
			self = v.Hashes[v.Self]
		}
		h.cfg.Counts.Track(self, h.cfg.Env.Now(), h.hurry)
		h.Stir() // because a store reports no changes before Track
	})
}

// oweRanges makes the stream scan for the counts that each member should receive and is not owed
// yet. For a member that joins again, the stream scans in any case: that member waits until this
// node reports that all counts were sent, even if the member has them already.
func (h *Handover) oweRanges(v *view.View) {
	owed := v.Audiences()
	for m, ranges := range v.OwedAnew(owed, h.known, h.owed) {
		h.stream.Owe(m, ranges)
	}
	h.owed = owed
}

// keepFeeders starts a feeder for each other member that has none, and stops the feeders of members
// that have left the roster.
func (h *Handover) keepFeeders(v *view.View) {
	others := slices.Clone(v.Hashes)
	if v.Self >= 0 {
		others = slices.Delete(others, v.Self, v.Self+1)
	}
	h.stream.Meet(others)
	isGone := func(m countsync.Member) bool {
		i, known := v.Named[m]
		return !known || i == v.Self
	}
	h.swap.Lock()
	maps.DeleteFunc(h.leavers, func(m countsync.Member, _ bool) bool { return isGone(m) })
	h.swap.Unlock()
	h.feeding.Lock()
	defer h.feeding.Unlock()
	for m, f := range h.feeders {
		if isGone(m) {
			f.stop()
			delete(h.feeders, m)
		}
	}
	for _, m := range others {
		if h.feeders[m] == nil {
			ctx, stop := context.WithCancel(h.cfg.Env.Context())
			f := &feeder{make(chan struct{}, 1), stop}
			h.feeders[m] = f
			h.cfg.Env.Go(func() { h.feed(ctx, m, f.wake) })
		}
	}
}

// Wake wakes the feeders of the given members, so that they send the queued data.
func (h *Handover) Wake(members []countsync.Member) {
	h.feeding.Lock()
	defer h.feeding.Unlock()
	for _, m := range members {
		if f := h.feeders[m]; f != nil {
			env.Signal(f.wake)
		}
	}
}

// feed sends the queued data to a member, one frame at a time, while the member is reachable. When a
// member becomes reachable, the view changes, and Run wakes feed.
func (h *Handover) feed(ctx context.Context, member countsync.Member, wake chan struct{}) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	var frame []byte
	for {
		select {
		case <-wake:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		runtime.Gosched()
		for ctx.Err() == nil && h.View().ReachesMember(member) {
			begun, most := time.Now(), frameBytes
			if h.stream.Lag(member, h.cfg.Env.Now()).Counts > longQueue {
				most = longFrameBytes
			}
			v := h.View()
			env.Unsignal(wake) // the next frame includes the data of this signal
			frame = h.stream.Next(member, h.cfg.Env.Now(), v, frame[:0], most)
			made := time.Since(begun)
			if len(frame) == 0 {
				if !h.View().Settled {
					env.Signal(h.turned) // authority may be able to move now
				}
				break
			}
			answer, err := h.send(ctx, member, frame)
			if err == nil {
				var more []countsync.Member
				more, err = h.stream.Answered(member, h.cfg.Env.Now(), answer, h.View())
				h.Wake(more)
			}
			if err != nil {
				h.stream.Lost(member)
				again.Reset(resendAfter)
				break
			}
			if lag := h.stream.Lag(member, h.cfg.Env.Now()); !lag.Transferring && h.View().Serves() {
				// Checks are urgent, and a scan is not. With this pause, a scan uses about a fifth
				// of a processor, and about as much on the receiver; the round trip uses no
				// processor, and does not count. The counts found by a review use about half of the
				// time. No pause is longer than longestPause.
				pause := time.Duration(0)
				switch took := time.Since(begun); {
				case lag.Scanning:
					pause = min(4*made, longestPause)
				case lag.Bulk > 0:
					pause = min(took, longestPause)
				}
				if pause == 0 {
					continue
				}
				if again.Reset(pause); !h.waitForTimer(ctx, again) {
					return
				}
			}
		}
	}
}

// waitForTimer waits for the timer, and returns false if ctx is done first.
func (h *Handover) waitForTimer(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send sends a frame to a member, directly or through other members, and returns the answer.
func (h *Handover) send(ctx context.Context, member countsync.Member, frame []byte) ([]byte, error) {
	v := h.View()
	i, known := v.Named[member]
	if !known || v.Next[i] < 0 || v.Next[i] != i && !v.Overdue(i, h.cfg.Env.Monotonic()) {
		// Until a member has been lost for a while, the other members may be wrong about their
		// own connections to the member. A frame that they cannot deliver would delay the next
		// frames.
		return nil, cluster.ErrDisconnected
	}
	header := wire.Header{Op: wire.OpStream, Hops: wire.MaxHops, Wait: frameWait, To: member}
	return env.Call(ctx, v.Members[v.Next[i]].Peer, header, frame, frameWait)
}

// ServeFrame applies a frame of another member, and returns the answer, or nil if the frame is not
// valid. If the frame transfers authority, this node has that authority when ServeFrame returns. So
// this node decides later requests on the same connection with that authority.
func (h *Handover) ServeFrame(request []byte, now int64, dst []byte) []byte {
	v := h.View()
	h.track(v)
	answer, arrival, err := h.stream.Serve(now, request, v, wire.AppendResponse(dst, wire.Done, 0))
	h.Stir() // the changes in the frame may be for other members too
	if err != nil {
		return nil
	}
	h.Arrived(arrival)
	return answer
}

// Arrived handles the arrival of a frame, and replaces the view if the frame transfers authority,
// or its sender leaves. Gossip may not have reported the leave yet.
func (h *Handover) Arrived(a countsync.Arrival) {
	if a.Authority == nil && !a.Complete && !a.Leaving {
		return
	}
	h.swap.Lock()
	defer h.swap.Unlock()
	before := h.View()
	v := before
	if a.Complete && !h.complete[a.From] {
		h.complete[a.From] = true
		env.Signal(h.turned)
	}
	if a.Leaving && !h.leavers[a.From] {
		h.leavers[a.From] = true
		v = view.New(h.cfg.Env.Monotonic(), h.cfg.Cluster.View(), h.terms(), v)
	}
	if a.Authority != nil {
		v = v.ReceiveRanges(a.Authority)
	}
	if v != before {
		h.replace(v)
	}
}

// membersBehind returns the reachable members to which this node still has to send counts: the
// queue of the member is not empty, or a scan for the member is running.
func (h *Handover) membersBehind(v *view.View) (behind []countsync.Member) {
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) {
			if lag := h.stream.Lag(m, h.cfg.Env.Now()); lag.Counts > 0 || lag.Scanning {
				behind = append(behind, m)
			}
		}
	}
	return behind
}

// Stats returns the backlog of all reachable members, and the sizes and counters of the stream.
func (h *Handover) Stats() (s Stats) {
	v, now := h.View(), h.cfg.Env.Now()
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) {
			lag := h.stream.Lag(m, now)
			s.Unsent += lag.Counts
			s.Lag = max(s.Lag, lag.Age)
		}
	}
	b := h.stream.Stats()
	s.Tallies, s.Resets, s.Bytes = b.Tallies, b.Resets, b.Bytes
	s.Sent = b.Sent
	s.TalliesDropped, s.ResetsDropped = b.TalliesDropped, b.ResetsDropped
	return s
}

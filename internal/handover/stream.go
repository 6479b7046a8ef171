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
	// collectEvery is how long a change waits at most to be queued; it is to be
	// there within 100 ms. It is no part of any other time, so that in virtual time
	// nothing that began with one round falls together with another.
	collectEvery = 50*time.Millisecond - 9
	// sweepRested is the time between two rounds of a node that rests and has tallies or resets to
	// forget. A round makes one sweep for each omitted round, so a tally lives at most this much longer.
	sweepRested = time.Second - 9
	maxSweeps   = 128 // the number of sweeps in one round, which visit all tallies
	// reviewEvery is the time between two parts of a review: it takes a fifth of a
	// processor's time, and two seconds for a million resets.
	reviewEvery = time.Millisecond - 7
	// collectParts is in how many parts it is taken in, at most, where much
	// changes.
	collectParts = 16
	// frameBytes bounds a frame, and so how long it keeps checks waiting that
	// come after it on the same connection; longFrameBytes does where longQueue
	// counts wait, since a frame goes each time one is answered.
	frameBytes     = 16 << 10
	longFrameBytes = 40 << 10
	longQueue      = 2048
	// frameWait is how long a frame may go unanswered, also on a way of several slow hops:
	// what is given up each time just before its answer comes never gets there.
	frameWait = time.Second
	// longestPause is the longest time between two frames of a scan.
	longestPause = 20 * time.Millisecond
	// resendAfter is when a frame that was not answered is tried again.
	resendAfter = 50 * time.Millisecond
)

// feeder is what wakes the goroutine that sends to one member.
type feeder struct {
	wake chan struct{}
	stop context.CancelFunc
}

// Run sends changes to other members and transfers authority. It returns when the node is closed. While
// no count changes, Run rests, and its timer fires only to sweep. A change ends the rest, and Run collects
// the change within collectEvery.
func (h *Handover) Run() {
	var begun time.Time // the round of collecting that is under way
	over, rests := true, false
	// The members that are to be sent something are woken once all is done: what is sent before
	// decides whether authority moves now or later.
	var ready []countsync.Member
	tick := time.NewTimer(collectEvery)
	defer tick.Stop()
	review := time.NewTimer(time.Hour) // of the next part of one that is under way
	defer review.Stop()
	for {
		hurried, due := false, false
		select {
		case <-h.hurry:
			hurried = true
			runtime.Gosched() // what else hurries on a busy node goes along
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
			h.turn(v)
			review.Reset(reviewEvery) // nothing may be left of it
			ready = append(ready, v.Hashes...)
		}
		if !hurried && (over || !due) {
			ready = append(ready, h.handExcess(v)...)
			h.enlist()
			h.locate(h.View())
			ready = append(ready, h.behind(v)...)
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

// Stir ends the rest of Run. It does not block.
func (h *Handover) Stir() { env.Signal(h.stirred) }

// sweep makes the stream forget recovered tallies, in one step for each round in the given time.
func (h *Handover) sweep(since time.Duration) {
	for range min(max(1, since/collectEvery), maxSweeps) {
		h.stream.Sweep(h.cfg.Env.Now())
	}
}

// mayRest reports whether this node has no work before the next event. Each event signals a channel of
// Run after it has happened, so an event that mayRest does not see ends the rest.
func (h *Handover) mayRest(v *view.View) bool {
	if v != h.View() || h.starting.Load() || !v.Stays() || v.Joins() || !v.Settled || !v.Lasts() {
		return false
	}
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) && !h.stream.Idle(m) {
			return false
		}
	}
	return h.cfg.Counts.Rest(h.stirred)
}

// restFor returns the longest rest. Only tallies and resets need a short one.
func (h *Handover) restFor() time.Duration {
	if b := h.stream.Stats(); b.Tallies+b.Resets > 0 {
		return sweepRested
	}
	return time.Hour
}

// turn takes a changed view into account: which members are there, which is to have what,
// and which answers for what was spent without authority.
func (h *Handover) turn(v *view.View) {
	if !h.begun.Load() {
		h.known = v
		return
	}
	if (len(v.Members) > 1 || h.cfg.Regions) && h.owed == nil {
		h.track(v) // a node that has nobody to tell, in this region or another, notes nothing
	} else if h.owed == nil {
		h.known = v
		return
	}
	h.meet(v)
	if h.owed == nil || !v.OwesAs(h.known) {
		h.owe(v)
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

// Track has the store note what this node spends before there is another to tell, as what
// is written is to name its origins.
func (h *Handover) Track() { h.track(h.View()) }

// track has the store note from now on what this node spends, as its own, and all that it
// has until then: what others have spent comes after that. Before this node has its name
// it does nothing, as what is noted would be nobody's.
func (h *Handover) track(v *view.View) {
	if !h.begun.Load() {
		return
	}
	h.tracks.Do(func() {
		var self countsync.Member // nobody, once this node has left
		if v.Self >= 0 {
			self = v.Hashes[v.Self]
		}
		h.cfg.Counts.Track(self, h.cfg.Env.Now(), h.hurry)
		h.Stir() // the store that was not tracked had no changes
	})
}

// owe has the stream scan what each member is to have that it is not owed yet. Who
// joins again waits to be told that it has all, also where that is what it had.
func (h *Handover) owe(v *view.View) {
	owed := v.Audiences()
	for m, ranges := range v.OwedAnew(owed, h.known, h.owed) {
		h.stream.Owe(m, ranges)
	}
	h.owed = owed
}

// meet keeps a feeder for each other member.
func (h *Handover) meet(v *view.View) {
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

// Wake has what waits for these members sent.
func (h *Handover) Wake(members []countsync.Member) {
	h.feeding.Lock()
	defer h.feeding.Unlock()
	for _, m := range members {
		if f := h.feeders[m]; f != nil {
			env.Signal(f.wake)
		}
	}
}

// feed sends one member what it is to have, a frame at a time, while it is reached:
// whatever makes it so changes the view, which wakes this.
func (h *Handover) feed(ctx context.Context, to countsync.Member, wake chan struct{}) {
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
		for ctx.Err() == nil && h.View().ReachesMember(to) {
			begun, most := time.Now(), frameBytes
			if h.stream.Lag(to, h.cfg.Env.Now()).Counts > longQueue {
				most = longFrameBytes
			}
			v := h.View()
			env.Unsignal(wake) // this frame has what it was for
			frame = h.stream.Next(to, h.cfg.Env.Now(), v, frame[:0], most)
			made := time.Since(begun)
			if len(frame) == 0 {
				if !h.View().Settled {
					env.Signal(h.turned) // authority can move now
				}
				break
			}
			answer, err := h.send(ctx, to, frame)
			if err == nil {
				var more []countsync.Member
				more, err = h.stream.Answered(to, h.cfg.Env.Now(), answer, h.View())
				h.Wake(more)
			}
			if err != nil {
				h.stream.Lost(to)
				again.Reset(resendAfter)
				break
			}
			if lag := h.stream.Lag(to, h.cfg.Env.Now()); !lag.Transferring && h.View().Serves() {
				// Checks are in a hurry, and a scan is not: it takes a fifth of a processor's
				// time, and the member that takes it in needs about as much. The way there and back is no
				// work. What a review has found takes half of the time.
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
				if again.Reset(pause); !h.rest(ctx, again) {
					return
				}
			}
		}
	}
}

// rest waits for the timer; false if ctx ends first.
func (h *Handover) rest(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send asks a member to take in a frame, directly or through others.
func (h *Handover) send(ctx context.Context, to countsync.Member, frame []byte) ([]byte, error) {
	v := h.View()
	i, known := v.Named[to]
	if !known || v.Next[i] < 0 || v.Next[i] != i && !v.Overdue(i, h.cfg.Env.Monotonic()) {
		// Until a member has been lost for a while, others may be wrong about hearing it:
		// a frame that gets lost among them keeps waiting what comes after it.
		return nil, cluster.ErrDisconnected
	}
	header := wire.Header{Op: wire.OpStream, Hops: wire.MaxHops, Wait: frameWait, To: to}
	return env.Call(ctx, v.Members[v.Next[i]].Peer, header, frame, frameWait)
}

// ServeFrame takes in a frame of another member, and answers it. Authority that
// comes with it is this node's when it returns: what comes after it on the same
// connection finds it here.
func (h *Handover) ServeFrame(request []byte, now int64, dst []byte) []byte {
	v := h.View()
	h.track(v)
	answer, arrival, err := h.stream.Serve(now, request, v, wire.AppendResponse(dst, wire.Done, 0))
	h.Stir() // the frame may have news for other members
	if err != nil {
		return nil
	}
	h.Arrived(arrival)
	return answer
}

// Arrived swaps the view if what came with a frame changes it. The sender may be
// one that gossip has not told of yet.
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

// behind returns the reachable members to which this node still has to send counts, because the queue of
// the member is not empty or a scan for it is running.
func (h *Handover) behind(v *view.View) (behind []countsync.Member) {
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) {
			if lag := h.stream.Lag(m, h.cfg.Env.Now()); lag.Counts > 0 || lag.Scanning {
				behind = append(behind, m)
			}
		}
	}
	return behind
}

// Stats returns the backlog of all reachable members.
func (h *Handover) Stats() (s Stats) {
	v := h.View()
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) {
			lag := h.stream.Lag(m, h.cfg.Env.Now())
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

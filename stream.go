package weir

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
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

// stream has this node's counts agree with the others': it carries what
// countsync says, and moves authority once counts are where it goes.
type stream struct {
	*countsync.Stream
	hurry  chan struct{} // some count has spent a sixteenth of its limit since it was last sent
	turned chan struct{} // the view has changed
	tracks sync.Once     // before the first frame comes or goes

	// swap orders what replaces the node's view, and guards what else a view
	// is made by.
	swap     sync.Mutex
	leavers  map[countsync.Member]bool // members that have said themselves that they leave, before gossip does
	complete map[countsync.Member]bool // members that have sent this node, which joins, all that it is to have
	recalls  bool                      // a view since the last turn recalls copies

	feeding sync.Mutex
	feeders map[countsync.Member]*feeder

	// Of the goroutine in keepInStep.
	owed  map[countsync.Member]countsync.Ranges // what each member is to have
	known *view.View                            // the view that owed is of
	moves uint64                                // of authority

	waiting  int64       // since when this node waits for authority from others, by steady; of keepInStep
	located  int64       // when it last asked who has it; of keepInStep
	warned   bool        // that this takes long has been logged; of keepInStep
	locating atomic.Bool // a round of asking is under way

	lag atomic.Pointer[StreamStats]
}

// feeder is what wakes the goroutine that sends to one member.
type feeder struct {
	wake chan struct{}
	stop context.CancelFunc
}

func newStream(counts *bucket.Store) *stream {
	return &stream{
		Stream:   countsync.New(0, counts),
		hurry:    make(chan struct{}, 1),
		turned:   make(chan struct{}, 1),
		leavers:  make(map[countsync.Member]bool),
		complete: make(map[countsync.Member]bool),
		feeders:  make(map[countsync.Member]*feeder),
	}
}

// keepInStep sends what changes, and moves authority, until the node closes.
func (n *Node) keepInStep() {
	var begun time.Time // the round of collecting that is under way
	over := true        // there is none
	// Who is to be sent something is woken once all is done: what is sent before
	// decides whether authority moves now or later.
	var ready []countsync.Member
	tick := time.NewTimer(collectEvery)
	defer tick.Stop()
	review := time.NewTimer(time.Hour) // of the next part of one that is under way
	defer review.Stop()
	for {
		hurried, due := false, false
		select {
		case <-n.stream.hurry:
			hurried = true
			runtime.Gosched() // what else hurries on a busy node goes along
		case <-n.stream.turned:
		case <-review.C:
			found, reviewed := n.stream.ReviewPart(n.clock.Now(), n.view.Load())
			if !reviewed {
				review.Reset(reviewEvery)
			}
			n.wake(found)
			continue
		case <-tick.C:
			due = true
			if over {
				begun = time.Now()
				n.stream.Sweep(n.clock.Now())
			}
		case <-n.life.Done():
			return
		}
		if n.view.Load().Stale(n.clock.Steady()) {
			n.look()
		}
		v := n.view.Load()
		if v != n.stream.known {
			n.turn(v)
			review.Reset(reviewEvery) // nothing may be left of it
			ready = append(ready, v.Hashes...)
		}
		if !hurried && (over || !due) {
			ready = append(ready, n.handExcess(v)...)
			n.enlist()
			n.locate(n.view.Load())
			ready = append(ready, n.measure(v)...)
			v = n.view.Load()
		}
		var more []countsync.Member
		switch {
		case hurried:
			more = n.stream.Collect(n.clock.Now(), true, v)
		case due:
			more, over = n.stream.CollectPart(n.clock.Now(), v)
			next := collectEvery / collectParts
			if over {
				next = max(next, collectEvery-time.Since(begun))
			}
			tick.Reset(next)
		}
		if ready = append(ready, more...); len(n.stream.turned) == 0 {
			n.wake(ready)
			ready = ready[:0]
		}
	}
}

// turn takes a changed view into account: who is there, who is to have what, and
// who answers for what was spent without authority.
func (n *Node) turn(v *view.View) {
	s := n.stream
	if (len(v.Members) > 1 || n.regions.Holdings != nil) && s.owed == nil {
		n.track(v) // who has nobody to tell, in this region or another, notes nothing
	} else if s.owed == nil {
		s.known = v
		return
	}
	n.meet(v)
	if s.owed == nil || !v.OwesAs(s.known) {
		n.owe(v)
	}
	s.known = v
	s.swap.Lock()
	recalls := s.recalls
	s.recalls = false
	s.swap.Unlock()
	if recalls {
		s.RequestCounts()
	}
	s.Review(n.clock.Now(), v)
}

// track has the store note from now on what this node spends, as its own, and all that it
// has until then: what others have spent comes after that.
func (n *Node) track(v *view.View) {
	n.stream.tracks.Do(func() {
		var self countsync.Member // nobody, once this node has left
		if v.Self >= 0 {
			self = v.Hashes[v.Self]
		}
		n.counts.Track(self, n.clock.Now(), n.stream.hurry)
	})
}

// owe has the stream scan what each member is to have that it is not owed yet. Who
// joins again waits to be told that it has all, also where that is what it had.
func (n *Node) owe(v *view.View) {
	s := n.stream
	owed := v.Audiences()
	for m, ranges := range v.OwedAnew(owed, s.known, s.owed) {
		s.Owe(m, ranges)
	}
	s.owed = owed
}

// meet keeps a feeder for each other member.
func (n *Node) meet(v *view.View) {
	s := n.stream
	others := slices.Clone(v.Hashes)
	if v.Self >= 0 {
		others = slices.Delete(others, v.Self, v.Self+1)
	}
	s.Meet(others)
	s.swap.Lock()
	maps.DeleteFunc(s.leavers, func(m countsync.Member, _ bool) bool { return !slices.Contains(others, m) })
	s.swap.Unlock()
	s.feeding.Lock()
	defer s.feeding.Unlock()
	for m, f := range s.feeders {
		if !slices.Contains(others, m) {
			f.stop()
			delete(s.feeders, m)
		}
	}
	for _, m := range others {
		if s.feeders[m] == nil {
			ctx, stop := context.WithCancel(n.life.Context())
			f := &feeder{make(chan struct{}, 1), stop}
			s.feeders[m] = f
			n.life.Go(func() { n.feed(ctx, m, f.wake) })
		}
	}
}

// wake has what waits for these members sent.
func (n *Node) wake(members []countsync.Member) {
	n.stream.feeding.Lock()
	defer n.stream.feeding.Unlock()
	for _, m := range members {
		if f := n.stream.feeders[m]; f != nil {
			env.Signal(f.wake)
		}
	}
}

// feed sends one member what it is to have, a frame at a time, while it is reached:
// whatever makes it so changes the view, which wakes this.
func (n *Node) feed(ctx context.Context, to countsync.Member, wake chan struct{}) {
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
		for ctx.Err() == nil && n.view.Load().ReachesMember(to) {
			begun, most := time.Now(), frameBytes
			if n.stream.Lag(to, n.clock.Now()).Counts > longQueue {
				most = longFrameBytes
			}
			v := n.view.Load()
			env.Unsignal(wake) // this frame has what it was for
			frame = n.stream.Next(to, n.clock.Now(), v, frame[:0], most)
			made := time.Since(begun)
			if len(frame) == 0 {
				if !n.view.Load().Settled {
					env.Signal(n.stream.turned) // authority can move now
				}
				break
			}
			answer, err := n.send(ctx, to, frame)
			if err == nil {
				var more []countsync.Member
				more, err = n.stream.Answered(to, n.clock.Now(), answer, n.view.Load())
				n.wake(more)
			}
			if err != nil {
				n.stream.Lost(to)
				again.Reset(resendAfter)
				break
			}
			if lag := n.stream.Lag(to, n.clock.Now()); !lag.Giving && n.view.Load().Serves() {
				// Checks are in a hurry, and a scan is not: it takes a fifth of a processor's
				// time, and whoever takes it in about as much. The way there and back is no
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
				if again.Reset(pause); !n.rest(ctx, again) {
					return
				}
			}
		}
	}
}

// rest waits for the timer; false if ctx ends first.
func (n *Node) rest(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send asks a member to take in a frame, directly or through others.
func (n *Node) send(ctx context.Context, to countsync.Member, frame []byte) ([]byte, error) {
	v := n.view.Load()
	i, known := v.Named[to]
	if !known || v.Next[i] < 0 || v.Next[i] != i && !v.Overdue(i, n.clock.Steady()) {
		// Until a member has been lost for a while, others may be wrong about hearing it:
		// a frame that gets lost among them keeps waiting what comes after it.
		return nil, cluster.ErrUnheard
	}
	h := wire.Header{Op: wire.OpStream, Hops: wire.MaxHops, Wait: frameWait, To: to}
	return env.Call(ctx, v.Members[v.Next[i]].Peer, h, frame, frameWait)
}

// serveFrame takes in a frame of another member, and answers it. Authority that
// comes with it is this node's when it returns: what comes after it on the same
// connection finds it here.
func (n *Node) serveFrame(request []byte, now int64, dst []byte) []byte {
	v := n.view.Load()
	n.track(v)
	answer, arrival, err := n.stream.Serve(now, request, v, wire.AppendAnswer(dst, wire.Done, 0))
	if err != nil {
		return nil
	}
	n.arrived(arrival)
	return answer
}

// arrived swaps the view if what came with a frame changes it. The sender may be
// one that gossip has not told of yet.
func (n *Node) arrived(a countsync.Arrival) {
	if a.Given == nil && !a.Complete && !a.Leaving {
		return
	}
	s := n.stream
	s.swap.Lock()
	defer s.swap.Unlock()
	before := n.view.Load()
	v := before
	if a.Complete && !s.complete[a.From] {
		s.complete[a.From] = true
		env.Signal(s.turned)
	}
	if a.Leaving && !s.leavers[a.From] {
		s.leavers[a.From] = true
		v = view.New(n.clock.Steady(), n.cluster.View(), n.terms(), v)
	}
	if a.Given != nil {
		v = v.Given(a.Given)
	}
	if v != before {
		n.replace(v)
	}
}

// measure notes how far the members that are heard are behind, and says for whom
// something waits.
func (n *Node) measure(v *view.View) (behind []countsync.Member) {
	var s StreamStats
	for i, m := range v.Hashes {
		if i != v.Self && v.Reaches(i) {
			lag := n.stream.Lag(m, n.clock.Now())
			s.Unsent += lag.Counts
			s.Lag = max(s.Lag, lag.Age)
			if lag.Counts > 0 || lag.Scanning {
				behind = append(behind, m)
			}
		}
	}
	b := n.stream.Beside()
	s.Tallies, s.Resets, s.Bytes = b.Tallies, b.Resets, b.Bytes
	s.Sent = b.Sent
	s.TalliesDropped, s.ResetsDropped = b.TalliesDropped, b.ResetsDropped
	n.stream.lag.Store(&s)
	return behind
}

func (n *Node) streamStats() StreamStats {
	if s := n.stream.lag.Load(); s != nil {
		return *s
	}
	return StreamStats{}
}

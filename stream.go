package weir

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// collectEvery is how long a change waits at most to be queued; it is to be
	// there within 100 ms.
	collectEvery = 50 * time.Millisecond
	// frameBytes bounds a frame, and so how long it keeps checks waiting that
	// come after it on the same connection.
	frameBytes = 16 << 10
	// frameWait is how long a frame may go unanswered.
	frameWait = time.Second
	// longestPause is the longest time between two frames of a scan.
	longestPause = 20 * time.Millisecond
	// resendAfter is when a frame that was not answered is tried again.
	resendAfter = 50 * time.Millisecond
	// cedeBelow is how many counts may wait to be sent when authority moves:
	// about what goes into one frame.
	cedeBelow = 256
	// handOverFor bounds Leave.
	handOverFor = 10 * time.Second
)

// stream has this node's counts agree with the others': it carries what
// countsync says, and moves authority once counts are where it goes.
type stream struct {
	*countsync.Stream               // nil until a view has this node in it
	hurry             chan struct{} // some count has spent a sixteenth of its limit since it was last sent
	turned            chan struct{} // the view has changed

	// swap orders what replaces the node's view, and guards what else a view
	// is made by.
	swap     sync.Mutex
	leavers  map[countsync.Member]bool // members that have said themselves that they leave, before gossip does
	complete map[countsync.Member]bool // members that have sent this node, which joins, all that it is to have

	feeding sync.Mutex
	feeders map[countsync.Member]*feeder

	// Of the goroutine in keepInStep.
	owed  map[countsync.Member]countsync.Ranges // what each member is to have
	known *view                                 // the view that owed is of
	moves uint64                                // of authority

	lag atomic.Pointer[StreamStats]
}

// feeder is what wakes the goroutine that sends to one member.
type feeder struct {
	wake chan struct{}
	stop context.CancelFunc
}

func newStream() *stream {
	return &stream{
		hurry:    make(chan struct{}, 1),
		turned:   make(chan struct{}, 1),
		leavers:  make(map[countsync.Member]bool),
		complete: make(map[countsync.Member]bool),
		feeders:  make(map[countsync.Member]*feeder),
	}
}

// keepInStep sends what changes, and moves authority, until the node closes.
func (n *Node) keepInStep() {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		hurried, turned := false, false
		select {
		case <-n.stream.hurry:
			hurried = true
			runtime.Gosched() // what else hurries on a busy node goes along
		case <-n.stream.turned:
			turned = true
		case <-tick.C:
			n.stream.Sweep(n.now())
		case <-n.life.Done():
			return
		}
		if n.view.Load().stale(n.now()) {
			n.look()
		}
		v := n.view.Load()
		if v != n.stream.known {
			n.turn(v)
		}
		if !hurried {
			n.handExcess(v)
			n.enlist()
			n.measure(v)
			v = n.view.Load()
		}
		if !turned {
			n.wake(n.stream.Collect(n.now(), hurried, v))
		}
	}
}

// turn takes a changed view into account: who is there, who is to have what, and
// who answers for what was spent without authority.
func (n *Node) turn(v *view) {
	s := n.stream
	if len(v.Members) > 1 && s.owed == nil {
		n.counts.Track(s.hurry) // a node that has met nobody notes nothing
	} else if s.owed == nil {
		s.known = v
		return
	}
	n.meet(v)
	owed := v.audiences()
	for i, m := range v.hashes {
		ranges, known := owed[m]
		if !known || i == v.Self {
			continue
		}
		before, met := s.owed[m]
		if more := ranges.Minus(before); len(more) > 0 || !met {
			s.Owe(m, more)
		}
	}
	s.owed, s.known = owed, v
	n.wake(s.Review(n.now(), v))
	n.wake(v.hashes)
}

// meet keeps a feeder for each other member.
func (n *Node) meet(v *view) {
	s := n.stream
	others := slices.Clone(v.hashes)
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
			ctx, stop := context.WithCancel(n.life)
			f := &feeder{make(chan struct{}, 1), stop}
			s.feeders[m] = f
			n.tasks.Go(func() { n.feed(ctx, m, f.wake) })
		}
	}
}

// wake has what waits for these members sent.
func (n *Node) wake(members []countsync.Member) {
	n.stream.feeding.Lock()
	defer n.stream.feeding.Unlock()
	for _, m := range members {
		if f := n.stream.feeders[m]; f != nil {
			signal(f.wake)
		}
	}
}

// feed sends one member what it is to have, a frame at a time.
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
		for ctx.Err() == nil {
			begun := time.Now()
			frame = n.stream.Next(to, n.now(), n.view.Load(), frame[:0], frameBytes)
			if len(frame) == 0 {
				if !n.view.Load().settled {
					signal(n.stream.turned) // authority can move now
				}
				break
			}
			answer, err := n.send(ctx, to, frame)
			if err == nil {
				var more []countsync.Member
				more, err = n.stream.Answered(to, n.now(), answer, n.view.Load())
				n.wake(more)
			}
			if err != nil {
				n.stream.Lost(to)
				again.Reset(resendAfter)
				break
			}
			if n.view.Load().serves() && n.stream.Lag(to, n.now()).Scanning {
				// It is in no hurry, and checks are: it takes a fifth of the time.
				if again.Reset(min(4*time.Since(begun), longestPause)); n.rest(ctx, again) {
					continue
				}
				return
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
	i, known := v.named[to]
	if !known || v.next[i] < 0 {
		return nil, cluster.ErrUnheard
	}
	wait := frameWait
	if v.next[i] != i { // whoever hands it on is not to blame
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, frameWait/2)
		defer cancel()
	}
	request := append(header{op: opStream, hops: maxHops, wait: frameWait / 2, to: to}.append(nil), frame...)
	answer, err := v.Members[v.next[i]].Peer.Ask(ctx, request, nil, wait)
	if err != nil {
		return nil, err
	}
	switch s, err := parseAnswer(answer, 0); {
	case err != nil:
		return nil, err
	case s == statusUnreached:
		return nil, errUnreached
	}
	return answer[answerHeaderBytes:], nil
}

// serveFrame takes in a frame of another member, and answers it. Authority that
// comes with it is this node's when it returns: what comes after it on the same
// connection finds it here.
func (n *Node) serveFrame(frame []byte, now int64, dst []byte) []byte {
	v := n.view.Load()
	if v.yields() && !n.starting.Load() {
		// What this node has counted is on its way to who has authority now,
		// and must not be overwritten before.
		return appendAnswer(dst, statusUnreached, 0)
	}
	answer, arrival, err := n.stream.Serve(now, frame, v, appendAnswer(dst, statusDone, 0))
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
		signal(s.turned)
	}
	if a.Leaving && !s.leavers[a.From] {
		s.leavers[a.From] = true
		v = newView(n.now(), n.cluster.View(), n.terms(), v)
	}
	if a.Given != nil {
		v = v.given(a.Given)
	}
	if v != before {
		n.replace(v)
	}
}

// handExcess hands over what this node holds and another owns, as soon as the other
// has all but the last changes.
func (n *Node) handExcess(v *view) {
	if v.settled || len(v.held) == 0 {
		return
	}
	excess := v.held.Minus(v.want)
	for _, i := range v.points {
		if i == v.Self || !v.reaches(i) {
			continue
		}
		ranges := v.owned(i).Intersect(excess)
		if len(ranges) == 0 {
			continue
		}
		if lag := n.stream.Lag(v.hashes[i], n.now()); lag.Scanning || lag.Counts > cedeBelow {
			n.wake(v.hashes[i : i+1])
			continue
		}
		n.cede(v.hashes[i], ranges)
	}
}

// cede gives authority away. From the swap on this node passes checks on; what
// those spend that are still at it with the view before is collected as spent
// without authority.
func (n *Node) cede(to countsync.Member, ranges countsync.Ranges) {
	s := n.stream
	n.wake(s.Collect(n.now(), false, n.view.Load()))
	s.swap.Lock()
	n.replace(n.view.Load().ceded(ranges))
	s.swap.Unlock()
	n.wake(s.Collect(n.now(), false, n.view.Load()))
	s.moves++
	s.Give(to, s.moves, ranges, n.now())
	n.wake([]countsync.Member{to})
}

// enlist has this node own its part of the ring, once it has been sent what it
// needs for that; or at once if there is nobody who could send it anything.
func (n *Node) enlist() {
	v := n.view.Load()
	if n.starting.Load() || v.Self < 0 || v.Members[v.Self].Announced != cluster.Joining || !n.mayServe(v) {
		return
	}
	if err := n.cluster.Announce(cluster.Serving); err != nil {
		return // it has left or is closed
	}
	n.stream.swap.Lock()
	clear(n.stream.complete)
	n.stream.swap.Unlock()
	n.look()
}

// mayServe says that a joiner has all that it is to have. If nobody serves, the
// eldest of those who would begins.
func (n *Node) mayServe(v *view) bool {
	if len(v.points) == 0 {
		self := &v.Members[v.Self]
		for i, m := range v.Members {
			if v.next[i] >= 0 && m.Announced == cluster.Joining && (m.Born.Before(self.Born) || m.Born.Equal(self.Born) && m.Name < self.Name) {
				return false
			}
		}
		return true
	}
	if v.side < len(v.points) || v.yields() {
		return false
	}
	n.stream.swap.Lock()
	defer n.stream.swap.Unlock()
	for _, i := range v.points {
		if !n.stream.complete[v.hashes[i]] {
			return false
		}
	}
	return true
}

// errUnfinished: Leave could not hand everything over.
var errUnfinished = errors.New("weir: leaving: not every count was handed over in time: what had not been sent to a replica is lost")

// handOver announces that this node leaves, and waits until it holds nothing and
// all that it has to tell is told.
func (n *Node) handOver(ctx context.Context) error {
	v := n.view.Load()
	if v.Self < 0 || len(v.Members) == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverFor)
	defer cancel()
	n.stream.Leaving()
	if n.cluster.Announce(cluster.Leaving) != nil {
		return nil // it has left, or is closed
	}
	n.look()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !n.handedOver() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errUnfinished
		case <-n.life.Done():
			return ErrClosed
		}
	}
	return nil
}

// handedOver says that nothing is left to hand over to anyone who is reached.
func (n *Node) handedOver() bool {
	v := n.view.Load()
	if len(v.held) > 0 && len(v.points) > 0 && v.side > 0 {
		return false
	}
	for i, m := range v.hashes {
		if i != v.Self && v.Direct[i] && !n.stream.Idle(m) {
			return false
		}
	}
	return true
}

// StreamStats says how far the replicas are behind, and what is to be told yet.
type StreamStats struct {
	Unsent  int           // counts whose last changes some member has not acknowledged
	Lag     time.Duration // how long the oldest of these has waited
	Tallies int           // counts that were spent from without authority, and have not recovered
}

// measure notes how far the members that are heard are behind, and sees to it
// that what waits for them is sent.
func (n *Node) measure(v *view) {
	var s StreamStats
	for i, m := range v.hashes {
		if i != v.Self && v.reaches(i) {
			lag := n.stream.Lag(m, n.now())
			s.Unsent += lag.Counts
			s.Lag = max(s.Lag, lag.Age)
			if lag.Counts > 0 || lag.Scanning {
				n.wake(v.hashes[i : i+1])
			}
		}
	}
	s.Tallies = n.stream.Tallies()
	n.stream.lag.Store(&s)
}

func (n *Node) streamStats() StreamStats {
	if s := n.stream.lag.Load(); s != nil {
		return *s
	}
	return StreamStats{}
}

package weir

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/pace"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// exchangeWait is how long another region may take to answer.
	exchangeWait = 2 * time.Second
	// exchangesAtOnce bounds the messages under way to one region.
	exchangesAtOnce = 32
	// greetEvery is how often a region that has not been heard is told of this one,
	// in exchanges.
	greetEvery = 10
)

// regions has this region's holdings of Global limits follow its demand: it
// carries what countsync says to the other regions, and what they say.
type regions struct {
	*countsync.Holdings // nil where there are no other regions
	links               map[string]*regionLink
}

// regionLink counts what goes to and fro between this node and a region.
type regionLink struct {
	places                         *semaphore.Weighted // one for each message under way
	disagrees                      atomic.Bool         // how limits are shared out
	answered                       atomic.Int64        // when it last did, by the steady clock; 0 if never
	waits                          atomic.Int64        // since when it has not, though it was told something; 0 if it has
	statements, unanswered, served atomic.Uint64
	disputed, refused              atomic.Uint64
	disputes                       pace.Pace
	quota                          quota
	sentBytes, receivedBytes       atomic.Uint64
}

// HoldingStats says what this node keeps of its region's part of Global limits.
// Without other regions it is zero.
type HoldingStats struct {
	Keys   int    // that have a holding here, also as a copy of another node's; at most 262,144
	Beyond uint64 // times that a key was asked for that there was no room for: it is judged by the part that the region begins with. It only grows
}

// RegionStats says what this node has told another region of Global limits.
type RegionStats struct {
	Reached    bool          // it answered within the last ten seconds; a region that nothing is told is not asked either
	Lag        time.Duration // how long it has left all statements unanswered, since the first of them; zero once it answers one
	Statements uint64        // sent: each is of one key
	Unanswered uint64        // of these
	Served     uint64        // statements of that region that were answered here
	Disputed   uint64        // messages that were refused because the region shares limits out in another way: its Regions or RegionShares differ
	Refused    uint64        // requests of that region that were refused: beyond 2,000, 200 counts to reset or 16 MiB in a second, of a Regional limit, of a time to come, or not a region's to make
	Sent       uint64        // bytes of statements and answers, without what the connection adds
	Received   uint64        // bytes of the same
}

func (n *Node) newRegions() {
	r := &n.regions
	if len(n.cfg.Regions) == 0 {
		return
	}
	others := slices.Collect(maps.Keys(n.cfg.Regions))
	r.links = make(map[string]*regionLink)
	for _, name := range others {
		r.links[name] = &regionLink{places: semaphore.NewWeighted(exchangesAtOnce)}
	}
	r.Holdings = countsync.NewHoldings(countsync.NewRegions(n.cfg.Region, others, n.cfg.RegionShares), 0, n.counts, n.clock.Time())
}

// regain has this node ask what its region holds of what it has come to hold, where
// nobody had a copy of that.
func (n *Node) regain(before, v *view.View) {
	if n.regions.Holdings != nil && n.cfg.Replicas < 0 && len(v.Held.Minus(before.Held)) > 0 {
		n.regions.Forgotten(n.clock.Time())
	}
}

// keepHoldings states to the other regions what there is to state, until the node
// closes.
func (n *Node) keepHoldings() {
	tick := time.NewTimer(countsync.ExchangeEvery + n.view.Load().Offset(countsync.ExchangeEvery))
	defer tick.Stop()
	for i := 0; ; i++ {
		if i%greetEvery == 0 {
			for _, region := range n.regions.Unknown() {
				n.state(region, nil)
			}
		}
		select {
		case <-tick.C:
			tick.Reset(countsync.ExchangeEvery)
		case <-n.life.Done():
			return
		}
		v, now := n.view.Load(), n.clock.Now()
		if n.fenced(v, now) {
			continue
		}
		due, changed := n.regions.Due(n.clock.At(now), v.Speaks)
		n.wake(n.stream.Copy(changed, now, v))
		for _, region := range slices.Sorted(maps.Keys(due)) {
			for sts := range slices.Chunk(due[region], n.stream.Caps().Statements) {
				n.state(region, sts)
			}
		}
	}
}

// state sends statements to a region, and takes in what it answers.
func (n *Node) state(region string, sts []countsync.Statement) {
	link := n.regions.links[region]
	link.statements.Add(uint64(len(sts)))
	link.waits.CompareAndSwap(0, n.clock.Steady())
	unanswered := func() {
		link.unanswered.Add(uint64(len(sts)))
		n.regions.Unanswered(region, sts, n.clock.Time())
	}
	if !link.places.TryAcquire(1) {
		unanswered()
		return
	}
	started := n.life.Try(func(ctx context.Context) {
		defer link.places.Release(1)
		answer, err := n.askRegion(ctx, region, link, wire.Header{Op: wire.OpExchange}, n.regions.Exchange(sts))
		if err != nil {
			unanswered()
			return
		}
		n.stated(region, link, answer)
	})
	if !started {
		link.places.Release(1)
		unanswered()
	}
}

func (n *Node) askRegion(ctx context.Context, region string, link *regionLink, h wire.Header, e countsync.Exchange) (answer countsync.Exchange, err error) {
	peer := n.cluster.Region(region)
	if peer == nil {
		return answer, cluster.ErrUnheard
	}
	body := e.Append(nil)
	link.sentBytes.Add(uint64(wire.HeaderBytes + len(body)))
	got, err := env.Call(ctx, peer, h, body, exchangeWait)
	if err != nil {
		return answer, err
	}
	link.receivedBytes.Add(uint64(wire.AnswerHeaderBytes + len(got)))
	link.answered.Store(n.clock.Steady())
	link.waits.Store(0)
	return countsync.ParseExchange(got)
}

// stated takes in the answers to statements.
func (n *Node) stated(region string, link *regionLink, answers countsync.Exchange) {
	n.meetRegion(region, link, answers.Print)
	v, now := n.view.Load(), n.clock.Now()
	t, day := n.clock.At(now), n.clock.TimeOfDay()
	var changed []bucket.ID
	for i := range answers.Statements {
		st := &answers.Statements[i]
		if !early(st, day) && v.Speaks(st.ID) && n.regions.Answered(region, answers.Print, st, t) {
			changed = append(changed, st.ID)
		}
	}
	n.wake(n.stream.Copy(changed, now, v))
}

// meetRegion notes whether a region shares limits out as this one does.
func (n *Node) meetRegion(region string, link *regionLink, print uint64) {
	agree := n.regions.Meet(region, print)
	if !agree {
		link.disputed.Add(1)
	}
	if link.disagrees.Swap(!agree) == agree && !agree {
		if unlogged, due := link.disputes.Due(time.Now()); due { // while a change of them is rolled out its nodes differ
			n.cfg.Logger.Error("another region shares Global limits out in another way: give all nodes the same Regions and RegionShares; until then nothing is granted to it",
				"region", region, "unlogged", unlogged)
		}
	}
}

// serveExchange answers the statements of another region: those that this node has
// to decide about here, the others by asking who does. It does so apart, as checks
// wait behind what is served.
func (n *Node) serveExchange(from env.Sender, request []byte, h wire.Header, answer cluster.Later) {
	e, err := countsync.ParseExchange(request[wire.HeaderBytes:])
	link := n.regions.links[e.Region]
	switch {
	case err != nil, from.Region != n.cfg.Region && from.Region != e.Region, !states(&e):
		if from := n.regions.links[from.Region]; from != nil {
			from.refused.Add(1)
		}
		answer(nil)
		return
	case link == nil || n.fenced(n.view.Load(), n.clock.Now()):
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
		return
	}
	link.receivedBytes.Add(uint64(len(request)))
	stated, now := len(e.Statements), n.clock.TimeOfDay()
	e.Statements = slices.DeleteFunc(e.Statements, func(st countsync.Statement) bool { return early(&st, now) })
	if len(e.Statements) < stated {
		link.refused.Add(1)
	}
	started := n.serveApart(from, func(ctx context.Context) {
		n.meetRegion(e.Region, link, e.Print)
		answers := n.regions.Exchange(n.exchangeWith(ctx, link, &e, h))
		body := answers.Append(wire.AppendAnswer(nil, wire.Done, 0))
		link.sentBytes.Add(uint64(len(body)))
		answer(body)
	})
	if !started {
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// exchangeWith answers another region's statements, as far as that can be done now.
func (n *Node) exchangeWith(ctx context.Context, link *regionLink, e *countsync.Exchange, h wire.Header) (answers []countsync.Statement) {
	v := n.view.Load()
	var own []countsync.Statement
	others := make(map[int][]countsync.Statement)
	for _, st := range e.Statements {
		switch to, known := v.Named[v.Answers(st.ID)]; {
		case v.Speaks(st.ID):
			own = append(own, st)
		case known && to != v.Self && v.Direct[to] && h.Flags&wire.PassBits < maxExchangePasses:
			others[to] = append(others[to], st)
		}
	}
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
	)
	h.Flags++
	for _, to := range slices.Sorted(maps.Keys(others)) { // in one order, so that simulations replay
		wait.Go(func() {
			request := countsync.Exchange{Region: e.Region, Print: e.Print, Statements: others[to]}
			got, err := env.Call(ctx, v.Members[to].Peer, h, request.Append(nil), n.cfg.Timeout)
			if err != nil {
				return
			}
			if theirs, err := countsync.ParseExchange(got); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, theirs.Statements...)
			}
		})
	}
	here := n.serveStatements(link, e, own, v)
	wait.Wait()
	return append(answers, here...)
}

// maxExchangePasses is how often statements are passed on: by whoever they reach
// to who decides, or to who did until just now.
const maxExchangePasses = 2

func (n *Node) serveStatements(link *regionLink, e *countsync.Exchange, sts []countsync.Statement, v *view.View) (answers []countsync.Statement) {
	now := n.clock.Now()
	var changed []bucket.ID
	for i := range sts {
		if answer, ok := n.regions.Serve(e.Region, e.Print, &sts[i], n.clock.At(now)); ok {
			answers = append(answers, answer)
			changed = append(changed, answer.ID)
		}
	}
	link.served.Add(uint64(len(answers)))
	n.wake(n.stream.Copy(changed, now, v))
	return answers
}

func (n *Node) holdingStats() HoldingStats {
	if n.regions.Holdings == nil {
		return HoldingStats{}
	}
	return HoldingStats{n.regions.Kept(), n.regions.Beyond()}
}

func (n *Node) regionStats() map[string]RegionStats {
	if n.regions.Holdings == nil {
		return nil
	}
	stats := make(map[string]RegionStats, len(n.regions.links))
	for name, l := range n.regions.links {
		at, lag := l.answered.Load(), time.Duration(0)
		if since := l.waits.Load(); since != 0 {
			lag = time.Duration(max(0, n.clock.Steady()-since))
		}
		stats[name] = RegionStats{
			Reached:    at != 0 && n.clock.Steady()-at < int64(10*time.Second),
			Lag:        lag,
			Statements: l.statements.Load(),
			Unanswered: l.unanswered.Load(),
			Served:     l.served.Load(),
			Disputed:   l.disputed.Load(),
			Refused:    l.refused.Load(),
			Sent:       l.sentBytes.Load(),
			Received:   l.receivedBytes.Load(),
		}
	}
	return stats
}

// Package regions exchanges statements about Global limits with other regions, and checks the
// requests of other regions. The units that each region holds are decided in package sync.
package regions

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// exchangeWait is the maximum wait for the answer of another region.
	exchangeWait = 2 * time.Second
	// exchangesAtOnce is the maximum number of messages in transit to a region.
	exchangesAtOnce = 32
	// greetEvery is the number of exchange intervals after which this region greets an unknown
	// region.
	greetEvery = 10
)

// Config contains the dependencies of a Regions.
type Config struct {
	Others     []string         // the other regions; if empty, Regions does nothing
	Shares     map[string]int64 // the shares of the regions
	Statements int              // the maximum number of statements in a message
	Timeout    time.Duration    // timeout of requests to members of this region
	Log        *slog.Logger
	Env        *env.Env
	Cluster    cluster.Cluster                                // has a peer in each other region
	Replicate  func(ids []bucket.ID, now int64, v *view.View) // replicates holdings that have changed
}

// Regions adjusts the holdings of this region to its demand for Global limits: it sends the
// statements of countsync to other regions, and applies the answers. It also checks each request
// of another region (Border).
//
// Only Holdings decides. If a message is lost, late or repeated, the only effect is that the
// regions agree later.
type Regions struct {
	cfg      Config
	Holdings *countsync.Holdings // nil if there are no other regions
	links    map[string]*link
}

// link contains the state and the counters of the exchange with a region.
type link struct {
	places                         *semaphore.Weighted // a place for each message in transit
	disagrees                      atomic.Bool         // whether the region has other parts of the limits in its configuration
	answered                       atomic.Int64        // monotonic time at which the region last answered; 0 if never
	waits                          atomic.Int64        // monotonic time since which statements have been unanswered; 0 if none are
	statements, unanswered, served atomic.Uint64
	disputed, refused              atomic.Uint64
	disputes                       loglimit.Line
	quota                          quota
	sentBytes, receivedBytes       atomic.Uint64
}

// New returns the Regions of a node. The holdings are stored with counts.
func New(c Config, counts *bucket.Store) *Regions {
	r := &Regions{cfg: c}
	if len(c.Others) == 0 {
		return r
	}
	r.links = make(map[string]*link)
	for _, name := range c.Others {
		r.links[name] = &link{places: semaphore.NewWeighted(exchangesAtOnce)}
	}
	r.Holdings = countsync.NewHoldings(countsync.NewRegions(c.Env.Region, c.Others, c.Shares), 0, counts, r.cfg.Env.Time())
	return r
}

// Regain makes this node ask the other regions for the holdings of this region, because the node
// has taken ranges whose counts are lost.
func (r *Regions) Regain() {
	if r.Holdings != nil {
		r.Holdings.Forgotten(r.cfg.Env.Time())
	}
}

// Run sends the due statements to the other regions, until the node is closed.
func (r *Regions) Run() {
	tick := time.NewTimer(countsync.ExchangeEvery + r.cfg.Env.View().Offset(countsync.ExchangeEvery))
	defer tick.Stop()
	for i := 0; ; i++ {
		if i%greetEvery == 0 {
			for _, region := range r.Holdings.Unknown() {
				r.sendStatements(region, nil)
			}
		}
		select {
		case <-tick.C:
			tick.Reset(countsync.ExchangeEvery)
		case <-r.cfg.Env.Done():
			return
		}
		v, now := r.cfg.Env.View(), r.cfg.Env.Now()
		if r.cfg.Env.IsFenced(v, now) {
			continue
		}
		due, changed := r.Holdings.Due(r.cfg.Env.TimeAt(now), v.Speaks)
		r.cfg.Replicate(changed, now, v)
		for _, region := range slices.Sorted(maps.Keys(due)) {
			for sts := range slices.Chunk(due[region], r.cfg.Statements) {
				r.sendStatements(region, sts)
			}
		}
	}
}

// sendStatements sends statements to a region, and applies the answers.
func (r *Regions) sendStatements(region string, sts []countsync.Statement) {
	link := r.links[region]
	link.statements.Add(uint64(len(sts)))
	link.waits.CompareAndSwap(0, r.cfg.Env.Monotonic())
	unanswered := func() {
		link.unanswered.Add(uint64(len(sts)))
		r.Holdings.Unanswered(region, sts, r.cfg.Env.Time())
	}
	if !link.places.TryAcquire(1) {
		unanswered()
		return
	}
	started := r.cfg.Env.Try(func(ctx context.Context) {
		defer link.places.Release(1)
		answer, err := r.askRegion(ctx, region, link, wire.Header{Op: wire.OpExchange}, r.Holdings.Exchange(sts))
		if err != nil {
			unanswered()
			return
		}
		r.Learn(region, answer)
	})
	if !started {
		link.places.Release(1)
		unanswered()
	}
}

func (r *Regions) askRegion(ctx context.Context, region string, link *link, h wire.Header, e countsync.Exchange) (answer countsync.Exchange, err error) {
	peer := r.cfg.Cluster.Region(region)
	if peer == nil {
		return answer, cluster.ErrDisconnected
	}
	body := e.Append(nil)
	link.sentBytes.Add(uint64(wire.HeaderBytes + len(body)))
	got, err := env.Call(ctx, peer, h, body, exchangeWait)
	if err != nil {
		return answer, err
	}
	if answer, err = countsync.ParseExchange(got); err != nil {
		return answer, err
	}
	link.receivedBytes.Add(uint64(wire.ResponseHeaderBytes + len(got)))
	link.answered.Store(r.cfg.Env.Monotonic())
	link.waits.Store(0)
	return answer, nil
}

// Learn applies the answers of a region to statements.
func (r *Regions) Learn(region string, answers countsync.Exchange) {
	r.recordAgreement(region, r.links[region], answers.Print)
	v, now := r.cfg.Env.View(), r.cfg.Env.Now()
	t, day := r.cfg.Env.TimeAt(now), r.cfg.Env.TimeOfDay()
	var changed []bucket.ID
	for i := range answers.Statements {
		st := &answers.Statements[i]
		if !isEarly(st, day) && v.Speaks(st.ID) && r.Holdings.Answered(region, answers.Print, st, t) {
			changed = append(changed, st.ID)
		}
	}
	r.cfg.Replicate(changed, now, v)
}

// recordAgreement records whether a region has the same regions and shares as this region.
func (r *Regions) recordAgreement(region string, link *link, print uint64) {
	agree := r.Holdings.Meet(region, print)
	if !agree {
		link.disputed.Add(1)
	}
	if link.disagrees.Swap(!agree) == agree && !agree {
		if unlogged, due := link.disputes.Due(time.Now()); due { // the nodes of a region differ during a rolling change of the shares
			r.cfg.Log.Error("another region has different Regions or RegionShares than this node: configure all nodes alike; that region gets no grants until then",
				"region", region, "unlogged", unlogged)
		}
	}
}

// Serve handles the statements of another region. This node answers the statements about ids that
// it decides about, and asks other members for the other answers. Serve does this in a goroutine
// and returns immediately, because the checks on the same connection wait until Serve returns.
func (r *Regions) Serve(from env.Sender, request []byte, h wire.Header, answer cluster.Later) {
	e, err := countsync.ParseExchange(request[wire.HeaderBytes:])
	link := r.links[e.Region]
	switch {
	case err != nil, from.Region != r.cfg.Env.Region && from.Region != e.Region, !statesOnlyGlobal(&e):
		if from := r.links[from.Region]; from != nil {
			from.refused.Add(1)
		}
		answer(nil)
		return
	case link == nil || r.cfg.Env.IsFenced(r.cfg.Env.View(), r.cfg.Env.Now()):
		answer(wire.AppendResponse(nil, wire.Unreached, 0))
		return
	}
	link.receivedBytes.Add(uint64(len(request)))
	stated, now := len(e.Statements), r.cfg.Env.TimeOfDay()
	e.Statements = slices.DeleteFunc(e.Statements, func(st countsync.Statement) bool { return isEarly(&st, now) })
	if len(e.Statements) < stated {
		link.refused.Add(1)
	}
	started := r.cfg.Env.RunFor(from, func(ctx context.Context) {
		r.recordAgreement(e.Region, link, e.Print)
		answers := r.Holdings.Exchange(r.exchangeWith(ctx, link, &e, h))
		body := answers.Append(wire.AppendResponse(nil, wire.Done, 0))
		link.sentBytes.Add(uint64(len(body)))
		answer(body)
	})
	if !started {
		answer(wire.AppendResponse(nil, wire.Unreached, 0))
	}
}

// exchangeWith returns the answers to the statements of another region that can be given now.
func (r *Regions) exchangeWith(ctx context.Context, link *link, e *countsync.Exchange, h wire.Header) (answers []countsync.Statement) {
	v := r.cfg.Env.View()
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
	for _, to := range slices.Sorted(maps.Keys(others)) { // in a fixed order, so that simulations can be replayed
		wait.Go(func() {
			request := countsync.Exchange{Region: e.Region, Print: e.Print, Statements: others[to]}
			got, err := env.Call(ctx, v.Members[to].Peer, h, request.Append(nil), r.cfg.Timeout)
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
	here := r.serveStatements(link, e, own, v)
	wait.Wait()
	return append(answers, here...)
}

// maxExchangePasses is the maximum number of times that statements are passed on: by the member
// that receives them, and by a member that decided until just now.
const maxExchangePasses = 2

func (r *Regions) serveStatements(link *link, e *countsync.Exchange, sts []countsync.Statement, v *view.View) (answers []countsync.Statement) {
	now := r.cfg.Env.Now()
	var changed []bucket.ID
	for i := range sts {
		if answer, ok := r.Holdings.Serve(e.Region, e.Print, &sts[i], r.cfg.Env.TimeAt(now)); ok {
			answers = append(answers, answer)
			changed = append(changed, answer.ID)
		}
	}
	link.served.Add(uint64(len(answers)))
	r.cfg.Replicate(changed, now, v)
	return answers
}

// Stats is the internal form of weir.RegionStats.
type Stats struct {
	Reached                                           bool
	Lag                                               time.Duration
	Statements, Unanswered, Served, Disputed, Refused uint64
	Sent, Received                                    uint64
}

// HoldingStats is the internal form of weir.HoldingStats.
type HoldingStats struct {
	Keys   int
	Beyond uint64
}

// HoldingStats returns the number of holdings, and how often there was no room for a holding.
func (r *Regions) HoldingStats() (s HoldingStats) {
	if r.Holdings != nil {
		s = HoldingStats{r.Holdings.Len(), r.Holdings.Rejections()}
	}
	return s
}

// Stats returns the counters of the exchange with each region, nil if there are no other regions.
func (r *Regions) Stats() map[string]Stats {
	if r.Holdings == nil {
		return nil
	}
	stats := make(map[string]Stats, len(r.links))
	for name, l := range r.links {
		at, lag := l.answered.Load(), time.Duration(0)
		if since := l.waits.Load(); since != 0 {
			lag = time.Duration(max(0, r.cfg.Env.Monotonic()-since))
		}
		stats[name] = Stats{
			Reached:    at != 0 && r.cfg.Env.Monotonic()-at < int64(10*time.Second),
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

// Reset asks a node of another region to reset counts.
func (r *Regions) Reset(ctx context.Context, region string, asks []wire.Ask) error {
	peer := r.cfg.Cluster.Region(region)
	if peer == nil {
		return cluster.ErrDisconnected
	}
	request := wire.Header{Op: wire.OpReset, Asks: uint8(len(asks))}.Append(nil)
	for i := range asks {
		request = asks[i].Append(request)
	}
	answer, err := peer.Ask(ctx, request, nil, exchangeWait)
	if err != nil {
		return err
	}
	if s, err := wire.ParseResponse(answer, wire.OpReset, len(asks)); err != nil || s != wire.Done {
		return env.ErrUnreached
	}
	return nil
}

// RegionNames returns the other regions, sorted.
func (r *Regions) RegionNames() []string { return slices.Sorted(maps.Keys(r.links)) }

package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// backend is a server with a number of workers and a queue.
type backend struct {
	mu      sync.Mutex
	queue   []chan struct{}
	idle    int
	service time.Duration
	random  *rand.Rand // nil for equal service times
}

// handle returns when a worker has handled a request.
func (b *backend) handle() {
	b.mu.Lock()
	if b.idle == 0 {
		turn := make(chan struct{})
		b.queue = append(b.queue, turn)
		b.mu.Unlock()
		<-turn
		b.mu.Lock()
	} else {
		b.idle--
	}
	takes := b.service
	if b.random != nil {
		takes = time.Duration(b.random.ExpFloat64() * float64(takes))
	}
	b.mu.Unlock()
	time.Sleep(takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 {
		close(b.queue[0])
		b.queue = b.queue[1:]
		return
	}
	b.idle++
}

func (b *backend) setService(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.service = d
}

const (
	backendCapacity = 200 // requests per second
	backendTarget   = 300 * time.Millisecond
	backendWorkers  = 6
	fullService     = backendWorkers * time.Second / backendCapacity
)

// adaptRun is a run of three nodes in front of a backend, with 1.5 times as many requests as the backend
// can serve. After 15 s its capacity falls to 60 %. If fault is set, a node then has the fault, for 10 s or, if it
// is killed, until the end.
type adaptRun struct {
	seed  uint64 // seed of the cluster; it determines which node is the decider
	limit string // text of the limit of the rule
	adapt string // text of the adapt of the rule; empty for a run without adapt
	fault string // empty, kill, freeze or cut
	other bool   // the node with the fault is not the decider

	books   map[string]*Book
	backend *backend
	t       *testing.T
	clients sync.WaitGroup

	mu      sync.Mutex
	away    string // node without clients
	done    []doneRequest
	factors []float64 // the factor in force, read every 100 ms
}

type doneRequest struct{ at, took time.Duration }

func (r *adaptRun) run(t *testing.T) {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Seed: r.seed, Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	defer c.Close()
	r.t, r.done, r.factors, r.books = t, nil, nil, make(map[string]*Book)
	r.backend = &backend{idle: backendWorkers, service: fullService}
	for _, name := range c.Names() {
		r.books[name] = staticBook(t, c.Node(name), "rules: [{name: r, key: global, limit: "+r.limit+", "+r.adapt+"}]")
		r.books[name].log = slog.New(slog.DiscardHandler)
	}
	limiter, err := c.Node("a").Limiter(newMeasureLimit())
	require.NoError(t, err)
	victim := limiter.Owner(measureKey("r", 0)).Name[:1]
	if r.other {
		victim = string('a' + (victim[0]-'a'+1)%3)
	}
	watched := string('a' + (victim[0]-'a'+2)%3)

	began := time.Now()
	r.clients.Go(func() { r.load(began, 50*time.Second) })
	r.clients.Go(func() {
		for time.Since(began) < 50*time.Second {
			s := r.books[watched].Current()
			if a, ok := s.Adaptation(s.Rules()[0]); ok {
				r.factors = append(r.factors, a.Factor)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	time.Sleep(15 * time.Second)
	r.backend.setService(fullService * 10 / 6)
	switch r.fault {
	case "kill":
		r.setAway(victim)
		c.Kill(victim)
	case "freeze":
		r.setAway(victim)
		c.Freeze(victim)
	case "cut":
		c.Cut(slices.DeleteFunc(c.Names(), func(name string) bool { return name == victim }), []string{victim})
	}
	time.Sleep(10 * time.Second)
	switch r.fault {
	case "freeze":
		c.Thaw(victim)
		r.setAway("")
	case "cut":
		c.Heal()
	}
	r.clients.Wait()
}

func (r *adaptRun) setAway(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = name
}

// load sends requests to the nodes in turn.
func (r *adaptRun) load(began time.Time, until time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; time.Since(began) < until; i++ {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / (1.5 * backendCapacity)))
		name := string('a' + rune(i%3))
		r.mu.Lock()
		if name == r.away {
			name = string('a' + rune((i%3+1+i/3%2)%3))
		}
		r.mu.Unlock()
		r.clients.Go(func() { r.request(r.books[name].Current(), began) })
	}
}

func (r *adaptRun) request(s *Snapshot, began time.Time) {
	rule := s.Rules()[0]
	limiter, meter := s.Limiter(&rule.Limits[0], "", ""), s.Meter(rule)
	allowed := false
	if limiter.Limit().Algorithm == weir.InFlight {
		h, err := limiter.Hold(r.t.Context(), "", 1)
		allowed = err == nil && h.Decision().Allowed
		defer h.Release()
	} else {
		d, err := limiter.Allow(r.t.Context(), "")
		allowed = err == nil && d.Allowed
	}
	if !allowed {
		if meter != nil {
			meter.RecordDenial()
		}
		return
	}
	start := time.Now()
	if meter != nil {
		meter.RecordStart(start)
	}
	r.backend.handle()
	now := time.Now()
	if meter != nil {
		meter.RecordDone(start, now, backendTarget, false)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, doneRequest{now.Sub(began), now.Sub(start)})
}

// figures returns the 99th percentile of the latency as a multiple of the target, and the rate of the requests
// that ended as a part of the capacity of the backend after 15 s.
func (r *adaptRun) figures(from, to time.Duration) (p99, goodput float64) {
	var took []time.Duration
	for _, d := range r.done {
		if d.at >= from && d.at < to {
			took = append(took, d.took)
		}
	}
	slices.Sort(took)
	return float64(took[len(took)*99/100]) / float64(backendTarget), float64(len(took)) / (to - from).Seconds() / (0.6 * backendCapacity)
}

// swing returns half the difference of the highest and the lowest factor, as a part of the
// middle between them.
func (r *adaptRun) swing(from, to time.Duration) float64 {
	span := r.factors[from/(100*time.Millisecond) : to/(100*time.Millisecond)]
	return (slices.Max(span) - slices.Min(span)) / (slices.Max(span) + slices.Min(span))
}

func TestFactorFollowsCapacityDespiteFaults(t *testing.T) {
	const (
		perSecond = "{rate: 200, per: 1s}"
		inFlight  = "{algorithm: in_flight, rate: 66}"
		adapts    = "adapt: {latency: 300ms}"
	)
	runs := []*adaptRun{
		{limit: perSecond, adapt: adapts},
		{limit: perSecond, adapt: adapts, fault: "cut"},
		{limit: inFlight, adapt: adapts, fault: "kill"},
		{limit: perSecond, adapt: adapts, fault: "kill"},
		{limit: perSecond, adapt: adapts, fault: "freeze"},
		{limit: perSecond, adapt: adapts, fault: "kill", other: true},
		{limit: perSecond, adapt: adapts, fault: "freeze", other: true},
		{limit: perSecond, adapt: adapts, fault: "cut", other: true},
		{limit: inFlight, adapt: adapts},
		{limit: inFlight, adapt: adapts, fault: "freeze"},
		{limit: inFlight, adapt: adapts, fault: "cut"},
		{limit: inFlight, adapt: adapts, fault: "kill", other: true},
		{limit: inFlight, adapt: adapts, fault: "freeze", other: true},
		{limit: inFlight, adapt: adapts, fault: "cut", other: true},
	}
	for i := range testenv.PickFull(t, 3, 6*len(runs)) {
		r := runs[i%len(runs)]
		r.seed = uint64(1 + i/len(runs))
		about := fmt.Sprintf("seed %d: %s, fault %q of another node: %v", r.seed, r.limit, r.fault, r.other)
		synctest.Test(t, r.run)
		settled := 25 * time.Second // ten seconds after the step
		if r.fault != "" && (r.fault != "kill" || r.limit == inFlight) {
			settled += 10 * time.Second // the end of the fault changes the capacity again, as does the end of the holds of a killed node
		}
		p99, goodput := r.figures(settled, 50*time.Second)
		fromStep, after := r.figures(15*time.Second, 50*time.Second)
		swing := r.swing(settled, 50*time.Second)
		t.Logf("%s: p99 %.2f of the target, goodput %.3f, swing %.2f; from the step: p99 %.2f, goodput %.3f", about, p99, goodput, swing, fromStep, after)
		require.LessOrEqual(t, p99, 1.5, about)
		require.GreaterOrEqual(t, goodput, 0.9, about)
		require.LessOrEqual(t, swing, 0.2, about)
		require.GreaterOrEqual(t, after, 0.85, about)
		if r.limit == inFlight && r.fault != "cut" { // the parts of the limit on the two sides of a cut add up to more than the limit
			require.LessOrEqual(t, fromStep, 1.8, about)
		}
	}
}

func TestFixedLimitOverloadsSlowerBackend(t *testing.T) {
	for limit, least := range map[string]float64{"{rate: 200, per: 1s}": 10, "{algorithm: in_flight, rate: 66}": 1.6} {
		r := &adaptRun{seed: 1, limit: limit}
		synctest.Test(t, r.run)
		p99, _ := r.figures(25*time.Second, 50*time.Second)
		t.Logf("%s: p99 %.2f of the target", limit, p99)
		require.Greater(t, p99, least)
	}
}

func TestIdleRuleCausesNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, books := startBooks(t, "rules: [{name: r, key: global, limit: {rate: 10, per: 1s}, adapt: {latency: 1s}}]")
		served := func() (sum uint64) {
			for _, name := range c.Names() {
				sum += c.Node(name).Stats().Served
			}
			return sum
		}
		time.Sleep(10 * time.Second) // the decider has read the totals
		before := served()
		time.Sleep(time.Minute)
		require.Equal(t, before, served())
		s := books["a"].Current()
		now := time.Now()
		s.Meter(s.Rules()[0]).RecordStart(now)
		s.Meter(s.Rules()[0]).RecordDone(now, now, time.Second, false)
		time.Sleep(3 * time.Second)
		after := served()
		require.Greater(t, after, before)
		time.Sleep(time.Minute)
		require.Equal(t, after, served())
		values, _ := c.Node("a").Published(adaptPrefix)
		require.Empty(t, values, "the factor did not change")
	})
}

func TestDeciderContinuesFromPublishedFactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startNode(t)
		book := staticBook(t, node, "rules: [{name: r, key: global, limit: {rate: 10, per: 1s}, adapt: {latency: 1s, min: 30%}}]")
		meter := book.Current().Meter(book.Current().Rules()[0])
		request := func() {
			now := time.Now()
			meter.RecordStart(now)
			meter.RecordDone(now, now, time.Second, false)
			time.Sleep(50 * time.Millisecond)
		}
		factor := func() float64 {
			a, _ := book.Current().Adaptation(book.Current().Rules()[0])
			return a.Factor
		}
		for _, step := range []struct {
			value string
			want  float64
		}{
			{`{"factor":0.5,"ceiling":0.5,"reason":"slow","at":"1970-01-01T00:00:00Z"}`, 0.5},
			{`{"factor":0.1,"reason":"slow","at":"1970-01-01T00:00:00Z"}`, 0.3}, // the minimum
			{`{"factor":0.7,"reason":"slow","at":"2999-01-01T00:00:00Z"}`, 0.7}, // a clock that is ahead
			{`{"factor":7}`, 1}, // cannot be read
		} {
			require.NoError(t, node.Publish(adaptPrefix+"r", 0, []byte(step.value)))
			for range 100 {
				request()
			}
			require.InDelta(t, step.want, factor(), 0.001, step.value)
		}
		require.NoError(t, node.Publish(adaptPrefix+"r", 0, []byte(`{"factor":0.5,"reason":"slow","at":"1970-01-01T00:00:00Z"}`)))
		for range 400 {
			meter.RecordDenial()
			request()
		}
		require.InDelta(t, 1, factor(), 0.001, "it rises while clients are denied")
	})
}

// newDecider returns the decider of the rule r of a Book, and a function that reports an overload and decides.
func newDecider(t *testing.T, v values) (d *decision, decide func(hasMajority bool)) {
	now := time.Now()
	b := newSharedBook(t, v, &now, "rules: [{name: r, key: global, limit: {rate: 10, per: 1s}, adapt: {latency: 1s}}]")
	limiter, err := b.node.Limiter(newMeasureLimit())
	require.NoError(t, err)
	a, d := &adapter{book: b, limiter: limiter}, new(decision)
	a.decide(t.Context(), b.Current().Rules()[0], d, true) // reads the totals
	return d, func(hasMajority bool) {
		a.report(t.Context(), "r", adapt.Sample{Busy: 1000 * time.Second, Started: 1000, Done: 600, Slow: 600, Denied: 1})
		a.decide(t.Context(), b.Current().Rules()[0], d, hasMajority)
	}
}

func TestFactorIsPublishedAgainAfterError(t *testing.T) {
	shared := sharedValues{fails: errors.New("there is no room")}
	d, decide := newDecider(t, &shared)
	decide(true)
	require.Zero(t, d.Factor, "the factor stays")
	shared.fails = nil
	decide(true)
	require.Contains(t, string(shared.values["adapt/r"].Value), `"reason":"slow"`)
}

func TestFirstFactorOfMinorityHasLowestVersion(t *testing.T) {
	node := startNode(t)
	_, decide := newDecider(t, node)
	decide(false)
	values, _ := node.Published(adaptPrefix)
	require.Len(t, values, 1)
	require.EqualValues(t, 1, values[0].Version)
}

func TestFactorEndsAfterRuleLosesAdapt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "rules: [{name: r, key: global, limit: {rate: 10, per: 1s}, adapt: {latency: 1s}}]"
		node := startNode(t)
		book := staticBook(t, node, text)
		meter := book.Current().Meter(book.Current().Rules()[0])
		published := func() []weir.Published {
			values, _ := node.Published(adaptPrefix)
			return values
		}
		time.Sleep(time.Second)
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			now := time.Now()
			meter.RecordStart(now)
			meter.RecordDone(now.Add(-10*time.Second), now, time.Second, false)
			meter.RecordDenial()
		}
		time.Sleep(time.Minute)
		require.Len(t, published(), 1)
		factor := func() float64 { return book.Current().Adaptations()[0].Factor }
		low := factor()
		require.Less(t, low, 1.0)
		for end := time.Now().Add(2 * factorTerm); time.Now().Before(end); time.Sleep(time.Minute) {
			now := time.Now()
			meter.RecordStart(now)
			meter.RecordDone(now, now, time.Second, false)
		}
		require.InDelta(t, low, factor(), 0.001, "the rule has requests")
		require.NoError(t, book.Replace(mustParse(t, "version: 1\nrules: [{name: r, key: global, limit: {rate: 10, per: 1s}}]")))
		time.Sleep(factorTerm + time.Second)
		require.Empty(t, published())
		require.NoError(t, book.Replace(mustParse(t, "version: 2\n"+text)))
		require.InDelta(t, 1, factor(), 0.001)
	})
}

// observed lists the limits of the decisions that it observes.
type observed struct {
	weir.Observer
	limits []string
}

func (o *observed) Decided(_ context.Context, e weir.DecisionEvent) {
	o.limits = append(o.limits, e.Limiter.Limit().Name)
}

func TestMeasurementsDoNotCountAsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(observed)
		node, err := weir.Start(t.Context(), weir.Config{Logger: slog.New(slog.DiscardHandler), Observer: seen, TopKeys: 10})
		require.NoError(t, err)
		defer node.Close()
		book := staticBook(t, node, "rules: [{name: r, key: global, limit: {rate: 10, per: 1s}, adapt: {latency: 1s}}]")
		s := book.Current()
		for range 20 {
			now := time.Now()
			s.Meter(s.Rules()[0]).RecordStart(now)
			s.Meter(s.Rules()[0]).RecordDone(now, now, time.Second, false)
			time.Sleep(time.Second)
		}
		limiter, err := node.Limiter(newMeasureLimit())
		require.NoError(t, err)
		used, err := limiter.Peek(t.Context(), measureKey("r", 0))
		require.NoError(t, err)
		require.Less(t, used.Remaining, used.Limit, "the measurements are reported")
		require.Empty(t, node.Stats().Limits)
		require.Empty(t, node.Stats().Decisions)
		require.Empty(t, seen.limits)
		top, err := node.TopKeys(t.Context(), 10)
		require.NoError(t, err)
		require.Empty(t, top.Asked)
		require.NoError(t, book.Close())
	})
}

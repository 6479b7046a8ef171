package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

const (
	// adversaryPace is the minimum time between two checks of an adversary at a node. After
	// enoughDenials denials, a burst goes to the next key: the adversary has all units.
	adversaryPace   = 10 * time.Microsecond
	adversaryBefore = 5 * time.Millisecond // how long before a fault a burst begins
	adversaryMost   = 10_000               // maximum number of checks for a key in a burst
	enoughDenials   = 16
)

// rand returns the random source of a name, independent of all other parts of the run.
func (s *stage) rand(name ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, name...)
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

// deed is the kind of a request.
type deed uint8

const (
	take deed = iota
	takeAll
	debit
	refund
	reset
	wait
	hold
	reserve
	pause
)

// waitsOf is the number of takes among which, on average, one uses Wait. These takes are
// drawn with their own random source, which does not change the other deeds of a seed.
const waitsOf = 5

// deeds are the equally likely requests for the witness limit. Resets are drawn
// separately.
var deeds = [...]deed{take, take, take, take, take, takeAll, debit, refund}

// asker sends the checks of a load.
type asker struct {
	load   Load
	limit  int // index in stage.limits
	from   []*host
	rng    *rand.Rand
	zipf   *rand.Zipf
	deeds  *rand.Rand    // random source of the deeds; nil except for the witness limit
	resets bool          // whether the asker resets keys of the witness limit, and sends no checks
	next   time.Duration // time of the next check
	asked  int
}

// sendLoads sends the checks of all loads until the scenario ends. A goroutine that has an
// answer takes the next question, so that no new stack must grow for every check.
func (s *stage) sendLoads(ctx context.Context) {
	questions := make(chan question)
	defer close(questions)
	var askers []*asker
	for i, l := range s.Loads {
		a := s.newAsker(fmt.Sprint("load ", i), l)
		if l.Adversary {
			s.asking.Go(func() { s.attack(ctx, a) })
		} else {
			askers = append(askers, a)
		}
	}
	askers = append(askers, s.newAsker("witness", Load{
		Limit: witnessName, Keys: witnessKeys, Rate: witnessRate, Ends: s.Lasts - witnessRests,
	}))
	if s.Hot > 0 {
		askers = append(askers, s.newAsker("hot", Load{
			Limit: witnessName, Keys: witnessForgets, Rate: float64(s.Hot), Ends: s.Lasts - witnessRests,
		}))
	}
	// The resets end at a random time, because each reset corrects the errors before it.
	last := s.Lasts/6 + time.Duration(s.rand("last reset").Int64N(int64(s.Lasts)*5/6))
	resets := s.newAsker("resets", Load{
		Limit: witnessName, Keys: witnessForgets, Rate: witnessResets, Ends: min(last, s.Lasts-witnessRests),
	})
	resets.resets = true
	askers = append(askers, resets)
	waits := s.rand("waits")
	for _, a := range askers {
		a.advance()
	}
	for {
		a := slices.MinFunc(askers, func(a, b *asker) int { return int(a.next - b.next) })
		if a.next >= s.Lasts {
			return
		}
		time.Sleep(a.next - s.elapsed())
		s.mu.Lock()
		h := anyOf(a.from, a.rng, (*host).canAsk)
		s.mu.Unlock()
		if h != nil {
			q := question{host: h, limit: a.limit, critical: a.load.Critical}
			q.key, q.units = a.drawRequest(h)
			switch {
			case a.resets:
				q.deed = reset
			case a.deeds != nil:
				if q.deed = deeds[a.deeds.IntN(len(deeds))]; q.deed == take && waits.IntN(waitsOf) == 0 {
					q.deed = wait
				}
			case a.load.Pauses > 0:
				q.deed, q.ttl = pause, time.Millisecond+time.Duration(a.rng.Int64N(int64(a.load.Pauses)))
			case a.load.Keeps > 0:
				q.deed, q.ttl, q.keeps = hold, a.load.TTL, time.Duration(a.rng.Int64N(int64(a.load.Keeps)))
			case a.load.Settles > 0:
				q.deed, q.plan = reserve, a.drawPlan(s, h, q.units)
			}
			select {
			case questions <- q:
			default:
				s.asking.Go(func() {
					s.send(ctx, q)
					for q := range questions {
						s.send(ctx, q)
					}
				})
			}
		}
		a.advance()
	}
}

func (s *stage) newAsker(name string, l Load) *asker {
	a := &asker{load: l, rng: s.rand(name)}
	a.limit = slices.IndexFunc(s.limits, func(limit weir.Limit) bool { return limit.Name == l.Limit })
	if l.Limit == witnessName {
		a.limit, a.deeds = len(s.Limits), s.rand("deeds")
		if name == "hot" {
			a.deeds = s.rand("hot deeds")
		}
	}
	a.load.Keys = max(1, l.Keys)
	if a.load.Ends == 0 || a.load.Ends > s.Lasts {
		a.load.Ends = s.Lasts
	}
	if l.Zipf > 1 {
		a.zipf = rand.NewZipf(a.rng, l.Zipf, 1, uint64(a.load.Keys-1))
	}
	for _, h := range s.hosts {
		if len(l.From) == 0 || slices.Contains(l.From, h.name) {
			a.from = append(a.from, h)
		}
	}
	return a
}

// never is a time after every end.
const never = time.Duration(1<<63 - 1)

// advance draws the time of the next check. The checks of a burst lie within a
// millisecond, and later checks are distributed evenly.
func (a *asker) advance() {
	i := a.asked
	a.asked++
	switch {
	case i < a.load.Burst:
		a.next = a.load.Begins + time.Millisecond*time.Duration(i)/time.Duration(a.load.Burst) + time.Duration(a.rng.IntN(1000))
	case a.load.Rate <= 0:
		a.next = never
	default:
		slot := float64(time.Second) / a.load.Rate
		a.next = max(a.next+1, a.load.Begins+time.Duration((float64(i-a.load.Burst)+a.rng.Float64())*slot))
	}
	if a.next >= a.load.Ends {
		a.next = never
	}
}

// canAsk reports whether callers on the host can send requests. The caller must hold
// stage.mu.
func (h *host) canAsk() bool { return h.runs != nil && !h.frozen && h.machine.Paused() == 0 }

// anyOf returns a random host for which able is true, or nil if there is no such host.
func anyOf(hosts []*host, random *rand.Rand, able func(*host) bool) *host {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool { return !able(h) })
	if len(hosts) == 0 {
		return nil
	}
	return hosts[random.IntN(len(hosts))]
}

// drawRequest returns the key of the next check, and its units.
func (a *asker) drawRequest(h *host) (key int, units int64) {
	if a.zipf != nil {
		key = int(a.zipf.Uint64())
	} else if a.load.Keys > 1 {
		key = a.rng.IntN(a.load.Keys)
	}
	units = max(1, a.load.Units)
	if a.load.Limit == witnessName {
		key += h.region * witnessKeys
		units = 1 + a.rng.Int64N(witnessUnits)
	}
	return key, units
}

// question is a request for a host.
type question struct {
	host       *host
	limit, key int
	units      int64
	deed       deed
	critical   bool
	keeps, ttl time.Duration // the time for which units are held, and the ttl of a hold; ttl is also the length of a pause
	plan       *plan         // the plan of a reservation
}

func (s *stage) send(ctx context.Context, q question) {
	switch {
	case q.deed == refund && s.witness.beginRefund(q.key, q.units):
		s.callLimiter(q, func(l *weir.Limiter, key string) error { return l.Refund(ctx, key, q.units) })
		s.witness.endRefund(q.key, q.units)
	case q.deed == reset:
		s.callLimiter(q, func(l *weir.Limiter, key string) error { return l.Reset(ctx, key) })
	case q.deed == pause:
		s.callLimiter(q, func(l *weir.Limiter, key string) error { return l.Pause(ctx, key, q.ttl) })
	case q.deed == hold:
		s.hold(ctx, q)
	case q.deed == reserve:
		s.reserve(ctx, q)
	case q.deed == takeAll:
		s.takeAll(ctx, q)
	default:
		s.check(ctx, q)
	}
}

// begin returns the process that gets a question, or nil, and the check that begins now.
func (s *stage) begin(q question) (p *process, l *weir.Limiter, key string, c Check) {
	s.mu.Lock()
	if p = q.host.runs; p != nil {
		l = p.limiters[q.limit]
	}
	s.mu.Unlock()
	if p != nil && q.critical {
		l = l.Critical()
	}
	c = Check{Asked: s.elapsed(), Units: q.units, Critical: q.critical, Key: int32(q.key), Limit: int16(q.limit), Node: int16(q.host.index)}
	if q.limit == len(s.Limits) {
		c.Limit = witness
	}
	return p, l, s.keys[q.limit][q.key], c
}

// failure returns the text of an error, which a journal contains in place of the error.
func failure(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// recordDecision completes a check with its decision.
func (s *stage) recordDecision(c *Check, d weir.Decision, err error) {
	c.Answered, c.Allowed, c.Source, c.Err = s.elapsed(), d.Allowed, d.Source, failure(err)
	if d.Banned || d.Paused {
		c.Banned = d.RetryAfter
	}
}

// callLimiter refunds units of the witness limit at a node, whichever node admitted them,
// or resets or pauses a key. It ignores the error.
func (s *stage) callLimiter(q question, do func(l *weir.Limiter, key string) error) {
	if p, l, key, _ := s.begin(q); p != nil {
		_ = do(l, key)
	}
}

// waitFor takes units of the witness limit with Wait. Wait does not sleep, because there
// is always room. So the invariants of other checks apply.
func waitFor(ctx context.Context, l *weir.Limiter, key string, units int64) (last weir.Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // after a denial, Wait would sleep for Per
	defer cancel()
	err = l.Wait(context.WithValue(ctx, lastDecision{}, &last), key, units)
	return last, err
}

// record adds the answers of a process to the journal. The callers of a killed process
// have ended with it.
func (s *stage) record(p *process, checks ...Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range checks {
		if p.killed {
			continue
		}
		s.checks = append(s.checks, c)
		if c.Limit == witness {
			s.witness.recordGrant(c)
		}
	}
}

// lastDecision is the context key of a *weir.Decision, for a caller that needs more than
// Wait returns.
type lastDecision struct{}

func (lastDecision) Decided(ctx context.Context, e weir.DecisionEvent) {
	if last, ok := ctx.Value(lastDecision{}).(*weir.Decision); ok {
		*last = e.Decision
	}
}

func (lastDecision) Hopped(context.Context, weir.HopEvent) {}

// takeAll takes units of two keys of the witness limit at once.
func (s *stage) takeAll(ctx context.Context, q question) {
	p, l, key, c := s.begin(q)
	if p == nil {
		return
	}
	next := q.key/witnessKeys*witnessKeys + (q.key+1)%witnessKeys
	ds, err := p.node.AllowAll(ctx, weir.Ask{Limiter: l, Key: key, Units: q.units}, weir.Ask{Limiter: l, Key: s.keys[q.limit][next], Units: q.units})
	checks := []Check{c, c}
	checks[1].Key = int32(next)
	for i := range checks {
		var d weir.Decision
		if i < len(ds) {
			d.Allowed, d.Source = err == nil && ds.Allowed(), ds[i].Source
		}
		s.recordDecision(&checks[i], d, err)
	}
	s.record(p, checks...)
}

// check sends a check to a host, and records the answer.
func (s *stage) check(ctx context.Context, q question) (allowed bool) {
	p, l, key, c := s.begin(q)
	if p == nil {
		return false
	}
	var d weir.Decision
	var err error
	switch q.deed {
	case debit:
		d, err = l.Debit(ctx, key, q.units)
		d.Allowed = err == nil
	case wait:
		d, err = waitFor(ctx, l, key, q.units)
		d.Allowed = err == nil
	default:
		if q.units > 1 && c.Limit != witness && c.Asked%4 == 0 {
			var granted int64
			if d, granted, err = l.AllowAtMost(ctx, key, q.units); d.Allowed {
				c.Units = granted
			}
			break
		}
		d, err = l.AllowN(ctx, key, q.units)
	}
	s.recordDecision(&c, d, err)
	s.record(p, c)
	return d.Allowed
}

// attack sends bursts to the nodes of a load at the worst times: before and after each
// fault, and at each multiple of Per.
func (s *stage) attack(ctx context.Context, a *asker) {
	var moments []time.Duration
	for _, f := range s.Faults {
		moments = append(moments, f.At-adversaryBefore, f.At+time.Millisecond, f.At+time.Second, f.At+2*time.Second)
	}
	limit := s.limits[a.limit]
	for at := time.Duration(0); at < s.Lasts; at += limit.Per {
		moments = append(moments, at)
	}
	slices.Sort(moments)
	for i, at := range slices.Compact(moments) {
		if at < a.load.Begins || at >= a.load.Ends {
			continue
		}
		time.Sleep(at - s.elapsed())
		for _, h := range a.from {
			s.asking.Go(func() { s.burst(ctx, a, h, s.rand("burst", a.load.Limit, i, h.name)) })
		}
	}
}

// burst sends checks for each key to a node. For each key it sends enough checks for the
// whole limit, but at least enoughDenials and at most adversaryMost, and stops after
// enoughDenials denials.
func (s *stage) burst(ctx context.Context, a *asker, h *host, rng *rand.Rand) {
	l := s.limits[a.limit]
	units := max(1, a.load.Units)
	asks := int(min(max(max(l.Rate, l.Burst)/units, enoughDenials), adversaryMost))
	for key := range a.load.Keys {
		var denied atomic.Int64
		for range asks {
			for wait := true; wait; wait = h.machine.Paused() > 0 { // a pause may begin meanwhile
				time.Sleep(adversaryPace + time.Duration(rng.IntN(1000)) + h.machine.Paused())
			}
			s.mu.Lock()
			able := h.runs != nil && !h.frozen
			s.mu.Unlock()
			if !able || denied.Load() >= enoughDenials {
				break
			}
			s.asking.Go(func() {
				if !s.check(ctx, question{host: h, limit: a.limit, key: key, units: units, critical: a.load.Critical}) {
					denied.Add(1)
				}
			})
		}
	}
}

package adapt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

var bounds = Bounds{Latency: 200 * time.Millisecond, Slow: 0.05, Errors: 0.05, Min: 0.2, Max: 1}

func TestFactorFollowsPublishedState(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	s := State{Factor: 0.5, Ceiling: 0.55, Reason: Slow, At: now}
	require.JSONEq(t, `{"factor":0.5,"ceiling":0.55,"reason":"slow","at":"1970-01-01T00:16:40Z"}`, string(s.Encode()))
	read, err := State{}.Follow(s.Encode(), now)
	require.NoError(t, err)
	require.Equal(t, s.Encode(), read.Encode())
	for _, bad := range []string{"", "{}", `{"factor":-1}`, `{"factor":1.5}`, `{"factor":1,"ceiling":-1}`, `{"factor":1e999}`} {
		kept, err := s.Follow([]byte(bad), now)
		require.Error(t, err, bad)
		require.Equal(t, s, kept)
	}
}

// steps returns the State after n equal Samples, 250 ms apart.
func steps(s State, b Bounds, m Sample, n int) State {
	for i := range n {
		s = s.Next(b, m, time.Unix(1000, 0).Add(time.Duration(i)*250*time.Millisecond))
	}
	return s
}

func TestFactorFollowsSamples(t *testing.T) {
	inFlight := bounds
	inFlight.InFlight = true
	busy := func(requests int, latency time.Duration) time.Duration { return time.Duration(requests) * latency }
	for about, step := range map[string]struct {
		from   State
		bounds Bounds
		sample Sample
		steps  int
		least  float64
		most   float64
		reason Reason
	}{
		"no measurements":           {State{Factor: 0.5}, bounds, Sample{}, 100, 0.5, 0.5, Unchanged},
		"zero state":                {State{}, bounds, Sample{Started: 100, Done: 100}, 100, 1, 1, Unchanged},
		"below the demand":          {State{Factor: 0.5}, bounds, Sample{Started: 100, Done: 100, Busy: busy(100, 50*time.Millisecond)}, 100, 0.5, 0.5, Unchanged},
		"denials":                   {State{Factor: 0.5}, bounds, Sample{Started: 100, Done: 100, Denied: 10, Busy: busy(100, 50*time.Millisecond)}, 60, 1, 1, Recovered},
		"denials and long requests": {State{Factor: 0.5}, bounds, Sample{Started: 100, Done: 100, Denied: 10, Busy: busy(100, 160*time.Millisecond)}, 60, 0.5, 0.5, Unchanged},
		"slow by chance":            {State{}, bounds, Sample{Started: 20, Done: 20, Slow: 2}, 100, 1, 1, Unchanged},
		"slow":                      {State{}, bounds, Sample{Started: 200, Done: 200, Slow: 40, Denied: 1, Busy: busy(200, 300*time.Millisecond)}, 1, 0.8, 0.95, Slow},
		"slow and growing":          {State{}, bounds, Sample{Started: 1000, Done: 600, Slow: 300, Denied: 1, Busy: busy(600, 300*time.Millisecond)}, 1, 0.5, 0.6, Slow},
		"once in a cool-down":       {State{}, bounds, Sample{Started: 1000, Done: 600, Slow: 300, Denied: 1, Busy: busy(600, 300*time.Millisecond)}, 4, 0.5, 0.6, Slow},
		"a queue that ends":         {State{}, bounds, Sample{Started: 500, Done: 600, Slow: 600, Denied: 1, Busy: busy(600, 300*time.Millisecond)}, 100, 1, 1, Unchanged},
		"queue":                     {State{}, bounds, Sample{Started: 1000, Done: 600, Denied: 1, Busy: busy(600, 300*time.Millisecond)}, 1, 0.5, 0.6, Queue},
		"requests that never end":   {State{}, bounds, Sample{Started: 50, Busy: 50 * time.Second}, 100, 0.2, 0.2, Queue},
		"errors":                    {State{}, bounds, Sample{Started: 1000, Done: 1000, Failed: 200, Denied: 1}, 1, 0.8, 0.85, Errors},
		"only errors":               {State{}, bounds, Sample{Started: 1000, Done: 1000, Failed: 1000}, 100, 0.2, 0.2, Errors},
		"in flight":                 {State{}, inFlight, Sample{Started: 600, Done: 600, Slow: 600, Denied: 1, Busy: busy(600, 320*time.Millisecond)}, 1, 0.49, 0.51, Slow},
		"above the maximum":         {State{Factor: 1}, Bounds{Latency: time.Second, Slow: 0.05, Errors: 0.05, Min: 0.1, Max: 0.5}, Sample{Started: 1, Done: 1}, 1, 0.5, 0.5, Unchanged},
	} {
		t.Run(about, func(t *testing.T) {
			s := steps(step.from, step.bounds, step.sample, step.steps)
			require.GreaterOrEqual(t, s.Factor, step.least-1e-9)
			require.LessOrEqual(t, s.Factor, step.most+1e-9)
			require.Equal(t, step.reason, s.Reason)
		})
	}
}

func TestFactorStaysInBoundsForAnySample(t *testing.T) {
	for seed := range uint64(testenv.PickFull(t, 200, 5_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := Bounds{Latency: time.Duration(1 + r.Int64N(int64(5*time.Minute))), Slow: r.Float64(), Errors: r.Float64(), Min: 0.01 + 0.4*r.Float64(), InFlight: r.IntN(2) == 0}
		b.Max = b.Min + (1-b.Min)*r.Float64()
		number := func() int64 { return int64(math.Pow(10, 12*r.Float64())) * r.Int64N(2) }
		var s State
		now := time.Unix(1000, 0)
		for range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(time.Minute))) - 10*time.Second) // the clock may step back
			s = s.Next(b, Sample{number(), number(), number(), number(), number(), time.Duration(number() * r.Int64N(1000))}, now)
			require.True(t, s.Factor >= b.Min && s.Factor <= b.Max && s.Ceiling >= 0 && s.Ceiling <= b.Max, "seed %d: %+v of %+v", seed, s, b)
			_, err := State{}.Follow(s.Encode(), now)
			require.NoError(t, err)
		}
	}
}

func TestFactorSettlesAfterSteps(t *testing.T) {
	for seed := range uint64(testenv.PickFull(t, 40, 600)) {
		r := rand.New(rand.NewPCG(seed, 2))
		target := 0.02 * math.Pow(100, r.Float64()) // 20 ms to 2 s
		capacity := 30 * math.Pow(100, r.Float64()) // 30 to 3,000 requests per second
		m := &model{
			bounds: Bounds{Latency: time.Duration(target * 1e9), Slow: 0.05, Errors: 0.05, Min: 0.1, Max: 1}, kind: kind(r.IntN(2)), nodes: 1 + r.IntN(50),
			workers: max(1, int(capacity*target/(5+5*r.Float64()))), exponential: r.IntN(2) == 0, apply: 0.1 + 0.2*r.Float64(), late: 0.1 * r.Float64(), twice: 0.1 * r.Float64(),
		}
		m.bounds.InFlight = m.kind == inFlight
		if m.limit = capacity; m.kind == inFlight {
			m.limit = capacity * target
		}
		m.capacity = func(at float64) float64 {
			if at >= 15 && at < 45 {
				return 0.6 * capacity
			}
			return capacity
		}
		demand := 1.1 + r.Float64()
		m.demand = func(float64) float64 { return demand * capacity }
		m.run(seed, 75)
		low, high := m.figures(25, 45), m.figures(55, 75)
		about := fmt.Sprintf("seed %d: kind %d, capacity %.0f, target %.3f, workers %d, exponential %v, nodes %d: p99 %.2f goodput %.3f swing %.2f, then p99 %.2f goodput %.3f swing %.2f", seed, m.kind, capacity, target, m.workers, m.exponential, m.nodes,
			low.p99/target, low.goodput/0.6/capacity, low.swing, high.p99/target, high.goodput/capacity, high.swing)
		t.Log(about)
		inBounds(t, m)
		worst, judged := worstFigures[class{m.kind, m.exponential}], capacity >= 170 && m.limit >= 20
		if m.kind == rate {
			judged = judged && target >= 0.1 && m.workers >= 6
		}
		if !judged { // so few requests that chance decides, or a queue that is longer than the target before a report
			continue
		}
		require.LessOrEqual(t, low.p99/target, worst.p99, about)
		require.GreaterOrEqual(t, low.goodput/0.6/capacity, worst.goodput, about)
		require.GreaterOrEqual(t, high.goodput/capacity, worst.goodput, about)
		require.LessOrEqual(t, max(low.swing, high.swing), worst.swing, about)
	}
}

// class is the key of worstFigures.
type class struct {
	kind        kind
	exponential bool
}

// worstFigures are just beyond the worst figures of 600 runs, in the time from ten seconds after a step of the
// capacity to the next step.
var worstFigures = map[class]figures{
	{inFlight, false}: {p99: 1.1, goodput: 0.98, swing: 0.21},
	{inFlight, true}:  {p99: 1.9, goodput: 0.95, swing: 0.28},
	{rate, false}:     {p99: 1.6, goodput: 0.95, swing: 0.21},
	{rate, true}:      {p99: 2.8, goodput: 0.86, swing: 0.27},
}

func inBounds(t *testing.T, m *model) {
	for _, c := range m.factors {
		require.GreaterOrEqual(t, c.factor, m.bounds.Min)
		require.LessOrEqual(t, c.factor, m.bounds.Max)
	}
}

func TestFactorStaysWhileDemandIsLow(t *testing.T) {
	for _, k := range []kind{rate, inFlight} {
		m := &model{bounds: Bounds{Latency: 200 * time.Millisecond, Slow: 0.05, Errors: 0.05, Min: 0.1, Max: 0.9, InFlight: k == inFlight}, kind: k, limit: 300, nodes: 3, workers: 12, exponential: true, apply: 0.2}
		m.capacity = func(float64) float64 { return 300 }
		m.demand = func(at float64) float64 { return 50 + 2*min(at, 75) } // up to two thirds of the capacity
		m.run(1, 120)
		require.Equal(t, []change{{m.factors[0].at, 0.9}}, m.factors, k)
	}
}

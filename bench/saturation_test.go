package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

const (
	saturatedNodes  = 4
	saturationRound = 2 * time.Second
	// saturationPatience bounds the wait until all is exact after a round.
	saturationPatience = 10 * time.Second
	// ownersTime is the Timeout of nodes that have all the time to wait for owners.
	ownersTime = 10 * time.Second
)

// saturations are what is asked for. The first three limits admit everything.
var saturations = []struct {
	name  string
	limit weir.Limit
	keys  int
	draw  func(*rand.Rand) func() int
}{
	{"zipf", limitOf("sliding_window"), worker.ZipfKeys, worker.ZipfOf(worker.ZipfKeys)},
	{"hot", limitOf("sliding_window"), 1, nil},
	{"uniform", limitOf("sliding_window"), worker.Million, worker.UniformOf(worker.Million)},
	{"zipf-denied", replicated, worker.ZipfKeys, worker.ZipfOf(worker.ZipfKeys)},
}

// BenchmarkSaturation is four nodes in one process that are asked for more than the
// machine can carry, beside four whose Timeout is so long that every check waits for
// its owner: what those carry is what the way to the owner can. N is the number of
// rounds, each in new clusters: what one leaves behind would burden the next.
func BenchmarkSaturation(b *testing.B) {
	for _, s := range saturations {
		keys := worker.KeysThat(s.keys, worker.AnyKey)
		if s.draw != nil {
			keys = worker.Drawn(keys, draws, s.draw(rand.New(rand.NewPCG(1, 2))))
		}
		for _, callers := range []int{64, 512} {
			b.Run(fmt.Sprintf("keys=%s/callers=%d", s.name, callers), func(b *testing.B) {
				var hurried, patient []saturation
				load := newLoad(callers)
				for b.Loop() {
					patient = append(patient, saturate(b, load, s.limit, keys, ownersTime))
					hurried = append(hurried, saturate(b, load, s.limit, keys, 0))
				}
				all, owners := sumUp(hurried), sumUp(patient)
				all.report(b, "", "checks/s")
				owners.report(b, "owners-", "owners/s")
				b.ReportMetric(all.perSecond/owners.perSecond, "owners-ratio")
				b.ReportMetric(float64(owners.checks-owners.authority), "owners-strays")
				b.ReportMetric(all.percent(all.authority), "%authority")
				b.ReportMetric(all.percent(all.standIn), "%stand-in")
				b.ReportMetric(all.percent(all.checks-all.authority-all.standIn), "%shares")
				b.ReportMetric(milliseconds(all.exact), "ms-until-exact")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// saturation is what one round came to.
type saturation struct {
	figures
	checks, authority, standIn int
	exact                      time.Duration // until all was exact again; at most saturationPatience
}

func (s saturation) percent(n int) float64 { return 100 * float64(n) / float64(max(1, s.checks)) }

// sumUp has the sums of what was decided, and the medians of the rest.
func sumUp(rounds []saturation) (all saturation) {
	for _, s := range rounds {
		all.checks, all.authority, all.standIn = all.checks+s.checks, all.authority+s.authority, all.standIn+s.standIn
	}
	all.figures = medianOf(each(rounds, func(s saturation) figures { return s.figures }))
	all.exact = median(each(rounds, func(s saturation) time.Duration { return s.exact }))
	return all
}

// saturate asks a new cluster in this process, whose nodes have as many callers each.
func saturate(tb testing.TB, load *load, limit weir.Limit, keys []string, timeout time.Duration) (s saturation) {
	limiters, end := startSaturated(tb, limit, timeout)
	defer end()
	callers := make([]saturated, len(load.latencies))
	for i := range callers {
		callers[i] = saturated{limiter: limiters[i%len(limiters)], keys: keys, next: i * len(keys) / len(callers)}
	}
	var err error
	s.figures, err = load.round(saturationRound, func(i int) error { return callers[i].ask() })
	require.NoError(tb, err)
	for _, c := range callers {
		s.checks, s.authority, s.standIn = s.checks+c.checks, s.authority+c.authority, s.standIn+c.standIn
	}
	begun := time.Now()
	for _, l := range limiters {
		if untilExact(l, saturationPatience-time.Since(begun)) != nil {
			break
		}
	}
	s.exact = time.Since(begun)
	return s
}

// startSaturated starts the nodes, with the defaults but for Timeout, and waits until
// their checks are exact.
func startSaturated(tb testing.TB, limit weir.Limit, timeout time.Duration) (limiters []*weir.Limiter, end func()) {
	var nodes []*weir.Node
	var join []string
	for range saturatedNodes {
		n, err := weir.Start(context.Background(), weir.Config{
			Name: "bench", Bind: "127.0.0.1:0", Join: join, Timeout: timeout, Logger: quiet(),
		})
		require.NoError(tb, err)
		l, err := n.Limiter(limit)
		require.NoError(tb, err)
		join = []string{addrOf(n)}
		nodes, limiters = append(nodes, n), append(limiters, l)
	}
	for i, n := range nodes {
		require.Eventually(tb, func() bool { return n.Ready() && serving(n) == saturatedNodes },
			worker.StartWait, 5*time.Millisecond, "%d nodes do not serve: %v", saturatedNodes, n.Members())
		require.NoError(tb, untilExact(limiters[i], worker.StartWait))
	}
	return limiters, func() {
		for _, n := range nodes {
			require.NoError(tb, n.Close())
		}
	}
}

// saturated is one of the callers. It fills a cache line and more.
type saturated struct {
	limiter                    *weir.Limiter
	keys                       []string
	next                       int // in keys
	checks, authority, standIn int
	_                          [64]byte
}

func (s *saturated) ask() error {
	d, err := s.limiter.Allow(context.Background(), s.keys[s.next])
	if s.next++; s.next == len(s.keys) {
		s.next = 0
	}
	s.checks++
	switch {
	case byAuthority(d.Source):
		s.authority++
	case d.Source == weir.StandIn:
		s.standIn++
	}
	return err
}

package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// By whom a check was decided, as the page groups Sources.
const (
	byAuthority = "authority" // by the owner's count, or by units and denials that it has lent or told
	byStandIn   = "stand-in"  // by a copy of the owner's count
	byShares    = "shares"    // within a share of the limit, or as the limit's PartitionPolicy says
)

func decidedBy(source weir.Source) string {
	switch source {
	case weir.StandIn:
		return byStandIn
	case weir.Budget, weir.FailedOpen, weir.FailedClosed:
		return byShares
	}
	return byAuthority
}

// rate is decisions per second.
type rate struct {
	By      string  `json:"by"`
	Source  string  `json:"source,omitempty"` // empty for all of By together
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}

// latency is how long checks took lately, in microseconds: the upper bound of the
// bucket that the quantile is in, -1 above the last.
type latency struct {
	By     string  `json:"by"`
	Source string  `json:"source"` // empty for all together, which come first
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
}

// fading is how much of a histogram is left after a second: about ten seconds count.
const fading = 0.9

// rates turns counters, which only grow, into what happens now. It is not safe for
// concurrent use.
type rates struct {
	before map[string]Counters // by process; nil at first
	at     time.Time
	// lately has for each source how many checks took no longer than each of
	// weir.LatencyBounds, and in the last place all; what is older counts less.
	lately map[weir.Source][]float64
}

// measured is what happened since the last call of next.
type measured struct {
	checks    []rate            // by source
	processes map[string][]rate // by process, then by whom
	latency   []latency
}

// next takes in what processes have counted by now. The first call knows no rates.
func (r *rates) next(now time.Time, all []Counters) (m measured) {
	first, took := r.before == nil, now.Sub(r.at).Seconds()
	before := r.before
	r.before, r.at = make(map[string]Counters, len(all)), now
	for _, c := range all {
		r.before[c.Process] = c
	}
	if first || took <= 0 {
		return m
	}
	sum := make(map[weir.Source]weir.Outcomes)
	m.processes = make(map[string][]rate)
	for source, counts := range r.lately {
		for i := range counts {
			counts[i] *= fading
		}
		if counts[len(counts)-1] < 0.5 {
			delete(r.lately, source)
		}
	}
	for _, c := range all {
		by := make(map[string]rate)
		for source, now := range c.Decisions {
			was := before[c.Process].Decisions[source]
			o := weir.Outcomes{Allowed: since(now.Allowed, was.Allowed), Denied: since(now.Denied, was.Denied)}
			s := sum[source]
			sum[source] = weir.Outcomes{Allowed: s.Allowed + o.Allowed, Denied: s.Denied + o.Denied}
			g := by[decidedBy(source)]
			by[decidedBy(source)] = rate{decidedBy(source), "", g.Allowed + float64(o.Allowed)/took, g.Denied + float64(o.Denied)/took}
		}
		m.processes[c.Process] = sorted(slices.Collect(maps.Values(by)))
		for source, now := range c.Latency {
			r.add(source, now, before[c.Process].Latency[source])
		}
	}
	for source, o := range sum {
		m.checks = append(m.checks, rate{decidedBy(source), source.String(), float64(o.Allowed) / took, float64(o.Denied) / took})
	}
	sorted(m.checks)
	together := make([]float64, len(weir.LatencyBounds())+1)
	for source, counts := range r.lately {
		for i, n := range counts {
			together[i] += n
		}
		m.latency = append(m.latency, latency{decidedBy(source), source.String(), quantile(counts, 0.5), quantile(counts, 0.99)})
	}
	if len(m.latency) > 0 {
		m.latency = append(m.latency, latency{P50: quantile(together, 0.5), P99: quantile(together, 0.99)})
	}
	slices.SortFunc(m.latency, func(a, b latency) int { return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Source, b.Source)) })
	return m
}

// since is how much a counter has grown: one that is lower than before began anew.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// add takes in what a process has measured since before.
func (r *rates) add(source weir.Source, now, before weir.Latency) {
	if now.Count < before.Count || len(before.Buckets) != len(now.Buckets) {
		before = weir.Latency{Buckets: make([]uint64, len(now.Buckets))}
	}
	if now.Count == before.Count || len(now.Buckets) != len(weir.LatencyBounds()) {
		return
	}
	if r.lately == nil {
		r.lately = make(map[weir.Source][]float64)
	}
	counts := r.lately[source]
	if counts == nil {
		counts = make([]float64, len(now.Buckets)+1)
		r.lately[source] = counts
	}
	for i := range now.Buckets {
		counts[i] += float64(since(now.Buckets[i], before.Buckets[i]))
	}
	counts[len(now.Buckets)] += float64(now.Count - before.Count)
}

// quantile is the upper bound, in microseconds, of the bucket that has it.
func quantile(counts []float64, q float64) float64 {
	all := counts[len(counts)-1]
	for i, bound := range weir.LatencyBounds() {
		if counts[i] >= q*all {
			return float64(bound) / float64(time.Microsecond)
		}
	}
	return -1
}

func sorted(all []rate) []rate {
	slices.SortFunc(all, func(a, b rate) int { return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Source, b.Source)) })
	return all
}

package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// The kinds of decisions, by which the page groups Sources.
const (
	byAuthority = "authority" // decided by the count of the owner, or by its leases and pushbacks
	byStandIn   = "stand-in"  // decided by a replica of the count
	byShares    = "shares"    // decided within a share of the limit, or by the PartitionPolicy of the limit
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

// rate is a number of decisions per second.
type rate struct {
	By      string  `json:"by"`
	Source  string  `json:"source,omitempty"` // empty for the sum of By
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}

// latency is the latency of recent checks, in microseconds: the upper bound of the bucket with
// the quantile, or -1 above the last bound.
type latency struct {
	By     string  `json:"by"`
	Source string  `json:"source"` // empty for all sources together, which are first
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
}

// fading is the part of a histogram that is left at the next update. With an update each second, the
// histogram covers about ten seconds.
const fading = 0.9

// limitRate is the rate of decisions about a limit, in all processes with counters.
type limitRate struct {
	Limit   string  `json:"limit"`
	Allowed float64 `json:"allowed"` // per second
	Denied  float64 `json:"denied"`
	// Shadow is the rate of denials that were not enforced.
	Shadow float64 `json:"shadow"`
	// AllDenied and AllShadow are the denials since the processes have started.
	AllDenied uint64 `json:"all_denied"`
	AllShadow uint64 `json:"all_shadow"`
}

const limitsShown = 12

// forgetAfter is the time for which a process may be missing before it counts as a new process.
const forgetAfter = time.Minute

// rates computes present rates from counters, which only grow. rates is not safe for concurrent
// use.
type rates struct {
	begun  bool
	before map[string]earlier // keyed by process
	// lately has a histogram for each source. An element is the number of checks that took at most
	// the bound of weir.LatencyBounds with the same index, and the last element is the number of all
	// checks. Older checks have less weight.
	lately map[weir.Source][]float64

	// due is the time of the next call of Gather. Until then, the page shows the last result.
	due      time.Time
	gathered []Counters
	missing  []string // members that did not answer
	err      error
	last     measured
}

// earlier has the counters of a process at an earlier update.
type earlier struct {
	Counters
	at time.Time
}

// measured is the result of update: the rates since the previous call of update.
type measured struct {
	checks    []rate            // a rate for each kind of decision and each source, sorted
	processes map[string][]rate // the sorted rates of the kinds of decisions, keyed by process
	latency   []latency
	limits    []limitRate
}

// update computes the rates from the present counters. A new process has no rates, because its
// counters may cover several days. A process that was missing has the mean rates of the time since
// its earlier counters.
func (r *rates) update(now time.Time, all []Counters) (m measured) {
	before := r.before
	r.before = make(map[string]earlier, len(all))
	for process, of := range before {
		if now.Sub(of.at) < forgetAfter {
			r.before[process] = of
		}
	}
	for _, c := range all {
		r.before[c.Process] = earlier{c, now}
	}
	m.limits = limitRates(now, all, before)
	if !r.begun {
		r.begun = true
		return m
	}
	r.fade()
	sum := make(map[weir.Source]rate)
	m.checks, m.processes = []rate{}, make(map[string][]rate)
	for _, c := range all {
		was, known := before[c.Process]
		took := now.Sub(was.at).Seconds()
		if !known || took <= 0 {
			continue
		}
		by := make(map[string]rate)
		for source, n := range c.Decisions {
			allowed := float64(growth(n.Allowed, was.Decisions[source].Allowed)) / took
			denied := float64(growth(n.Denied, was.Decisions[source].Denied)) / took
			who := decidedBy(source)
			sum[source] = rate{who, source.String(), sum[source].Allowed + allowed, sum[source].Denied + denied}
			by[who] = rate{who, "", by[who].Allowed + allowed, by[who].Denied + denied}
		}
		m.processes[c.Process] = sorted(slices.Collect(maps.Values(by)))
		for source, now := range c.Latency {
			r.add(source, now, was.Latency[source])
		}
	}
	m.checks = sorted(append(m.checks, slices.Collect(maps.Values(sum))...))
	m.latency = r.latency()
	return m
}

// limitRates returns the rates of the limits with the most denials.
func limitRates(now time.Time, all []Counters, before map[string]earlier) []limitRate {
	byName := make(map[string]limitRate)
	for _, c := range all {
		was, known := before[c.Process]
		took := now.Sub(was.at).Seconds()
		for name, n := range c.Limits {
			l := byName[name]
			l.Limit, l.AllDenied, l.AllShadow = name, l.AllDenied+n.Denied, l.AllShadow+n.Shadow.Denied
			if known && took > 0 {
				then := was.Limits[name]
				l.Allowed += float64(growth(n.Allowed, then.Allowed)) / took
				l.Denied += float64(growth(n.Denied, then.Denied)) / took
				l.Shadow += float64(growth(n.Shadow.Denied, then.Shadow.Denied)) / took
			}
			byName[name] = l
		}
	}
	rates := slices.Collect(maps.Values(byName))
	slices.SortFunc(rates, func(a, b limitRate) int {
		return cmp.Or(cmp.Compare(b.Denied+b.Shadow, a.Denied+a.Shadow), cmp.Compare(b.AllDenied+b.AllShadow, a.AllDenied+a.AllShadow), cmp.Compare(a.Limit, b.Limit))
	})
	return rates[:min(len(rates), limitsShown)]
}

// fade reduces the weight of earlier measurements.
func (r *rates) fade() {
	for source, counts := range r.lately {
		for i := range counts {
			counts[i] *= fading
		}
		if counts[len(counts)-1] < 0.5 {
			delete(r.lately, source)
		}
	}
}

// latency returns the latency of the last seconds, by source and for all sources together.
func (r *rates) latency() (all []latency) {
	together := make([]float64, len(weir.LatencyBounds())+1)
	for source, counts := range r.lately {
		for i, n := range counts {
			together[i] += n
		}
		all = append(all, latency{decidedBy(source), source.String(), quantile(counts, 0.5), quantile(counts, 0.99)})
	}
	if len(all) > 0 {
		all = append(all, latency{P50: quantile(together, 0.5), P99: quantile(together, 0.99)})
	}
	slices.SortFunc(all, func(a, b latency) int { return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Source, b.Source)) })
	return all
}

// growth returns the growth of a counter since an earlier value. A counter that is lower than this value has
// started again at zero.
func growth(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// add adds the checks of a process between two measurements, of which the argument before is the earlier.
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
		counts[i] += float64(growth(now.Buckets[i], before.Buckets[i]))
	}
	counts[len(now.Buckets)] += float64(now.Count - before.Count)
}

// quantile returns the upper bound of the bucket with the quantile, in microseconds.
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

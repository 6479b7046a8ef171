package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// cell is one contender under one workload.
type cell struct {
	workload  worker.Workload
	contender contender
}

// is reports whether there is such a cell: each node has a key of its own, if it needs one.
func (c cell) is() bool { return c.contender.at != owned || c.workload.Keys >= c.workload.Nodes }

func (c cell) String() string {
	return c.workload.Name + "/" + c.contender.name + "/" + c.contender.algorithm
}

// result is what a cell came to.
type result struct {
	Checks      float64       `json:"checks_per_second"`
	P50         time.Duration `json:"p50_ns"`
	P99         time.Duration `json:"p99_ns"`
	P999        time.Duration `json:"p999_ns"`
	Allocations float64       `json:"allocations_per_check"`
	Bytes       *float64      `json:"bytes_per_key,omitempty"` // nil where too few keys have a count to tell
	Here        float64       `json:"share_without_hop"`
	HotHere     *float64      `json:"share_without_hop_of_hottest_percent,omitempty"` // nil where there are none
	Stray       float64       `json:"share_without_authority"`                        // of all that the oracle judges, as Failed
	Failed      float64       `json:"share_failed"`
	Over        int64         `json:"units_over_admitted"`
	Denied      int64         `json:"units_falsely_denied"`
	Granted     int64         `json:"units_the_limit_grants"`
}

// enoughKeys is how many keys with a count make what a limiter holds besides small
// beside them.
const enoughKeys = 10_000

// settings are what is chosen of a run.
type settings struct {
	duration time.Duration
	callers  int
	part     int          // of workloads
	redis    *redisServer // nil if there is none
	// gubernator is the path of its program, or empty with the reason why there is none.
	gubernator   string
	noGubernator error
}

// missing returns why a contender cannot be measured, or nil.
func (s settings) missing(c contender) error {
	switch {
	case c.remote != nil && s.redis == nil:
		return errNoRedis
	case c.elsewhere && s.gubernator == "":
		return s.noGubernator
	}
	return nil
}

// callers returns how many ask, over all nodes. A limiter that decides in memory is asked by one
// for each CPU: more would measure how long a goroutine waits for a CPU. One that asks another
// process is asked by as many as are chosen. Each node has at least one.
func (c cell) callers(s settings) int {
	callers := s.callers
	if c.contender.local != nil || c.contender.at == owned {
		callers = runtime.NumCPU()
	}
	return max(callers, c.workload.Nodes)
}

// callWait bounds what a worker needs beside the time that it is to ask for.
const callWait = time.Minute

// fillTime is for how many times a run's length keys are asked for before it.
const fillTime = 10

// measure runs the cell once, in new processes and on an empty server.
func (c cell) measure(s settings) (f result, err error) {
	askers, owners := c.workload.Nodes, 0
	if c.contender.at == spread && askers == 1 {
		owners = 1
	}
	var all []*remote
	defer func() {
		if err = errors.Join(err, endAll(all)); err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
	}()
	setup := worker.Setup{Contender: c.contender.name, Algorithm: c.contender.algorithm, Workload: c.workload.Name, Part: s.part, Callers: c.callers(s) / askers, Owned: c.contender.at == owned}
	var addrs []string // of nodes
	var held int64
	if c.contender.remote != nil {
		setup.Redis = s.redis.addr
		if err = s.redis.flush(); err == nil {
			held, err = s.redis.memory()
		}
		if err != nil {
			return f, err
		}
	}
	for setup.Index = range askers + owners {
		w, err := c.startWorker(s)
		if err != nil {
			return f, err
		}
		all = append(all, w)
		addr, err := callAll[string]([]*remote{w}, callWait, "Worker.Start", setup)
		if err != nil {
			return f, err
		}
		addrs = append(addrs, addr...)
		if c.contender.at != noNodes {
			setup.Join = addrs[:1]
		}
	}
	if c.contender.at == spread || c.contender.at == owned && askers > 1 {
		if _, err := callAll[int](all, callWait, "Worker.Meet", addrs); err != nil {
			return f, err
		}
	}
	asking, owning := all[:askers], all[askers:]
	if _, err := callAll[int](asking, callWait, "Worker.Prepare", 0); err != nil {
		return f, err
	}
	begun := time.Now()
	filled, err := callAll[int](asking, callWait+2*fillTime*s.duration, "Worker.Fill", fillTime*s.duration)
	if err != nil {
		return f, err
	}
	if filled[0] >= enoughKeys { // with several nodes nothing is asked for before
		bytes, err := c.weigh(all, s, held)
		if err != nil {
			return f, err
		}
		perKey := float64(bytes) / float64(filled[0])
		f.Bytes = &perKey
	}
	before, err := callAll[uint64](owning, callWait, "Worker.Mallocs", 0)
	if err != nil {
		return f, err
	}
	tallies, err := callAll[worker.Tally](asking, callWait+2*s.duration, "Worker.Run", s.duration)
	if err != nil {
		return f, err
	}
	took := time.Since(begun)
	after, err := callAll[uint64](owning, callWait, "Worker.Mallocs", 0)
	if err != nil {
		return f, err
	}
	var elsewhere uint64
	for i := range after {
		elsewhere += after[i] - before[i]
	}
	return f, c.sumUp(&f, tallies, took, elsewhere)
}

// startWorker starts a worker in this program, or in that of gubernator.
func (c cell) startWorker(s settings) (*remote, error) {
	if c.contender.elsewhere {
		return remoteOf(startProgram(s.gubernator, worker.Name))
	}
	return startRemote(worker.Name)
}

// weigh is how many bytes are held for the keys, wherever they are.
func (c cell) weigh(all []*remote, s settings, before int64) (int64, error) {
	if c.contender.remote != nil {
		now, err := s.redis.memory()
		return now - before, err
	}
	bytes, err := callAll[int64](all, callWait, "Worker.Weigh", 0)
	var sum int64
	for _, b := range bytes {
		sum += b
	}
	return sum, err
}

// sumUp makes figures of what the workers saw, in all the time that they asked, and of
// what others allocated meanwhile.
func (c cell) sumUp(f *result, tallies []worker.Tally, took time.Duration, allocated uint64) error {
	var checks, here, asked, strays, fails float64
	var latency lab.Histogram
	var counts []worker.Count
	for i := range tallies {
		t := &tallies[i]
		checks, here, strays, fails = checks+float64(t.Checks), here+float64(t.Here), strays+float64(t.Stray), fails+float64(t.Failed)
		f.Checks += float64(t.Checks) / t.Took.Seconds()
		allocated += t.Mallocs
		latency.Merge(&t.Latency)
		counts = addCounts(counts, t.Counts)
	}
	for _, c := range counts {
		asked += float64(c.Asked)
	}
	if checks == 0 || fails >= checks {
		return fmt.Errorf("of %.0f checks %.0f failed", asked, fails)
	}
	f.P50, f.P99, f.P999 = latency.Quantile(.5), latency.Quantile(.99), latency.Quantile(.999)
	f.Allocations = float64(allocated) / checks
	f.Here, f.Stray, f.Failed = here/checks, strays/asked, fails/asked
	if hot := len(counts) / worker.Hottest; hot > 0 && c.workload.Name != "uniform" {
		share := hereOf(counts[:hot])
		f.HotHere = &share
	}
	v := judge(counts, c.contender.algorithm, c.workload.Quota, took)
	f.Over, f.Denied, f.Granted = v.over, v.denied, v.granted
	return nil
}

// combine is the medians of what repetitions came to, but what they were worst in where
// one unit counts.
func combine(runs []result) (f result) {
	f = runs[0]
	of := func(of func(result) float64) float64 { return median(each(runs, of)) }
	times := func(of func(result) time.Duration) time.Duration { return median(each(runs, of)) }
	f.Checks = of(func(f result) float64 { return f.Checks })
	f.P50, f.P99, f.P999 = times(func(f result) time.Duration { return f.P50 }), times(func(f result) time.Duration { return f.P99 }), times(func(f result) time.Duration { return f.P999 })
	f.Allocations = of(func(f result) float64 { return f.Allocations })
	f.Here = of(func(f result) float64 { return f.Here })
	if f.Bytes != nil {
		bytes := of(func(f result) float64 { return *f.Bytes })
		f.Bytes = &bytes
	}
	if f.HotHere != nil {
		hot := of(func(f result) float64 { return *f.HotHere })
		f.HotHere = &hot
	}
	for _, r := range runs {
		f.Stray, f.Failed = max(f.Stray, r.Stray), max(f.Failed, r.Failed)
		f.Over, f.Denied, f.Granted = max(f.Over, r.Over), max(f.Denied, r.Denied), min(f.Granted, r.Granted)
	}
	return f
}

// median sorts vs.
func median[T int | float64 | time.Duration](vs []T) T {
	slices.Sort(vs)
	return vs[len(vs)/2]
}

func each[F, T any](fs []F, of func(F) T) []T {
	ts := make([]T, len(fs))
	for i := range fs {
		ts[i] = of(fs[i])
	}
	return ts
}

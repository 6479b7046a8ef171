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

func (c cell) String() string { return c.workload.Name + "/" + c.contender.name }

// result is the figures of a cell.
type result struct {
	Checks                float64 // a second
	P50, P99, P999        time.Duration
	Allocations           float64 // for a check
	Bytes                 float64 // for a key; negative if too few keys have a count
	Here                  float64 // part of the checks that cost no hop
	Stray, Failed         float64 // parts of the checks that the oracle judges
	Over, Denied, Granted int64   // units: see verdict
}

// enoughKeys is the least number of keys with a count for which a limiter's other memory is small.
const enoughKeys = 10_000

// settings are the choices for a run.
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
	case c.gubernator && s.gubernator == "":
		return s.noGubernator
	}
	return nil
}

// callers returns the number of callers. A limiter that decides in memory has one for each CPU:
// with more, the latencies would be times that a goroutine waits for a CPU.
func (c cell) callers(s settings) int {
	if c.contender.at == owned {
		return runtime.NumCPU()
	}
	return s.callers
}

// callWait bounds the time of a call to a worker, besides the time that it asks.
const callWait = time.Minute

// fillTime bounds the time of Fill, in durations of a run.
const fillTime = 10

// measure runs the cell once, in new processes and on an empty server. The first process asks.
// Where checks are forwarded, the second owns the keys.
func (c cell) measure(s settings) (f result, err error) {
	var all []*lab.Service
	defer func() {
		if err = errors.Join(err, endAll(all)); err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
	}()
	setup := worker.Setup{Contender: c.contender.name, Algorithm: "bucket", Workload: c.workload.Name, Part: s.part, Callers: c.callers(s), Owned: c.contender.at != elsewhere}
	var held int64
	if c.contender.at == inRedis {
		setup.Redis = s.redis.addr
		if err = s.redis.flush(); err == nil {
			held, err = s.redis.memory()
		}
		if err != nil {
			return f, err
		}
	}
	processes := 1
	if c.contender.at == elsewhere {
		processes = 2
	}
	for range processes {
		program := ""
		if c.contender.gubernator {
			program = s.gubernator
		}
		w, err := startRemote(program, worker.Name)
		if err != nil {
			return f, err
		}
		all = append(all, w)
		addr, err := callAll[string]([]*lab.Service{w}, callWait, "Worker.Start", setup)
		if err != nil {
			return f, err
		}
		setup.Join = append(setup.Join, addr...)
	}
	if len(all) > 1 {
		if _, err := callAll[int](all, callWait, "Worker.Meet", setup.Join); err != nil {
			return f, err
		}
	}
	asking, owning := all[:1], all[1:]
	if _, err := callAll[int](asking, callWait, "Worker.Prepare", 0); err != nil {
		return f, err
	}
	begun := time.Now()
	filled, err := callAll[int](asking, callWait+2*fillTime*s.duration, "Worker.Fill", fillTime*s.duration)
	if err != nil {
		return f, err
	}
	f.Bytes = -1
	if filled[0] >= enoughKeys {
		bytes, err := c.weigh(all, s, held)
		if err != nil {
			return f, err
		}
		f.Bytes = float64(bytes) / float64(filled[0])
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
	t := &tallies[0]
	for i := range after {
		t.Mallocs += after[i] - before[i]
	}
	return f, c.sumUp(&f, t, took)
}

// weigh returns the bytes that all processes, or Redis, hold for the keys.
func (c cell) weigh(all []*lab.Service, s settings, before int64) (int64, error) {
	if c.contender.at == inRedis {
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

// sumUp computes the figures of a run. All checks, those of Fill included, took so long.
func (c cell) sumUp(f *result, t *worker.Tally, took time.Duration) error {
	var asked float64
	for _, c := range t.Counts {
		asked += float64(c.Asked)
	}
	if t.Checks == 0 || t.Failed >= t.Checks {
		return fmt.Errorf("of %.0f checks %d failed", asked, t.Failed)
	}
	checks := float64(t.Checks)
	f.Checks = checks / t.Took.Seconds()
	f.P50, f.P99, f.P999 = t.Latency.Quantile(.5), t.Latency.Quantile(.99), t.Latency.Quantile(.999)
	f.Allocations = float64(t.Mallocs) / checks
	f.Here, f.Stray, f.Failed = float64(t.Here)/checks, float64(t.Stray)/asked, float64(t.Failed)/asked
	v := judge(t.Counts, c.workload.Quota, took)
	f.Over, f.Denied, f.Granted = v.over, v.denied, v.granted
	return nil
}

// combine returns the medians of repetitions, and the worst of the figures in which one unit counts.
func combine(runs []result) (f result) {
	number := func(of func(result) float64) float64 { return median(each(runs, of)) }
	duration := func(of func(result) time.Duration) time.Duration { return median(each(runs, of)) }
	f.Checks = number(func(f result) float64 { return f.Checks })
	f.P50 = duration(func(f result) time.Duration { return f.P50 })
	f.P99 = duration(func(f result) time.Duration { return f.P99 })
	f.P999 = duration(func(f result) time.Duration { return f.P999 })
	f.Allocations = number(func(f result) float64 { return f.Allocations })
	f.Bytes = number(func(f result) float64 { return f.Bytes })
	f.Here = number(func(f result) float64 { return f.Here })
	f.Granted = runs[0].Granted
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

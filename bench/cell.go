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
	P50, P99              time.Duration
	Here                  float64 // part of the checks that cost no hop
	Stray, Failed         float64 // parts of the checks that the oracle judges
	Over, Denied, Granted int64   // units: see verdict
}

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
	if c.contender.at == inRedis {
		setup.Redis = s.redis.addr
		if err = s.redis.flush(); err != nil {
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
	asking := all[:1]
	if _, err := callAll[int](asking, callWait, "Worker.Prepare", 0); err != nil {
		return f, err
	}
	begun := time.Now()
	if _, err := callAll[int](asking, callWait+2*fillTime*s.duration, "Worker.Fill", fillTime*s.duration); err != nil {
		return f, err
	}
	tallies, err := callAll[worker.Tally](asking, callWait+2*s.duration, "Worker.Run", s.duration)
	if err != nil {
		return f, err
	}
	return f, c.sumUp(&f, &tallies[0], time.Since(begun))
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
	f.P50, f.P99 = t.Latency.Quantile(.5), t.Latency.Quantile(.99)
	f.Here, f.Stray, f.Failed = float64(t.Here)/checks, float64(t.Stray)/asked, float64(t.Failed)/asked
	v := judge(t.Counts, c.workload.Quota, took)
	f.Over, f.Denied, f.Granted = v.over, v.denied, v.granted
	return nil
}

// combine returns the medians of repetitions, and the worst of the figures in which one unit counts.
func combine(runs []result) (f result) {
	f.Checks = median(each(runs, func(f result) float64 { return f.Checks }))
	f.P50 = median(each(runs, func(f result) time.Duration { return f.P50 }))
	f.P99 = median(each(runs, func(f result) time.Duration { return f.P99 }))
	f.Here = median(each(runs, func(f result) float64 { return f.Here }))
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

package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// cell is a contender under a workload.
type cell struct {
	workload  worker.Workload
	contender contender
}

func (c cell) String() string { return c.workload.Name + "/" + c.contender.name }

type result struct {
	Checks   float64 // checks per second
	P50, P99 time.Duration
	Here     float64 // part of the checks without a hop
	NotExact float64 // part of the checks that failed or were decided without authority
}

type settings struct {
	duration time.Duration
	callers  int
	part     int          // factor by which workloads are smaller; 1 except in tests
	redis    *redisServer // nil if there is no server
	// gubernator is the path of the gubernator program. If the path is empty,
	// noGubernator is the reason.
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

// callers returns the number of callers. If the node that receives a check also
// decides it, there is one caller for each CPU: with more callers, the latencies would
// include the time that a goroutine waits for a CPU.
func (c cell) callers(s settings) int {
	if c.contender.at == owned {
		return runtime.NumCPU()
	}
	return s.callers
}

// callWait bounds the time of a call to a worker, excluding the time of its checks.
const callWait = time.Minute

// measure runs the cell once, in new processes and on an empty Redis server. The first
// process makes the checks. If checks are forwarded, the second process owns the keys.
func (c cell) measure(s settings) (f result, err error) {
	var all []*lab.Service
	defer func() {
		if err = errors.Join(err, endAll(all)); err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
	}()
	setup := worker.Setup{Contender: c.contender.name, Workload: c.workload.Name, Part: s.part, Callers: c.callers(s), Owned: c.contender.at != elsewhere}
	if c.contender.at == inRedis {
		setup.Redis = s.redis.addr
		if err = s.redis.flush(); err != nil {
			return f, err
		}
	}
	processes := 1
	if c.contender.at == elsewhere || c.contender.at == nowhere {
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
	tallies, err := callAll[worker.Tally](all[:1], 3*(callWait+10*s.duration), "Worker.Run", s.duration)
	if err != nil {
		return f, err
	}
	return sumUp(&tallies[0])
}

// sumUp computes the figures of a run. sumUp returns an error if no check was measured,
// or if at least as many checks failed as were measured. It also returns an error if all
// checks were decided with authority, but the number of admitted checks is not within the
// bounds of the limits.
func sumUp(t *worker.Tally) (f result, err error) {
	all, unsure := &t.All, t.All.Stray+t.All.Failed
	switch admitted := int64(all.Admitted); {
	case t.Checks == 0 || all.Failed >= t.Checks:
		return f, fmt.Errorf("of %d checks %d failed", all.Checks, all.Failed)
	case unsure == 0 && (admitted < t.Least || admitted > t.Most):
		return f, fmt.Errorf("%d of %d checks were admitted, and the limits grant %d to %d", admitted, all.Checks, t.Least, t.Most)
	}
	checks := float64(t.Checks)
	f.Checks = checks / t.Took.Seconds()
	f.P50, f.P99 = t.Latency.Quantile(.5), t.Latency.Quantile(.99)
	f.Here, f.NotExact = float64(t.Here)/checks, float64(unsure)/float64(all.Checks)
	return f, nil
}

// combine returns the medians, and the worst NotExact, because a single check matters.
func combine(runs []result) (f result) {
	f.Checks = median(runs, func(f result) float64 { return f.Checks })
	f.P50 = median(runs, func(f result) time.Duration { return f.P50 })
	f.P99 = median(runs, func(f result) time.Duration { return f.P99 })
	f.Here = median(runs, func(f result) float64 { return f.Here })
	for _, r := range runs {
		f.NotExact = max(f.NotExact, r.NotExact)
	}
	return f
}

func median[R any, T cmp.Ordered](runs []R, of func(R) T) T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

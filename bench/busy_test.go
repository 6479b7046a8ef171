package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

const (
	busyGateways = 3
	busyKeys     = 10_000
	busyRate     = 5 // units of each key, in a window that outlasts the benchmark
	busyFor      = 5 * time.Second
	// Only one gateway checks the keys whose number is a multiple of lonely.
	lonely = 3
	// busyTimeout is the default of Config.Timeout. busySlack is the time of a check
	// itself on a machine that other programs use.
	busyTimeout = 100 * time.Millisecond
	busySlack   = 10 * time.Millisecond

	// The scheduling delay of a gateway is measured at this interval and to this
	// precision: a tenth of busySlack.
	lateEvery, lateSlack = time.Millisecond, time.Millisecond

	busyQuota, busyPeriod = 40 * time.Millisecond, 100 * time.Millisecond

	// floodRate is the number of new keys per second of all floodCallers. A busy
	// machine reaches a lower rate. Each node has two thirds of the keys, as owner or
	// replica. So 75,000 keys per second fill a store of floodMaxKeys in 2 s.
	floodRate, floodCallers, floodMaxKeys = 200_000, 512, 100_000
	floodPause                            = 5 * time.Millisecond
)

// BusyLoad is the load of each gateway. Goroutines work, yield, may rest, and then check
// a random key.
type BusyLoad struct {
	Goroutines int
	Work, Rest time.Duration
	Throttled  []int // indexes of the processes that are stopped for 60 ms of each 100 ms
	Quota      []int // indexes of the processes that a cgroup limits to 40 ms of CPU in each 100 ms
	Flood      []int // indexes of the gateways that also check new keys
	Gateway    int   // the index of this gateway
}

var busyLoads = []struct {
	name string
	load BusyLoad
}{
	{"16x200us", BusyLoad{Goroutines: 16, Work: 200 * time.Microsecond}},
	{"32x200us-rest-20ms", BusyLoad{Goroutines: 32, Work: 200 * time.Microsecond, Rest: 20 * time.Millisecond}},
	{"64x1ms-rest-100ms", BusyLoad{Goroutines: 64, Work: time.Millisecond, Rest: 100 * time.Millisecond}},
	{"4x50us-rest-10ms-one-throttled", BusyLoad{Goroutines: 4, Work: 50 * time.Microsecond, Rest: 10 * time.Millisecond, Throttled: []int{0}}},
	{"4x50us-rest-10ms-all-throttled", BusyLoad{Goroutines: 4, Work: 50 * time.Microsecond, Rest: 10 * time.Millisecond, Throttled: []int{0, 1, 2}}},
	// A quota stops only a process that would use more: two thirds of a core here.
	{"4x1ms-rest-5ms-all-quota", BusyLoad{Goroutines: 4, Work: time.Millisecond, Rest: 5 * time.Millisecond, Quota: []int{0, 1, 2}}},
	{"32x0us-rest-10ms", BusyLoad{Goroutines: 32, Rest: 10 * time.Millisecond}},
	{"32x0us-rest-10ms-one-flooded", BusyLoad{Goroutines: 32, Rest: 10 * time.Millisecond, Flood: []int{0}}},
}

// BenchmarkBusy runs gateways in separate processes that also do other work or are stopped.
// The benchmark reports by whom the checks were decided, how far the granted units of all gateways
// are from the limits, how long checks took, and how long after the load all checks were
// exact again.
func BenchmarkBusy(b *testing.B) {
	for _, test := range busyLoads {
		b.Run(test.name, func(b *testing.B) {
			for range b.N {
				playBusy(b, test.load)
			}
		})
	}
}

func playBusy(b *testing.B, load BusyLoad) {
	gateways, _ := startMembers(b, busyGateways, MemberConfig{Timeout: busyTimeout, Rate: busyRate, MaxKeys: floodMaxKeys})
	var throttles sync.WaitGroup
	done := make(chan struct{})
	for k, i := range load.Throttled {
		throttles.Go(func() {
			time.Sleep(time.Duration(k) * 37 * time.Millisecond) // out of step
			throttle(gateways[i].Child, done)
		})
	}
	var quotas []*cpuQuota
	for _, i := range load.Quota {
		q, err := newCPUQuota(gateways[i].PID(), busyQuota, busyPeriod)
		if err != nil {
			require.NoError(b, endAll(gateways))
			b.Skipf("a CPU quota needs a cgroup of its own, which cannot be made here: %v", err)
		}
		defer func() { require.NoError(b, q.remove()) }()
		quotas = append(quotas, q)
	}
	for i, g := range gateways {
		load.Gateway = i
		require.NoError(b, g.Call("Member.Begin", load, new(int)))
	}
	time.Sleep(busyFor)
	for _, g := range gateways {
		require.NoError(b, g.Call("Member.Stop", 0, new(int)))
	}
	close(done)
	throttles.Wait()
	begun := time.Now()
	call[int](b, gateways, "Member.Exact", 0)
	exact := time.Since(begun)
	all := newBusyReport()
	for _, r := range call[BusyReport](b, gateways, "Member.Report", 0) {
		all.add(&r)
	}
	if len(quotas) > 0 {
		b.ReportMetric(100*median(quotas, (*cpuQuota).throttled), "%throttled")
	}
	require.NoError(b, endAll(gateways))
	all.report(b)
	b.ReportMetric(milliseconds(exact), "ms-until-exact")
}

// busy is the load of a member.
type busy struct {
	ended   atomic.Bool
	callers sync.WaitGroup
	late    lab.SchedulingDelay

	mu     sync.Mutex
	denied map[int]time.Time // times of the first denials with authority, by key
	report BusyReport
}

// Begin begins the load.
func (s *service) Begin(load BusyLoad, _ *int) error {
	s.busy = &busy{denied: make(map[int]time.Time), report: newBusyReport()}
	s.busy.late.Start(lateEvery, lateSlack)
	for range load.Goroutines {
		s.busy.callers.Go(func() { s.busy.ask(s.limiter, load) })
	}
	if slices.Contains(load.Flood, load.Gateway) {
		l, err := s.node.Limiter(weir.Limit{Name: "minted", Rate: 1, Per: 30 * 24 * time.Hour})
		if err != nil {
			return err
		}
		for caller := range floodCallers {
			s.busy.callers.Go(func() { s.busy.flood(l, caller) })
		}
	}
	return nil
}

// flood checks new keys, once each, as one of floodCallers. A late caller makes all due
// checks before it waits again.
func (s *busy) flood(l *weir.Limiter, caller int) {
	begun, minted, errors := time.Now(), 0, 0
	for over := false; !over; over = s.ended.Load() {
		time.Sleep(floodPause)
		for due := int(time.Since(begun) * floodRate / floodCallers / time.Second); minted < due; minted++ {
			if _, err := l.Allow(context.Background(), fmt.Sprint("minted ", minted*floodCallers+caller)); err != nil {
				errors++
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Minted, s.report.Errors = s.report.Minted+minted, s.report.Errors+errors
}

func (s *busy) ask(limiter *weir.Limiter, load BusyLoad) {
	keys := worker.KeysThat(busyKeys, worker.AnyKey)
	for over := false; !over; over = s.ended.Load() {
		for begun := time.Now(); time.Since(begun) < load.Work; {
		}
		runtime.Gosched()
		if load.Rest > 0 {
			time.Sleep(load.Rest)
		}
		i := rand.IntN(busyKeys)
		if isLonely(i) {
			i = i/(lonely*busyGateways)*(lonely*busyGateways) + lonely*load.Gateway
			if i >= busyKeys {
				continue
			}
		}
		begun := time.Now()
		d, err := limiter.Allow(context.Background(), keys[i])
		took := time.Since(begun)
		beyond := took - busyTimeout - s.late.WorstSince(begun.UnixNano())
		s.mu.Lock()
		s.report.Asked[i]++
		if d.Allowed {
			s.report.Granted[i]++
		}
		switch first, known := s.denied[i]; {
		case d.Allowed && known && begun.After(first):
			s.report.Again++
		case !d.Allowed && !known && byAuthority(d.Source):
			s.denied[i] = time.Now()
		}
		if err != nil {
			s.report.Errors++
		}
		if beyond > busySlack {
			s.report.Beyond++
		}
		switch {
		case byAuthority(d.Source):
			s.report.Authority++
		case d.Source == weir.StandIn:
			s.report.StandIn++
		}
		s.report.Latencies = append(s.report.Latencies, took)
		s.mu.Unlock()
	}
}

func isLonely(key int) bool { return key%lonely == 0 }

// Stop ends the load.
func (s *service) Stop(_ int, _ *int) error {
	s.busy.end()
	s.busy.report.Late = s.busy.late.Worst()
	return nil
}

func (s *busy) end() {
	s.ended.Store(true)
	s.callers.Wait()
	s.late.Stop()
}

// Report returns the observations of the load.
func (s *service) Report(_ int, r *BusyReport) error {
	*r = s.busy.report
	r.Denied = len(s.busy.denied)
	return nil
}

// BusyReport contains the observations of a load.
type BusyReport struct {
	Asked, Granted     []int // number of units of each key
	Authority, StandIn int   // checks by kind of decision
	Latencies          []time.Duration
	Beyond             int           // checks that took longer than the sum of Timeout, busySlack and the longest scheduling delay of the process during the check
	Late               time.Duration // the longest scheduling delay of a process
	Errors             int
	Denied, Again      int // number of keys that were denied with authority, and of checks that granted such a key later
	Minted             int // new keys of a flood
}

func newBusyReport() BusyReport {
	return BusyReport{Asked: make([]int, busyKeys), Granted: make([]int, busyKeys)}
}

func (r *BusyReport) add(o *BusyReport) {
	for i := range o.Asked {
		r.Asked[i] += o.Asked[i]
		r.Granted[i] += o.Granted[i]
	}
	r.Authority, r.StandIn = r.Authority+o.Authority, r.StandIn+o.StandIn
	r.Latencies = append(r.Latencies, o.Latencies...)
	r.Beyond += o.Beyond
	r.Late = max(r.Late, o.Late)
	r.Errors, r.Minted = r.Errors+o.Errors, r.Minted+o.Minted
	r.Denied, r.Again = r.Denied+o.Denied, r.Again+o.Again
}

func (r *BusyReport) report(b *testing.B) {
	checks := len(r.Latencies)
	share := func(n int) float64 { return 100 * float64(n) / float64(max(1, checks)) }
	slices.Sort(r.Latencies)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(share(r.Authority), "%authority")
	b.ReportMetric(share(r.StandIn), "%stand-in")
	b.ReportMetric(share(checks-r.Authority-r.StandIn), "%shares")
	r.reportKeys(b, "", func(int) bool { return true })
	r.reportKeys(b, "-lonely", isLonely)
	b.ReportMetric(float64(r.Errors), "errors")
	b.ReportMetric(float64(checks)/busyFor.Seconds(), "checks/s")
	for name, per1000 := range map[string]int{"p50-ms": 500, "p99-ms": 990, "max-ms": 1000} {
		b.ReportMetric(milliseconds(r.Latencies[min(checks-1, checks*per1000/1000)]), name)
	}
	b.ReportMetric(share(r.Beyond), "%beyond")
	b.ReportMetric(milliseconds(r.Late), "late-ms")
	b.ReportMetric(float64(r.Denied), "denied")
	b.ReportMetric(float64(r.Again), "denied-again")
	b.ReportMetric(float64(r.Minted)/busyFor.Seconds(), "new-keys/s")
}

// reportKeys compares the granted units of the keys for which some returns true with the
// units that their limits grant.
func (r *BusyReport) reportKeys(b *testing.B, suffix string, some func(key int) bool) {
	var due, granted, over int
	for i := range r.Asked {
		if some(i) {
			most := min(r.Asked[i], busyRate)
			due += most
			granted += r.Granted[i]
			over += max(0, r.Granted[i]-most)
		}
	}
	b.ReportMetric(100*float64(granted)/float64(max(1, due)), "%granted"+suffix)
	b.ReportMetric(100*float64(over)/float64(max(1, due)), "%over"+suffix)
}

// throttle stops a process for 60 ms of each 100 ms, like a CPU quota, until the channel done
// is closed.
func throttle(p *lab.Child, done <-chan struct{}) {
	for {
		_ = p.Freeze()
		time.Sleep(60 * time.Millisecond)
		_ = p.Thaw()
		select {
		case <-done:
			return
		case <-time.After(40 * time.Millisecond):
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

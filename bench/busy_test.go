package main

import (
	"cmp"
	"context"
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
	busyRate     = 5 // of each key, in a window that outlasts the benchmark
	// By Zipf's law so few keys are asked for that the hottest hundredth of them is hot on
	// gateways that do hardly anything but other work.
	busyZipfKeys = 1000
	zipfRate     = 1000
	busyFor      = 5 * time.Second
	// lonely keys are asked through one gateway alone, the rest through all: one
	// key in so many.
	lonely = 3
	// busyTimeout is Config.Timeout's default, and busySlack what a check itself takes
	// on a machine that is shared.
	busyTimeout = 100 * time.Millisecond
	busySlack   = 10 * time.Millisecond

	// A gateway's lateness is measured this often, and to this much: a tenth of busySlack.
	lateEvery, lateSlack = time.Millisecond, time.Millisecond

	busyQuota, busyPeriod = 40 * time.Millisecond, 100 * time.Millisecond
)

// BusyLoad is what each gateway's process does besides checks: goroutines that work
// a while, yield, perhaps rest, and then check a key at random.
type BusyLoad struct {
	Goroutines int
	Work, Rest time.Duration
	Timeout    time.Duration // Config.Timeout; its default if zero
	Throttled  []int         // the processes that are stopped for 60 ms of each 100
	Quota      []int         // the processes that may use 40 ms of CPU in each 100 ms, by cgroup
	Zipf       bool          // keys are drawn by Zipf's law with s = 1.1, and have more units
	Gateway    int           // which one this is; of BusyGateway.Begin
}

// rate is what each key's limit grants.
func (l BusyLoad) rate() int {
	if l.Zipf {
		return zipfRate
	}
	return busyRate
}

var busyLoads = []struct {
	name string
	load BusyLoad
}{
	{"16x200us", BusyLoad{Goroutines: 16, Work: 200 * time.Microsecond}},
	{"32x200us-rest-20ms", BusyLoad{Goroutines: 32, Work: 200 * time.Microsecond, Rest: 20 * time.Millisecond}},
	{"64x1ms-rest-100ms", BusyLoad{Goroutines: 64, Work: time.Millisecond, Rest: 100 * time.Millisecond}},
	{"32x200us-timeout-20ms", BusyLoad{Goroutines: 32, Work: 200 * time.Microsecond, Timeout: 20 * time.Millisecond}},
	{"4x50us-rest-10ms-one-throttled", BusyLoad{Goroutines: 4, Work: 50 * time.Microsecond, Rest: 10 * time.Millisecond, Throttled: []int{0}}},
	{"4x50us-rest-10ms-all-throttled", BusyLoad{Goroutines: 4, Work: 50 * time.Microsecond, Rest: 10 * time.Millisecond, Throttled: []int{0, 1, 2}}},
	// A quota stops only who would use more: two thirds of a core here.
	{"4x1ms-rest-5ms-one-quota", BusyLoad{Goroutines: 4, Work: time.Millisecond, Rest: 5 * time.Millisecond, Quota: []int{0}}},
	{"16x200us-zipf", BusyLoad{Goroutines: 16, Work: 200 * time.Microsecond, Zipf: true}},
	{"32x200us-rest-20ms-zipf", BusyLoad{Goroutines: 32, Work: 200 * time.Microsecond, Rest: 20 * time.Millisecond, Zipf: true}},
	{"64x1ms-rest-100ms-zipf", BusyLoad{Goroutines: 64, Work: time.Millisecond, Rest: 100 * time.Millisecond, Zipf: true}},
	{"4x1ms-rest-5ms-all-quota", BusyLoad{Goroutines: 4, Work: time.Millisecond, Rest: 5 * time.Millisecond, Quota: []int{0, 1, 2}}},
}

// BenchmarkBusy is gateways in processes of their own that leave the machine no
// idle time. It says by whom checks were decided, how far what all of them granted
// together is from what the limits grant, how long checks took, and how long after
// the load's end all checks were exact again.
func BenchmarkBusy(b *testing.B) {
	for _, test := range busyLoads {
		b.Run(test.name, func(b *testing.B) {
			for range b.N {
				busyRound(b, test.load)
			}
		})
	}
}

func busyRound(b *testing.B, load BusyLoad) {
	gateways := startGateways(b, load)
	var throttles sync.WaitGroup
	done := make(chan struct{})
	for k, i := range load.Throttled {
		throttles.Go(func() {
			time.Sleep(time.Duration(k) * 37 * time.Millisecond) // out of step
			throttle(gateways[i].process, done)
		})
	}
	var quotas []*cpuQuota
	for _, i := range load.Quota {
		q, err := newCPUQuota(gateways[i].PID(), busyQuota, busyPeriod)
		if err != nil {
			endMembers(b, gateways)
			b.Skipf("a CPU quota needs a cgroup of its own, which cannot be made here: %v", err)
		}
		defer func() { require.NoError(b, q.remove()) }()
		quotas = append(quotas, q)
	}
	for i, g := range gateways {
		load.Gateway = i
		require.NoError(b, g.Call("Busy.Begin", load, new(int)))
	}
	time.Sleep(busyFor)
	for _, g := range gateways {
		require.NoError(b, g.Call("Busy.Stop", 0, new(int)))
	}
	close(done)
	throttles.Wait()
	begun := time.Now()
	for _, g := range gateways {
		require.NoError(b, g.Call("Busy.Exact", 0, new(int)))
	}
	exact := time.Since(begun)
	var all BusyReport
	for _, g := range gateways {
		var r BusyReport
		require.NoError(b, g.Call("Busy.Report", 0, &r))
		all.add(&r)
	}
	if len(quotas) > 0 {
		b.ReportMetric(100*median(each(quotas, (*cpuQuota).throttled)), "%throttled")
	}
	endMembers(b, gateways)
	all.report(b, load.rate())
	b.ReportMetric(float64(exact.Milliseconds()), "ms-until-exact")
}

func startGateways(b *testing.B, load BusyLoad) []*member {
	var gateways []*member
	var join []string
	for range busyGateways {
		m := new(member)
		var err error
		m.remote, err = startRemote("busy")
		require.NoError(b, err)
		require.NoError(b, m.Call("Busy.Start", BusyConfig{join, load}, &m.addr))
		join = []string{m.addr}
		gateways = append(gateways, m)
	}
	for _, g := range gateways {
		require.NoError(b, g.Call("Busy.Meet", len(gateways), new(int)))
	}
	return gateways
}

// Busy is a gateway's side of BenchmarkBusy.
type Busy struct {
	node    *weir.Node
	limiter *weir.Limiter
	ended   atomic.Bool
	callers sync.WaitGroup
	late    lab.Lateness

	mu     sync.Mutex
	report BusyReport
}

func serveBusy(ready func(string), done <-chan struct{}) error {
	s := new(Busy)
	if err := worker.ServeRPC("Busy", s, ready, done); err != nil {
		return err
	}
	s.ended.Store(true)
	s.callers.Wait()
	if s.node == nil {
		return nil
	}
	return s.node.Close()
}

// BusyConfig is what a gateway is started with.
type BusyConfig struct {
	Join []string
	Load BusyLoad
}

// Start starts the node, with the defaults but for Timeout, and answers with its address.
func (s *Busy) Start(c BusyConfig, addr *string) (err error) {
	s.node, err = weir.Start(context.Background(), weir.Config{
		Name: "busy", Bind: "127.0.0.1:0", Join: c.Join, Timeout: c.Load.Timeout, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	*addr = addrOf(s.node)
	s.limiter, err = s.node.Limiter(weir.Limit{Name: "busy", Algorithm: weir.FixedWindow, Rate: int64(c.Load.rate()), Per: time.Hour})
	return err
}

// Meet waits until the node is ready and so many serve.
func (s *Busy) Meet(members int, _ *int) error {
	return untilMet(s.node, members, memberWait)
}

// Begin begins the load.
func (s *Busy) Begin(load BusyLoad, _ *int) error {
	s.report = BusyReport{Asked: make([]int, busyKeys), Granted: make([]int, busyKeys), Sources: map[string]int{}}
	s.late.Start(lateEvery, lateSlack)
	for range load.Goroutines {
		s.callers.Go(func() { s.ask(load) })
	}
	return nil
}

func (s *Busy) ask(load BusyLoad) {
	keys, draw := worker.KeysThat(busyKeys, worker.AnyKey), func() int { return rand.IntN(busyKeys) }
	if load.Zipf {
		draw = worker.ZipfOf(busyZipfKeys)(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	}
	for !s.ended.Load() {
		burn(load.Work)
		runtime.Gosched()
		if load.Rest > 0 {
			time.Sleep(load.Rest)
		}
		i := draw()
		if isLonely(i) && !load.Zipf {
			i = i/(lonely*busyGateways)*(lonely*busyGateways) + lonely*load.Gateway
			if i >= busyKeys {
				continue
			}
		}
		begun := time.Now()
		d, err := s.limiter.Allow(context.Background(), keys[i])
		took := time.Since(begun)
		beyond := took - cmp.Or(load.Timeout, busyTimeout) - s.late.WorstSince(begun)
		s.mu.Lock()
		s.report.Asked[i]++
		if d.Allowed {
			s.report.Granted[i]++
		}
		if err != nil {
			s.report.Errors++
		}
		if beyond > busySlack {
			s.report.Beyond++
		}
		s.report.Sources[d.Source.String()]++
		if isHot(i) && (d.Source == weir.Owner || d.Source == weir.Leased || d.Source == weir.Pushback) {
			s.report.HotHere++
		}
		s.report.Latencies = append(s.report.Latencies, took)
		s.mu.Unlock()
	}
}

func isLonely(key int) bool { return key%lonely == 0 }

// isHot reports whether a key is of the hundredth that is asked for most under Zipf's law.
func isHot(key int) bool { return key < busyZipfKeys/worker.Hottest }

// burn uses a core for so long.
func burn(work time.Duration) {
	for begun := time.Now(); time.Since(begun) < work; {
	}
}

// Stop ends the load.
func (s *Busy) Stop(_ int, _ *int) error {
	s.ended.Store(true)
	s.callers.Wait()
	s.late.Stop()
	s.report.Late = s.late.Worst()
	return nil
}

// Exact waits until a hundred keys in a row are decided by those with authority.
func (s *Busy) Exact(_ int, _ *int) error { return untilExact(s.limiter, memberWait) }

// Report answers with what the load has seen.
func (s *Busy) Report(_ int, r *BusyReport) error {
	*r = s.report
	return nil
}

// BusyReport is what a load has seen: of each key what was asked and granted, by
// whom checks were decided, and how long each took.
type BusyReport struct {
	Asked, Granted []int
	Sources        map[string]int
	Latencies      []time.Duration
	HotHere        int           // checks of the hottest hundredth of the keys that cost no hop
	Beyond         int           // checks that took longer than Timeout, busySlack and what the process was late by at worst meanwhile
	Late           time.Duration // how late a process woke up at worst
	Errors         int
}

func (r *BusyReport) add(o *BusyReport) {
	if r.Asked == nil {
		r.Asked, r.Granted, r.Sources = make([]int, busyKeys), make([]int, busyKeys), map[string]int{}
	}
	for i := range o.Asked {
		r.Asked[i] += o.Asked[i]
		r.Granted[i] += o.Granted[i]
	}
	for source, n := range o.Sources {
		r.Sources[source] += n
	}
	r.Latencies = append(r.Latencies, o.Latencies...)
	r.HotHere += o.HotHere
	r.Beyond += o.Beyond
	r.Late = max(r.Late, o.Late)
	r.Errors += o.Errors
}

func (r *BusyReport) report(b *testing.B, rate int) {
	checks := len(r.Latencies)
	authority := 0
	for _, source := range []string{weir.Owner.String(), weir.Forwarded.String(), weir.Relayed.String(), weir.Pushback.String(), weir.Leased.String()} {
		authority += r.Sources[source]
	}
	share := func(n int) float64 { return 100 * float64(n) / float64(max(1, checks)) }
	slices.Sort(r.Latencies)
	at := func(per1000 int) float64 {
		return float64(r.Latencies[min(checks-1, checks*per1000/1000)].Microseconds()) / 1000
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(share(authority), "%authority")
	b.ReportMetric(share(r.Sources[weir.StandIn.String()]), "%stand-in")
	b.ReportMetric(share(checks-authority-r.Sources[weir.StandIn.String()]), "%shares")
	r.reportKeys(b, rate, "", func(int) bool { return true })
	if rate == zipfRate {
		asked := 0
		for _, n := range r.Asked[:busyZipfKeys/worker.Hottest] {
			asked += n
		}
		b.ReportMetric(100*float64(r.HotHere)/float64(max(1, asked)), "%no-hop-hot")
		r.reportKeys(b, rate, "-hot", isHot)
	} else {
		r.reportKeys(b, rate, "-lonely", isLonely)
	}
	b.ReportMetric(float64(r.Errors), "errors")
	b.ReportMetric(float64(checks)/busyFor.Seconds(), "checks/s")
	b.ReportMetric(at(500), "p50-ms")
	b.ReportMetric(at(990), "p99-ms")
	b.ReportMetric(at(999), "p99.9-ms")
	b.ReportMetric(at(1000), "max-ms")
	b.ReportMetric(share(r.Beyond), "%beyond")
	b.ReportMetric(milliseconds(r.Late), "late-ms")
}

// reportKeys reports how far what was granted of some of the keys is from what their
// limits grant of what was asked.
func (r *BusyReport) reportKeys(b *testing.B, rate int, suffix string, some func(key int) bool) {
	var due, granted, over int
	for i := range r.Asked {
		if some(i) {
			most := min(r.Asked[i], rate)
			due += most
			granted += r.Granted[i]
			over += max(0, r.Granted[i]-most)
		}
	}
	b.ReportMetric(100*float64(granted)/float64(max(1, due)), "%granted"+suffix)
	b.ReportMetric(100*float64(over)/float64(max(1, due)), "%over"+suffix)
}

// throttle stops a process for 60 ms of each 100, as a CPU quota does, until done.
func throttle(p *process, done <-chan struct{}) {
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

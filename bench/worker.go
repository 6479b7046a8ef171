package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// workerRole is a process that has one instance of a contender, and callers that ask it.
const workerRole = "worker"

// drawsOf is how many checks the callers of all nodes draw before anything is measured;
// a caller that has asked for all of them begins again.
const drawsOf = 1 << 20

// Worker is the service of such a process. Its methods are called one at a time, in the
// order in which they stand here.
type Worker struct {
	setup     Setup
	contender contender
	workload  workload
	instance  *instance
	weir      *weirInstance // nil if it is not Weir's
	before    int64         // bytes in the heap before there was anything
	harness   int64         // bytes that are this worker's, and not the instance's
	keys      []string
	counts    []count // of what was asked in Fill
	draws     []string
	drawn     []uint32 // their indexes
	callers   []asker
	measuring atomic.Bool
}

// Setup is what a worker is to be.
type Setup struct {
	Contender, Algorithm, Workload string

	Part           int // of workloads
	Index, Callers int
	Join           []string // of Weir, where there are several nodes
	Redis          string
}

func serveWorker(ready func(string), done <-chan struct{}) error {
	w := new(Worker)
	if err := serveRPC("Worker", w, ready, done); err != nil {
		return err
	}
	if w.instance == nil {
		return nil
	}
	return w.instance.close()
}

// Start makes the instance. It answers with the address of a node of Weir's.
func (w *Worker) Start(s Setup, addr *string) (err error) {
	c, workload, err := find(s.Contender, s.Algorithm, s.Workload, s.Part)
	if err != nil {
		return err
	}
	w.setup, w.contender, w.workload = s, c, workload
	w.before = heap()
	switch {
	case c.local != nil:
		w.instance, err = c.local(workload.quota)
	case c.remote != nil:
		w.instance, err = c.remote(workload.quota, s.Redis)
	default:
		alone := workload.nodes == 1 && c.at == owned
		if w.weir, err = newWeirNode(c.limit(workload.quota), alone, s.Join); err != nil {
			return err
		}
		w.instance = &w.weir.instance
		*addr = addrOf(w.weir.node)
	}
	return err
}

// Meet waits until a node of Weir's and so many others serve, and decide by authority.
func (w *Worker) Meet(members int, _ *int) error {
	if w.weir == nil || members == 0 {
		return nil
	}
	return errors.Join(untilMet(w.weir.node, members, startWait), untilExact(w.weir.limiter, startWait))
}

// Prepare makes the keys, and draws from them.
func (w *Worker) Prepare(_ int, _ *int) error {
	held := heap()
	random := rand.New(rand.NewPCG(1, uint64(w.setup.Index)))
	draw := w.workload.draw(random)
	mine := func(int) bool { return true }
	switch {
	case w.weir != nil && w.workload.nodes == 1: // all owned, or none
		w.keys = keysThat(w.workload.keys, func(key string) bool { return w.weir.limiter.Owner(key).Self == (w.contender.at == owned) })
	case w.contender.at == owned: // of all keys, its own
		w.keys = keysThat(w.workload.keys, anyKey)
		mine = func(i int) bool { return w.weir.limiter.Owner(w.keys[i]).Self }
		if !slices.ContainsFunc(w.keys, func(key string) bool { return w.weir.limiter.Owner(key).Self }) {
			return fmt.Errorf("bench: of %d keys a node owns none", len(w.keys))
		}
	default:
		w.keys = keysThat(w.workload.keys, anyKey)
	}
	n := drawsOf / w.setup.Part / w.workload.nodes
	w.drawn = make([]uint32, n)
	w.draws = drawn(w.keys, n, func() func() int {
		n := 0
		return func() int {
			i := draw()
			for !mine(i) {
				i = draw()
			}
			w.drawn[n] = uint32(i)
			n++
			return i
		}
	}())
	w.counts = make([]count, len(w.keys))
	w.callers = make([]asker, w.setup.Callers)
	for i := range w.callers {
		w.callers[i] = newAsker(i*n/len(w.callers), outcomesKept/w.setup.Part/len(w.callers))
	}
	w.harness = heap() - held
	return nil
}

// Fill asks for keys as often as they are asked for before anything is measured, for so
// long at most, in another order than their texts lie in and by copies of these, as
// every request brings its own. It answers with how many of them have a count.
func (w *Worker) Fill(within time.Duration, filled *int) error {
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(w.keys))
	begun := time.Now()
	asked := w.all(func(i int, c *asker) (err error) {
		for at := i; at < len(order) && time.Since(begun) < within; at += len(w.callers) {
			k := order[at]
			for n := w.workload.fill(k); n > 0; n-- {
				o := w.instance.allow(strings.Clone(w.keys[k]))
				w.counts[k].add(o)
				c.unsure(o)
			}
		}
		return nil
	})
	for _, c := range w.counts {
		if c.Asked > 0 {
			*filled++
		}
	}
	return asked
}

// add counts a check. It is called by one goroutine per key.
func (c *count) add(o outcome) {
	c.Asked++
	c.Admitted += uint32(o & admitted)
	c.Here += uint32(o & here >> 1)
}

// Weigh answers with how many bytes the instance holds, once its counts have their
// replicas.
func (w *Worker) Weigh(_ int, bytes *int64) error {
	if w.weir != nil {
		for begun := time.Now(); time.Since(begun) < startWait; {
			time.Sleep(50 * time.Millisecond) // Stats are half as old at most
			if w.weir.node.Stats().Stream.Unsent == 0 {
				break
			}
		}
	}
	*bytes = heap() - w.before - w.harness
	return nil
}

// Mallocs answers with how often the process has allocated.
func (w *Worker) Mallocs(_ int, n *uint64) error {
	*n = mallocs()
	return nil
}

// Tally is what one worker has seen.
type Tally struct {
	Checks, Here  int // in Took
	Took          time.Duration
	Latency       lab.Histogram
	Mallocs       uint64
	Stray, Failed int     // since Fill began
	Counts        []count // of all that was asked since then
}

// warmUp is the part of a run that comes before it and is not measured, inverse.
const warmUp = 5

// timings is how many checks a second are timed: the two looks at the clock take as long
// as half an owned check.
const timings = 100_000

// Run asks for so long.
func (w *Worker) Run(d time.Duration, t *Tally) error {
	checks, took, err := w.drive(d/warmUp, 64)
	if err != nil {
		return err
	}
	every := max(1, int(float64(checks)/took.Seconds()/timings))
	for i := range w.callers {
		w.callers[i].seen = seen{}
	}
	before := mallocs()
	if t.Checks, t.Took, err = w.drive(d, every); err != nil {
		return err
	}
	t.Mallocs = mallocs() - before
	t.Counts = w.counts
	for i := range w.callers {
		c := &w.callers[i]
		t.Here, t.Stray, t.Failed = t.Here+c.here, t.Stray+c.stray, t.Failed+c.failed
		t.Latency.Merge(&c.latency)
		for at := range c.checks {
			t.Counts[w.drawn[(c.first+at)%len(w.drawn)]].add(c.outcomeOf(at))
		}
	}
	return nil
}

// drive has all callers ask for so long, and answers with how many checks that were.
func (w *Worker) drive(d time.Duration, every int) (checks int, took time.Duration, err error) {
	before := 0
	for i := range w.callers {
		before += w.callers[i].checks
	}
	w.measuring.Store(true)
	begun := time.Now()
	over := time.AfterFunc(d, func() { w.measuring.Store(false) })
	defer over.Stop()
	err = w.all(func(i int, c *asker) error {
		// They count in memory of their own, so that none waits for another's.
		own := *c
		own.ask(w, every)
		*c = own
		return nil
	})
	took = time.Since(begun)
	for i := range w.callers {
		checks += w.callers[i].checks
	}
	return checks - before, took, err
}

// all calls do for every caller, at once.
func (w *Worker) all(do func(i int, c *asker) error) error {
	var callers sync.WaitGroup
	errs := make([]error, len(w.callers))
	for i := range w.callers {
		callers.Go(func() { errs[i] = do(i, &w.callers[i]) })
	}
	callers.Wait()
	return errors.Join(errs...)
}

// asker is one of the callers. It asks again as soon as it is answered.
type asker struct {
	first    int      // in draws
	checks   int      // that it has asked, from there on
	admitted []uint64 // a bit for each
	decided  []uint64 // without a hop, a bit for each
	stray    int      // measured or not, as failed
	failed   int
	seen
}

// seen is what is measured.
type seen struct {
	here    int
	latency lab.Histogram
}

// outcomesKept is for how many checks of a worker there is memory at once. For more it
// is allocated as they come, which weighs nothing on so many.
const outcomesKept = 1 << 26

func newAsker(first, kept int) asker {
	return asker{
		first:    first,
		admitted: make([]uint64, 0, kept/64),
		decided:  make([]uint64, 0, kept/64),
	}
}

// ask asks at least once and until nothing is measured any more, and times one check of so
// many. On a busy machine the time may be over before the caller runs.
func (c *asker) ask(w *Worker, every int) {
	at := (c.first + c.checks) % len(w.draws)
	until := 1 + c.first*every/len(w.draws) // not all callers time the same check
	for {
		var o outcome
		if until--; until == 0 {
			until = every
			begun := time.Now()
			o = w.instance.allow(w.draws[at])
			c.latency.Add(time.Since(begun))
		} else {
			o = w.instance.allow(w.draws[at])
		}
		if at++; at == len(w.draws) {
			at = 0
		}
		c.note(o)
		if !w.measuring.Load() {
			return
		}
	}
}

func (c *asker) note(o outcome) {
	bit := c.checks % 64
	if bit == 0 {
		c.admitted, c.decided = append(c.admitted, 0), append(c.decided, 0)
	}
	last := len(c.admitted) - 1
	c.admitted[last] |= uint64(o&admitted) << bit
	c.checks++
	if o&here != 0 {
		c.decided[last] |= 1 << bit
		c.here++
	}
	c.unsure(o)
}

// unsure notes a check that nobody with authority decided, or nobody at all.
func (c *asker) unsure(o outcome) {
	if o&(stray|failed) != 0 {
		c.stray += int(o & stray >> 2)
		c.failed += int(o & failed >> 3)
	}
}

// outcomeOf is what became of one of its checks.
func (c *asker) outcomeOf(check int) outcome {
	in, bit := check/64, check%64
	return outcome(c.admitted[in]>>bit&1) | outcome(c.decided[in]>>bit&1)<<1
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// find finds a contender and a workload by their names.
func find(name, algorithm, work string, part int) (contender, workload, error) {
	cs, ws := contenders(), workloads(part)
	c := slices.IndexFunc(cs, func(c contender) bool { return c.name == name && c.algorithm == algorithm })
	w := slices.IndexFunc(ws, func(w workload) bool { return w.name == work })
	if c < 0 || w < 0 {
		return contender{}, workload{}, fmt.Errorf("bench: there is no %s/%s/%s", work, name, algorithm)
	}
	return cs[c], ws[w], nil
}

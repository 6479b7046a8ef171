package worker

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

// Name is the role of a process that has one instance of a contender, and callers that ask it.
const Name = "worker"

// drawsOf is how many checks the callers of all nodes draw before anything is measured;
// a caller that has asked for all of them begins again.
const drawsOf = 1 << 20

// Worker is the service of such a process. Its methods are called one at a time, in the
// order in which they stand here.
type Worker struct {
	begin     func(Setup, Quota) (*Instance, error)
	setup     Setup
	workload  Workload
	instance  *Instance
	before    int64 // bytes in the heap before there was anything
	harness   int64 // bytes that are this worker's, and not the instance's
	keys      []string
	counts    []Count // of what was asked in Fill
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
	Owned          bool     // it is asked for keys that its node owns, and else for others' or for all
	Join           []string // the nodes before it, of a contender that has some
	Redis          string
}

// Serve serves a worker, whose instance begin makes.
func Serve(begin func(Setup, Quota) (*Instance, error)) Role {
	return func(ready func(string), done <-chan struct{}) error {
		w := &Worker{begin: begin}
		if err := ServeRPC("Worker", w, ready, done); err != nil {
			return err
		}
		if w.instance == nil {
			return nil
		}
		return w.instance.Close()
	}
}

// Start makes the instance. It answers with the address of its node.
func (w *Worker) Start(s Setup, addr *string) (err error) {
	w.setup = s
	if w.workload, err = FindWorkload(s.Workload, s.Part); err != nil {
		return err
	}
	w.before = Heap()
	if w.instance, err = w.begin(s, w.workload.Quota); err != nil {
		return err
	}
	*addr = w.instance.Addr
	return nil
}

// Meet waits until the nodes at these addresses serve, and decide by authority.
func (w *Worker) Meet(nodes []string, _ *int) error {
	if w.instance.Meet == nil {
		return nil
	}
	return w.instance.Meet(nodes)
}

// Prepare makes the keys, and draws from them.
func (w *Worker) Prepare(_ int, _ *int) error {
	held := Heap()
	random := rand.New(rand.NewPCG(1, uint64(w.setup.Index)))
	draw := w.workload.draw(random)
	mine := func(int) bool { return true }
	switch owns := w.instance.Owns; {
	case owns != nil && w.workload.Nodes == 1: // all owned, or none
		w.keys = KeysThat(w.workload.Keys, func(key string) bool { return owns(key) == w.setup.Owned })
	case w.setup.Owned: // of all keys, its own
		w.keys = KeysThat(w.workload.Keys, AnyKey)
		mine = func(i int) bool { return owns(w.keys[i]) }
		if !slices.ContainsFunc(w.keys, owns) {
			return fmt.Errorf("bench: of %d keys a node owns none", len(w.keys))
		}
	default:
		w.keys = KeysThat(w.workload.Keys, AnyKey)
	}
	n := drawsOf / w.setup.Part / w.workload.Nodes
	w.drawn = make([]uint32, n)
	w.draws = Drawn(w.keys, n, func() func() int {
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
	w.counts = make([]Count, len(w.keys))
	w.callers = make([]asker, w.setup.Callers)
	for i := range w.callers {
		w.callers[i] = newAsker(i*n/len(w.callers), outcomesKept/w.setup.Part/len(w.callers))
	}
	w.harness = Heap() - held
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
				o := w.instance.Allow(strings.Clone(w.keys[k]))
				w.counts[k].Add(o)
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

// Weigh answers with how many bytes the instance holds, once its counts have their
// replicas.
func (w *Worker) Weigh(_ int, bytes *int64) error {
	if w.instance.Settle != nil {
		w.instance.Settle()
	}
	*bytes = Heap() - w.before - w.harness
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
	Counts        []Count // of all that was asked since then
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
			t.Counts[w.drawn[(c.first+at)%len(w.drawn)]].Add(c.outcomeOf(at))
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
		var o Outcome
		if until--; until == 0 {
			until = every
			begun := time.Now()
			o = w.instance.Allow(w.draws[at])
			c.latency.Add(time.Since(begun))
		} else {
			o = w.instance.Allow(w.draws[at])
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

func (c *asker) note(o Outcome) {
	bit := c.checks % 64
	if bit == 0 {
		c.admitted, c.decided = append(c.admitted, 0), append(c.decided, 0)
	}
	last := len(c.admitted) - 1
	c.admitted[last] |= uint64(o&Admitted) << bit
	c.checks++
	if o&Here != 0 {
		c.decided[last] |= 1 << bit
		c.here++
	}
	c.unsure(o)
}

// unsure notes a check that nobody with authority decided, or nobody at all.
func (c *asker) unsure(o Outcome) {
	if o&(Stray|Failed) != 0 {
		c.stray += int(o & Stray >> 2)
		c.failed += int(o & Failed >> 3)
	}
}

// outcomeOf is what became of one of its checks.
func (c *asker) outcomeOf(check int) Outcome {
	in, bit := check/64, check%64
	return Outcome(c.admitted[in]>>bit&1) | Outcome(c.decided[in]>>bit&1)<<1
}

// Heap returns the bytes of the heap that are in use, once garbage is collected.
func Heap() int64 {
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

// Count is what was asked of a key and admitted, since its limiter was made, in units.
type Count struct {
	Asked, Admitted uint32
	Here            uint32 // of Asked, measured or not, decided without a hop
}

// Add counts a check. It is called by one goroutine per key.
func (c *Count) Add(o Outcome) {
	c.Asked++
	c.Admitted += uint32(o & Admitted)
	c.Here += uint32(o & Here >> 1)
}

package worker

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// Name is the role of a process that has one instance of a contender, and callers that ask it.
const Name = "Worker"

// drawCount is the number of checks that are drawn before the measurement. A caller that has made
// all of them begins again.
const drawCount = 1 << 20

// Worker is the service of such a process. Its methods are called one at a time, in the
// order in which they stand here.
type Worker struct {
	begin     func(Setup, Quota) (*Instance, error)
	setup     Setup
	workload  Workload
	instance  *Instance
	keys      []string
	counts    []Count
	draws     []string
	drawn     []uint32 // the index of each draw
	callers   []asker
	measuring atomic.Bool
}

// Setup is the configuration of a worker.
type Setup struct {
	Contender, Workload string

	Algorithm string // "bucket": gubernator has another, too
	Part      int    // of workloads
	Callers   int
	Owned     bool     // callers ask for keys that this process owns, and otherwise for those of other processes
	Join      []string // the nodes that started before it
	Redis     string
}

// Serve returns the role of a worker. The worker uses begin to create the instance.
func Serve(begin func(Setup, Quota) (*Instance, error)) Role {
	return func() error { return ServeCalls(Name, &Worker{begin: begin}) }
}

// Close closes the instance.
func (w *Worker) Close() error {
	if w.instance == nil {
		return nil
	}
	return w.instance.Close()
}

// Start makes the instance. It answers with the address of its node.
func (w *Worker) Start(s Setup, addr *string) (err error) {
	w.setup = s
	if w.workload, err = findWorkload(s.Workload, s.Part); err != nil {
		return err
	}
	if w.instance, err = w.begin(s, w.workload.Quota); err != nil {
		return err
	}
	*addr = w.instance.Addr
	return nil
}

// Meet waits until the nodes at these addresses serve, and decide by authority.
func (w *Worker) Meet(nodes []string, _ *int) error { return w.instance.Meet(nodes) }

// Prepare makes the keys, and draws from them.
func (w *Worker) Prepare(_ int, _ *int) error {
	wanted := AnyKey
	if owns := w.instance.Owns; owns != nil {
		wanted = func(key string) bool { return owns(key) == w.setup.Owned }
	}
	w.keys = KeysThat(w.workload.Keys, wanted)
	random := rand.New(rand.NewPCG(1, 0))
	w.drawn = make([]uint32, drawCount/w.setup.Part)
	var text strings.Builder
	text.Grow(len(w.drawn) * KeyBytes)
	for n := range w.drawn {
		i := w.workload.draw(random)
		w.drawn[n] = uint32(i)
		text.WriteString(w.keys[i])
	}
	w.draws = split(text.String())
	w.counts = make([]Count, len(w.keys))
	w.callers = make([]asker, w.setup.Callers)
	for i := range w.callers {
		w.callers[i] = newAsker(i*len(w.drawn)/len(w.callers), outcomesKept/w.setup.Part/len(w.callers))
	}
	return nil
}

// Fill asks for each key as often as its workload wants it before the measurement, for at most the
// given time. The order differs from that of the texts, and each check has a copy of its text, as
// every request of a server has.
func (w *Worker) Fill(within time.Duration, _ *int) error {
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(w.keys))
	begun := time.Now()
	w.runCallers(func(i int, c *asker) {
		for at := i; at < len(order) && time.Since(begun) < within; at += len(w.callers) {
			k := order[at]
			for n := w.workload.fill(k); n > 0; n-- {
				o := w.instance.Allow(strings.Clone(w.keys[k]))
				w.counts[k].Add(o)
				c.addFaults(o)
			}
		}
	})
	return nil
}

// Tally is the result of a run.
type Tally struct {
	Checks, Here  int // in Took
	Took          time.Duration
	Latency       lab.Histogram
	Stray, Failed int     // since Fill began
	Counts        []Count // since Fill began
}

// warmUp is the part of a run that comes before it and is not measured, inverse.
const warmUp = 5

// timings is how many checks a second are timed: the two looks at the clock take as long
// as half an owned check.
const timings = 100_000

// Run asks for the given time.
func (w *Worker) Run(d time.Duration, t *Tally) error {
	checks, took := w.drive(d/warmUp, 64)
	every := max(1, int(float64(checks)/took.Seconds()/timings))
	for i := range w.callers {
		w.callers[i].here, w.callers[i].latency = 0, lab.Histogram{}
	}
	t.Checks, t.Took = w.drive(d, every)
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

// drive has all callers ask for the given time, and returns the number of checks. It
// measures the duration of every nth check, where n is every.
func (w *Worker) drive(d time.Duration, every int) (checks int, took time.Duration) {
	before := 0
	for i := range w.callers {
		before += w.callers[i].checks
	}
	w.measuring.Store(true)
	begun := time.Now()
	over := time.AfterFunc(d, func() { w.measuring.Store(false) })
	defer over.Stop()
	w.runCallers(func(i int, c *asker) {
		own := *c // in memory of its own, so that no caller waits for a cache line of another
		own.ask(w, every)
		*c = own
	})
	took = time.Since(begun)
	for i := range w.callers {
		checks += w.callers[i].checks
	}
	return checks - before, took
}

// runCallers calls do for all callers at once.
func (w *Worker) runCallers(do func(i int, c *asker)) {
	var callers sync.WaitGroup
	for i := range w.callers {
		callers.Go(func() { do(i, &w.callers[i]) })
	}
	callers.Wait()
}

// asker is one of the callers. It asks again as soon as it is answered.
type asker struct {
	first         int      // its first check in draws
	checks        int      // the number of its checks
	admitted      []uint64 // one bit for each check
	stray, failed int      // also outside the measurement
	here          int
	latency       lab.Histogram
}

// outcomesKept is the number of checks of a worker for which memory is allocated at once. Memory
// for more is allocated during the run, where it does not count among so many checks.
const outcomesKept = 1 << 26

func newAsker(first, kept int) asker {
	return asker{first: first, admitted: make([]uint64, 0, kept/64)}
}

// ask asks at least once and until the measurement ends. On a busy machine the time may be over
// before the caller runs.
func (c *asker) ask(w *Worker, every int) {
	at := (c.first + c.checks) % len(w.draws)
	until := 1 + c.first*every/len(w.draws) // callers time different checks
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
		c.add(o)
		if !w.measuring.Load() {
			return
		}
	}
}

func (c *asker) add(o Outcome) {
	bit := c.checks % 64
	if bit == 0 {
		c.admitted = append(c.admitted, 0)
	}
	c.admitted[len(c.admitted)-1] |= uint64(o&Admitted) << bit
	c.checks++
	if o&Here != 0 {
		c.here++
	}
	c.addFaults(o)
}

// addFaults counts a check that no member with authority decided, or that failed.
func (c *asker) addFaults(o Outcome) {
	if o&(Stray|Failed) != 0 {
		c.stray += int(o & Stray >> 2)
		c.failed += int(o & Failed >> 3)
	}
}

// outcomeOf returns whether one of its checks was admitted.
func (c *asker) outcomeOf(check int) Outcome {
	return Outcome(c.admitted[check/64] >> (check % 64) & 1)
}

// Count is the number of checks of a key since its limiter was made, and of those admitted.
type Count struct{ Asked, Admitted uint32 }

// Add counts a check. It is called by one goroutine per key.
func (c *Count) Add(o Outcome) {
	c.Asked++
	c.Admitted += uint32(o & Admitted)
}

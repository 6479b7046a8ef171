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
	draws     []string
	drawn     []uint32  // the index of the key of each draw
	asked     []int64   // number of checks of each key
	begun     time.Time // when fill began
	all       Counts    // of all checks since then
	callers   []asker
	measuring atomic.Bool
}

// Setup is the configuration of a worker.
type Setup struct {
	Contender, Workload string

	Part    int // of workloads
	Callers int
	Owned   bool     // callers ask for keys that this process owns, and otherwise for those of other processes
	Join    []string // the nodes that started before it
	Redis   string
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

// prepare makes the keys, and draws from them.
func (w *Worker) prepare() {
	wanted := AnyKey
	if owns := w.instance.Owns; owns != nil {
		wanted = func(key string) bool { return owns(key) == w.setup.Owned }
	}
	w.keys = KeysThat(w.workload.Keys, wanted)
	random := rand.New(rand.NewPCG(1, 0))
	w.asked, w.drawn = make([]int64, len(w.keys)), make([]uint32, drawCount/w.setup.Part)
	var text strings.Builder
	text.Grow(len(w.drawn) * KeyBytes)
	for n := range w.drawn {
		k := w.workload.draw(random)
		w.drawn[n] = uint32(k)
		text.WriteString(w.keys[k])
	}
	w.draws = split(text.String())
	w.callers = make([]asker, w.setup.Callers)
	for i := range w.callers {
		w.callers[i].next = i * len(w.draws) / len(w.callers)
	}
}

// fill asks for keys before the measurement, each as often as the workload wants. After the given time it
// skips the keys that are asked for once. The order differs from that of the texts, and each check
// has a copy of its text, as every request of a server has.
func (w *Worker) fill(within time.Duration) {
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(w.keys))
	w.begun = time.Now()
	w.runCallers(func(i int, c *asker) {
		for at := i; at < len(order); at += len(w.callers) {
			k := order[at]
			n := w.workload.fill(k)
			if n == 1 && time.Since(w.begun) >= within {
				continue
			}
			w.asked[k] += int64(n)
			for range n {
				c.add(w.instance.Allow(strings.Clone(w.keys[k])))
			}
		}
	})
}

// Counts has the number of all checks, and of the checks with each outcome.
type Counts struct{ Checks, Admitted, Here, Stray, Failed int }

func (c *Counts) add(o Outcome) {
	c.Checks++
	c.Admitted += int(o & Admitted)
	c.Here += int(o & Here >> 1)
	c.Stray += int(o & Stray >> 2)
	c.Failed += int(o & Failed >> 3)
}

// Merge adds the counts of o.
func (c *Counts) Merge(o Counts) {
	c.Checks += o.Checks
	c.Admitted += o.Admitted
	c.Here += o.Here
	c.Stray += o.Stray
	c.Failed += o.Failed
}

// Tally is the result of a run.
type Tally struct {
	Counts      // in Took
	Took        time.Duration
	Latency     lab.Histogram
	All         Counts // with those before the measurement
	Least, Most int64  // bounds of the units that the limits grant to All
}

// warmUp is the part of a run that comes before it and is not measured, inverse.
const warmUp = 5

// timings is how many checks a second are timed: the two looks at the clock take as long
// as half an owned check.
const timings = 100_000

// Run asks for the given time, after preparations that may take ten times as long.
func (w *Worker) Run(d time.Duration, t *Tally) error {
	w.prepare()
	w.fill(10 * d)
	warm, took := w.drive(d/warmUp, 64)
	every := max(1, int(float64(warm.Checks)/took.Seconds()/timings))
	t.Counts, t.Took = w.drive(d, every)
	for i := range w.callers {
		t.Latency.Merge(&w.callers[i].latency)
	}
	t.All = w.all
	units, regained := w.workload.Quota.Units, int64(time.Since(w.begun)/w.workload.Quota.Interval)
	for _, n := range w.asked {
		t.Least, t.Most = t.Least+min(n, units), t.Most+min(n, units+regained)
	}
	return nil
}

// drive has all callers ask for the given time, and returns the counts of these checks. It
// measures the duration of every nth check, where n is every.
func (w *Worker) drive(d time.Duration, every int) (made Counts, took time.Duration) {
	w.measuring.Store(true)
	begun := time.Now()
	over := time.AfterFunc(d, func() { w.measuring.Store(false) })
	defer over.Stop()
	made = w.runCallers(func(i int, c *asker) {
		own := *c // in memory of its own, so that no caller waits for a cache line of another
		own.latency = lab.Histogram{}
		own.ask(w, every)
		*c = own
	})
	took = time.Since(begun)
	for i := range w.callers {
		c, draws := &w.callers[i], len(w.drawn)
		for n := range c.Checks {
			w.asked[w.drawn[(c.next+draws-1-n%draws)%draws]]++
		}
	}
	return made, took
}

// runCallers calls do for all callers at once, and returns the counts of their checks.
func (w *Worker) runCallers(do func(i int, c *asker)) (all Counts) {
	var callers sync.WaitGroup
	for i := range w.callers {
		w.callers[i].Counts = Counts{}
		callers.Go(func() { do(i, &w.callers[i]) })
	}
	callers.Wait()
	for i := range w.callers {
		all.Merge(w.callers[i].Counts)
	}
	w.all.Merge(all)
	return all
}

// asker is one of the callers. It asks again as soon as it is answered.
type asker struct {
	Counts
	next    int // its next check in draws
	latency lab.Histogram
}

// ask asks at least once and until the measurement ends. On a busy machine the time may be over
// before the caller runs.
func (c *asker) ask(w *Worker, every int) {
	until := 1 + c.next*every/len(w.draws) // callers time different checks
	for {
		var o Outcome
		if until--; until == 0 {
			until = every
			begun := time.Now()
			o = w.instance.Allow(w.draws[c.next])
			c.latency.Add(time.Since(begun))
		} else {
			o = w.instance.Allow(w.draws[c.next])
		}
		if c.next++; c.next == len(w.draws) {
			c.next = 0
		}
		c.add(o)
		if !w.measuring.Load() {
			return
		}
	}
}

package worker

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// Name is the role of a process with an instance of a contender and its callers.
const Name = "Worker"

// drawCount is the number of checks that are drawn before the measurement. A caller that
// has made all of them starts over.
const drawCount = 1 << 20

// Worker is the service of a process in this role. Its methods are called one at a time:
// Start, Meet if there are several processes, Run in the first process, and Close.
type Worker struct {
	begin     func(Setup, Quota) (*Instance, error)
	setup     Setup
	workload  Workload
	instance  *Instance
	keys      []string
	draws     []string
	drawn     []uint32  // the index of the key of each draw
	asked     []int64   // number of checks of each key
	begun     time.Time // start of fill
	all       Counts    // results of all checks since begun, including those of fill
	callers   []asker
	measuring atomic.Bool
}

// Setup is the configuration of a worker.
type Setup struct {
	Contender, Workload string

	Part    int // the numbers of keys and of drawn checks are divided by Part
	Callers int
	Owned   bool     // true if callers check keys that this process owns, and false if they check keys of other processes
	Join    []string // addresses of the nodes that have started before
	Redis   string
}

// Serve returns the role of a worker. The worker uses begin to create the instance. The
// role returns after the parent has closed the standard input of the process.
func Serve(begin func(Setup, Quota) (*Instance, error)) func() error {
	return func() error { return ServeCalls(Name, &Worker{begin: begin}) }
}

func (w *Worker) Close() error {
	if w.instance == nil {
		return nil
	}
	return w.instance.Close()
}

// Start creates the instance. The reply is the address of its node.
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

// Meet waits until the nodes at the given addresses serve, and decide with authority.
func (w *Worker) Meet(nodes []string, _ *int) error { return w.instance.Meet(nodes) }

// prepare creates the keys, and draws the checks.
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

// fill checks keys before the measurement, each as often as the workload requires. After
// the given time, fill skips the keys that need a single check. The order differs from that
// of the texts, and each check has a copy of its text, like every request of a server.
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

// Counts contains the number of all checks, and of the checks with each outcome.
type Counts struct{ Checks, Admitted, Here, Stray, Failed int }

func (c *Counts) add(o Outcome) {
	c.Checks++
	c.Admitted += int(o & Admitted)
	c.Here += int(o & Here >> 1)
	c.Stray += int(o & Stray >> 2)
	c.Failed += int(o & Failed >> 3)
}

func (c *Counts) Merge(o Counts) {
	c.Checks += o.Checks
	c.Admitted += o.Admitted
	c.Here += o.Here
	c.Stray += o.Stray
	c.Failed += o.Failed
}

type Tally struct {
	Counts      // results of the checks of the measurement
	Took        time.Duration
	Latency     lab.Histogram
	All         Counts // including checks before the measurement
	Least, Most int64  // bounds of the units that the limits grant to All
}

// warmUp is the ratio of the time of a run to the time of the warm-up before it, which is not
// measured.
const warmUp = 5

// timings is the number of timed checks per second. Not every check is timed, because two
// reads of the clock take as long as half a check by the owner.
const timings = 100_000

// Run makes checks for the given time, after preparations that may take ten times as
// long.
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
		least, most := min(n, units), min(n, units+regained)
		if w.instance.Releases {
			least, most = n, n
		}
		t.Least, t.Most = t.Least+least, t.Most+most
	}
	return nil
}

// drive makes checks with all callers for the given time, and returns the counts of these
// checks. The argument every is the number of checks of a caller for each check whose
// duration is measured.
func (w *Worker) drive(d time.Duration, every int) (made Counts, took time.Duration) {
	w.measuring.Store(true)
	begun := time.Now()
	over := time.AfterFunc(d, func() { w.measuring.Store(false) })
	defer over.Stop()
	made = w.runCallers(func(i int, c *asker) {
		own := *c // in separate memory, so that no caller waits for a cache line of another caller
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

// asker is a caller, which makes its next check as soon as it has a response.
type asker struct {
	Counts
	next    int // index in draws of the next check
	latency lab.Histogram
}

// ask makes at least one check, and continues until the measurement ends. On a busy
// machine the time may be over before the caller runs.
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

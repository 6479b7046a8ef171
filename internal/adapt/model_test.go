package adapt

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is the kind of a limit.
type kind int

const (
	rate kind = iota
	inFlight
)

// model is a discrete-event simulation of a backend behind the nodes of a cluster.
type model struct {
	bounds      Bounds
	kind        kind
	limit       float64 // requests per second, or in flight, at a factor of 1
	nodes       int
	workers     int
	exponential bool
	capacity    func(at float64) float64 // requests per second
	demand      func(at float64) float64
	late, twice float64 // parts of the reports that are late, and that are counted twice
	apply       float64 // seconds from a decision to its effect

	rng    *rand.Rand
	events events
	now    float64
	factor float64 // in force
	state  State
	queue  []request
	busy   int
	slots  int // requests in flight
	tokens float64
	filled float64
	each   []nodeMeter
	window []report

	done    []finished
	factors []change
}

type (
	request struct {
		at   float64
		node int
	}
	finished struct {
		at, took float64
	}
	change struct{ at, factor float64 }
	report struct {
		at float64
		Sample
	}
	nodeMeter struct {
		Sample
		open int
		last float64
	}
	event struct {
		at float64
		do func()
	}
	events []event
)

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (m *model) after(d float64, do func()) { heap.Push(&m.events, event{m.now + d, do}) }

func (m *model) run(seed uint64, until float64) {
	m.rng = rand.New(rand.NewPCG(seed, 1))
	m.factor = m.bounds.Max
	m.each = make([]nodeMeter, m.nodes)
	m.arrive()
	for i := range m.each {
		m.after(m.rng.Float64()*0.25, func() { m.report(i) })
	}
	m.after(m.rng.Float64()*0.25, m.decide)
	for len(m.events) > 0 {
		e := heap.Pop(&m.events).(event)
		if e.at > until {
			return
		}
		m.now = e.at
		e.do()
	}
}

func (m *model) arrive() {
	m.after(m.rng.ExpFloat64()/m.demand(m.now), m.arrive)
	n := m.rng.IntN(m.nodes)
	node := &m.each[n]
	if !m.admit() {
		node.Denied++
		return
	}
	node.integrate(m.now)
	node.Started++
	node.open++
	m.slots++
	r := request{m.now, n}
	switch {
	case m.busy < m.workers:
		m.serve(r)
	default:
		m.queue = append(m.queue, r)
	}
}

func (n *nodeMeter) integrate(now float64) {
	n.Busy += time.Duration(float64(n.open) * (now - n.last) * 1e9)
	n.last = now
}

func (m *model) admit() bool {
	l := m.factor * m.limit
	if m.kind == inFlight {
		return m.slots < max(1, int(l))
	}
	m.tokens = min(m.tokens+(m.now-m.filled)*l, max(1, 0.05*l))
	m.filled = m.now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

func (m *model) serve(r request) {
	m.busy++
	d := float64(m.workers) / m.capacity(m.now)
	if m.exponential {
		d *= m.rng.ExpFloat64()
	}
	m.after(d, func() {
		m.busy--
		if len(m.queue) > 0 {
			next := m.queue[0]
			m.queue = m.queue[1:]
			m.serve(next)
		}
		m.finish(r)
	})
}

func (m *model) finish(r request) {
	m.slots--
	n := &m.each[r.node]
	n.integrate(m.now)
	n.open--
	n.Done++
	took := m.now - r.at
	if took > m.bounds.Latency.Seconds() {
		n.Slow++
	}
	m.done = append(m.done, finished{m.now, took})
}

func (m *model) report(i int) {
	n := &m.each[i]
	n.integrate(m.now)
	s := n.Sample
	n.Sample = Sample{}
	add := func() { m.window = append(m.window, report{m.now, s}) }
	times := 1
	if m.rng.Float64() < m.twice {
		times = 2
	}
	for range times {
		if m.rng.Float64() < m.late {
			m.after(m.rng.Float64(), add)
		} else {
			add()
		}
	}
	m.after(0.25, func() { m.report(i) })
}

const span = 0.5

func (m *model) decide() {
	m.after(0.25, m.decide)
	m.window = slices.DeleteFunc(m.window, func(r report) bool { return r.at <= m.now-span })
	var sum Sample
	for _, r := range m.window {
		sum.Started += r.Started
		sum.Done += r.Done
		sum.Slow += r.Slow
		sum.Failed += r.Failed
		sum.Denied += r.Denied
		sum.Busy += r.Busy
	}
	m.state = m.state.Next(m.bounds, sum, time.Unix(0, 0).Add(time.Duration(m.now*1e9)))
	f := m.state.Factor
	if len(m.factors) == 0 || m.factors[len(m.factors)-1].factor != f {
		m.factors = append(m.factors, change{m.now, f})
	}
	m.after(m.apply, func() { m.factor = f })
}

// figures are the results of a span of a run.
type figures struct {
	p99     float64 // 99th percentile of the latency, in seconds
	goodput float64 // requests per second that ended
	swing   float64 // half the distance of the 5th and 95th percentile of the factor in time, as a part of the median
}

func (m *model) figures(from, to float64) (f figures) {
	var took []float64
	for _, d := range m.done {
		if d.at < from || d.at >= to {
			continue
		}
		took = append(took, d.took)
		f.goodput++
	}
	slices.Sort(took)
	if len(took) > 0 {
		f.p99 = took[int(0.99*float64(len(took)))]
	}
	f.goodput /= to - from
	var inForce []float64
	at := 0
	factor := m.bounds.Max
	for now := from; now < to; now += 0.05 {
		for at < len(m.factors) && m.factors[at].at <= now {
			factor = m.factors[at].factor
			at++
		}
		inForce = append(inForce, factor)
	}
	slices.Sort(inForce)
	n := len(inForce)
	f.swing = (inForce[n*95/100] - inForce[n*5/100]) / 2 / inForce[n/2]
	return f
}

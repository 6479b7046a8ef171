package main

import (
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// planetStall is the longest that a request may take in a run with regions: a
// check's Timeout, and what a busy machine may keep processes waiting.
const planetStall = patience + 480*time.Millisecond

// ledger is what the customers of all regions have seen. Its methods are safe for
// concurrent use.
type ledger struct {
	record
	planet  *planet
	counted int // requests that were answered
	took    lab.Histogram
	calm    checks // while no region was cut off
	severed checks // while one was
	global  [][customers][]admission
	local   [][customers][]admission
	guessed [][customers][]span // by region, checks that were admitted without the owner
	asks    [customers][]int64  // when each request for the Global limit was decided
	others  []guess             // decisions without the owner
	recent  []regionCounts      // since the last call of next
	small   visit
}

// checks is how long checks took: of the Global limit, and of the Regional one, of which
// none ever waits for another region. What keeps those waiting is the machine.
type checks struct{ global, regional timed }

// guess is a check that its owner did not decide.
type guess struct {
	region int
	check  span
}

type timed struct {
	took lab.Histogram
	slow []slow // as long as to another region and back, or longer
}

func (t *timed) add(check span, by *incarnation) {
	t.took.Add(check.length())
	if check.length() >= there {
		t.slow = append(t.slow, slow{check, check.length(), by})
	}
}

// late is which part of them took that long, and not because the machine stood still.
func (t *timed) late(l *lab.Lateness) float64 {
	return float64(stalls(l, t.slow, there)) / float64(max(t.took.Total, 1))
}

// visit is what the user of the small limit got.
type visit struct {
	over      bool
	got, more int
	took      time.Duration // until all that it got had been granted
}

// regionCounts is what one region answered.
type regionCounts struct {
	asked  int
	checks lab.Histogram
	took   lab.Histogram
}

func (c *regionCounts) add(o *regionCounts) {
	c.asked += o.asked
	c.checks.Merge(&o.checks)
	c.took.Merge(&o.took)
}

func newLedger(p *planet) *ledger {
	n := len(p.regions)
	return &ledger{
		record: record{bound: planetStall},
		planet: p, global: make([][customers][]admission, n), local: make([][customers][]admission, n),
		guessed: make([][customers][]span, n), recent: make([]regionCounts, n),
	}
}

// add takes in the answer to a customer, of the Regional limit or the Global one.
func (l *ledger) add(region int, local bool, a answer) {
	l.check(region, local, &a)
	if a.err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if elsewhereAt(placeOf(a.source)) {
		l.others = append(l.others, guess{region, a.check})
		if a.allowed {
			l.guessed[region][a.client] = append(l.guessed[region][a.client], a.check)
		}
	}
	of := &l.local[region][a.client]
	if !local {
		of = &l.global[region][a.client]
		l.asks[a.client] = append(l.asks[a.client], a.check.to)
		l.recent[region].asked++
	}
	if a.allowed {
		*of = append(*of, admission(a.check))
	}
}

// check takes in how long an answer took, and whether there was one.
func (l *ledger) check(region int, local bool, a *answer) {
	cut := l.planet.now.Load().cut
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(a, span{a.sent, a.done}, a.took)
	if a.err != nil {
		return
	}
	l.counted++
	r := &l.recent[region]
	r.checks.Add(a.check.length())
	r.took.Add(a.took)
	l.took.Add(a.took)
	of := &l.calm
	if cut {
		of = &l.severed
	}
	if local {
		of.regional.add(a.check, a.to)
	} else {
		of.global.add(a.check, a.to)
	}
}

// visited takes in what the user of the small limit got.
func (l *ledger) visited(got, more int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.small = visit{true, got, more, took}
}

// next is what happened since it was called last, and the sums so far.
func (l *ledger) next() ([]regionCounts, standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	recent := l.recent
	l.recent = make([]regionCounts, len(recent))
	return recent, standing{l.counted, l.errors, l.stalls()}
}

// lately is how much of the Global limit each region was granted within per before
// now.
func (l *ledger) lately(now int64, per time.Duration) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make([]int, len(l.global))
	for region := range l.global {
		for _, as := range l.global[region] {
			held[region] += lately(as, now, per)
		}
	}
	return held
}

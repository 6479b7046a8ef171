package main

import (
	"sync"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// stallBound is the longest that a request to a gateway that is up may take: a
// check's Timeout, and what a busy machine may keep processes waiting. Times when
// the machine stood still come on top. While all gateways are busy it bounds the check
// in a request.
const stallBound = timeout + 400*time.Millisecond

// record is what went wrong for the clients, in one region or several. mu is also of the
// tally or ledger that it is a part of.
type record struct {
	bound    time.Duration // a request that takes longer has stalled
	lateness lab.Lateness  // of the demo

	mu      sync.Mutex
	errors  int
	problem error // the first
	slow    []slow
	missed  int // requests that were not sent in time
}

// slow is a request to a gateway that was up that took longer than a bound, or the
// check in it where that is all that counts.
type slow struct {
	span
	took time.Duration
	to   *incarnation
}

// note takes in an answer of a gateway that was up, for which its client has waited. r.mu is
// held.
func (r *record) note(a *answer, waited span, took time.Duration) {
	switch {
	case a.gaveUp():
		r.slow = append(r.slow, slow{span{a.sent, a.done}, a.took, a.to})
	case a.err != nil:
		r.errors++
		if r.problem == nil {
			r.problem = a.err
		}
	case took > r.bound:
		r.slow = append(r.slow, slow{waited, took, a.to})
	}
}

func (r *record) miss(requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed += requests
}

// stalls is how many requests took too long, and not because the machine stood
// still. r.mu is held.
func (r *record) stalls() int { return stalls(&r.lateness, r.slow, r.bound) }

// standing is the sums so far.
type standing struct{ requests, errors, stalls int }

// line is the sums so far.
func (s standing) line() line {
	good := func(n int) colour {
		if n == 0 {
			return green
		}
		return red
	}
	return line{}.add(plain, number(s.requests)+" requests answered, ").
		add(good(s.errors), number(s.errors)+" errors").add(plain, ", ").
		add(good(s.stalls), number(s.stalls)+" stalls")
}

// tally is what the clients of one region have seen. Its methods are safe for concurrent use.
type tally struct {
	record
	fleet    *fleet
	total    counts
	cut      int // requests under way at a gateway when it was killed or frozen
	checks   lab.Histogram
	strained counts // while all gateways were busy, which total, checks, missed and asked leave out
	admitted [clients][]admission
	asked    lab.Histogram // of checks that an owner answered over the network
	others   []elsewhere   // decisions without the owner
	recent   slice         // since the last call of next
}

// counts is what gateways answered.
type counts struct {
	allowed, denied int
	at              [places]int
	took            lab.Histogram // the whole request, as its client saw it
}

func (c *counts) add(o *counts) {
	c.allowed += o.allowed
	c.denied += o.denied
	for i, n := range o.at {
		c.at[i] += n
	}
	c.took.Merge(&o.took)
}

func (c *counts) answered() int { return c.allowed + c.denied }

// elsewhere is one decision that was not the owner's: its stand-in's, or by a
// share of the limit.
type elsewhere struct {
	client  int
	check   span
	owner   string
	at      place
	allowed bool
}

// slice is what happened in a short time.
type slice struct {
	gateways []counts
	asks     [clients]int
}

func newTally(f *fleet) *tally {
	return &tally{record: record{bound: stallBound}, fleet: f, recent: slice{gateways: make([]counts, len(f.current))}}
}

// add takes in an answer. Only what a gateway that was up all the time did or
// failed to do is held against it.
func (t *tally) add(a answer) {
	down, busy := t.fleet.wasDown(a.to, a.sent, a.done), t.fleet.wasBusy(a.sent, a.done)
	waited, took := span{a.sent, a.done}, a.took
	if busy { // a request waits for cores at its client and its gateway, at each step of its way
		waited, took = a.check, a.check.length()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if down {
		t.cut++
	} else {
		t.note(&a, waited, took)
	}
	if a.err != nil {
		return
	}
	at := placeOf(a.source)
	all := &t.total
	if busy {
		all = &t.strained
	}
	for _, c := range []*counts{&t.recent.gateways[a.to.gateway], all} {
		c.at[at]++
		if a.allowed {
			c.allowed++
		} else {
			c.denied++
		}
		if !down {
			c.took.Add(a.took)
		}
	}
	t.recent.asks[a.client]++
	if !down && !busy {
		t.checks.Add(a.check.length())
		if at == asked {
			t.asked.Add(a.check.length())
		}
	}
	if a.allowed {
		t.admitted[a.client] = append(t.admitted[a.client], admission(a.check))
	}
	if elsewhereAt(at) {
		t.others = append(t.others, elsewhere{a.client, a.check, a.owner, at, a.allowed})
	}
}

// miss implements answers: while gateways are busy the demo has to wait as well.
func (t *tally) miss(requests int) {
	if now := time.Now().UnixNano(); !t.fleet.wasBusy(now, now) {
		t.record.miss(requests)
	}
}

// next is what happened since it was called last, and the sums so far.
func (t *tally) next() (slice, standing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.recent
	t.recent = slice{gateways: make([]counts, len(s.gateways))}
	return s, standing{t.total.answered() + t.strained.answered(), t.errors, t.stalls()}
}

// lately is how many requests of a client were admitted within per before now.
func (t *tally) lately(client int, now int64, per time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lately(t.admitted[client], now, per)
}

// lately is how many of these were admitted within per before now. They come in the order of
// their answers, which is nearly theirs.
func lately(as []admission, now int64, per time.Duration) (held int) {
	for i := len(as) - 1; i >= 0 && as[i].to > now-2*int64(per); i-- {
		if as[i].from > now-int64(per) {
			held++
		}
	}
	return held
}

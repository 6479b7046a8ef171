package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// stallBound is the longest that a request to a gateway that is up may take: a
// check's Timeout, and what a busy machine may keep processes waiting. Times when
// the machine stood still come on top.
const stallBound = timeout + 400*time.Millisecond

// tally is what the clients of a fleet have seen: every answer, in the order in which they
// came. Its methods are safe for concurrent use.
type tally struct {
	fleet    *fleet
	bound    time.Duration        // a request that takes longer has stalled
	lateness *lab.SchedulingDelay // of the demo

	mu       sync.Mutex
	answers  []answer
	answered int // of them that are no errors
	errors   int // of gateways that were up
	problem  error
	cut      int      // requests under way at a gateway when it was killed or frozen
	slow     []answer // of gateways that were up, those that took longer than bound
	missed   int      // requests that were not sent in time

	// What follows is of the answers that closeRound has dropped.
	stalled int
	longest time.Duration
}

func newTally(f *fleet, bound time.Duration, late *lab.SchedulingDelay) *tally {
	return &tally{fleet: f, bound: bound, lateness: late}
}

// add takes in an answer. Only what a gateway that was up all the time did or
// failed to do is held against it.
func (t *tally) add(a answer) {
	a.down = t.fleet.wasDown(a.to, a.waited())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, a)
	if a.err == nil {
		t.answered++
	}
	switch {
	case a.down:
		t.cut++
	case a.err != nil && !a.gaveUp():
		t.errors++
		if t.problem == nil {
			t.problem = a.err
		}
	case a.gaveUp() || a.waited().Length() > t.bound:
		t.slow = append(t.slow, a)
	}
}

// miss adds the number of requests that the demo did not send in time.
func (t *tally) miss(requests int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed += requests
}

// standing is the sums so far.
func (t *tally) standing() standing {
	t.mu.Lock()
	s, slow := standing{requests: t.answered, errors: t.errors, stalls: t.stalled}, slices.Clone(t.slow)
	t.mu.Unlock()
	s.stalls += t.stalls(slow, (*answer).waited, t.bound)
	return s
}

// since returns the answers that came after a moment. They are in the order of their ends, but
// for what a worker waited for mu.
func (t *tally) since(at int64) (all []answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.answers) - 1; i >= 0 && t.answers[i].done > at-int64(time.Second); i-- {
		if t.answers[i].done > at {
			all = append(all, t.answers[i])
		}
	}
	return all
}

// lately is how many requests of a client were admitted within per before now.
func (t *tally) lately(client int, now int64, per time.Duration) (held int) {
	for _, a := range t.since(now - int64(per)) {
		if a.allowed && a.client == client && a.check.To > now-int64(per) {
			held++
		}
	}
	return held
}

// forget drops what came a second before a moment: where nobody judges, it is not needed.
func (t *tally) forget(before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = slices.DeleteFunc(t.answers, func(a answer) bool { return a.done <= before-int64(time.Second) })
	t.slow = newest(t.slow)
}

// closeRound drops all answers, of which it keeps the stalls and the longest wait. There must be
// no traffic.
func (t *tally) closeRound() {
	s, longest := t.standing(), t.slowest()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers, t.slow, t.stalled, t.longest = nil, nil, s.stalls, longest
}

// account is a client under the limit of a path.
type account struct {
	path   string
	client int
}

func (a account) String() string { return fmt.Sprintf("%s of %s", clientName(a.client), a.path) }

// admissions is when these answers admitted a request, by account.
func (t *tally) admissions(of func(*answer) bool) map[account][]span {
	all := make(map[account][]span)
	for i := range t.answers {
		if a := &t.answers[i]; a.allowed && of(a) {
			all[a.account] = append(all[a.account], a.check)
		}
	}
	return all
}

// sums is what answers came to.
type sums struct {
	allowed, denied int
	at              [places]int
	took            lab.Histogram // the whole request, as its client saw it
	checks          lab.Histogram // the check in it
}

// merge adds the values of o.
func (s *sums) merge(o *sums) {
	s.allowed, s.denied = s.allowed+o.allowed, s.denied+o.denied
	for i, n := range o.at {
		s.at[i] += n
	}
	s.took.Merge(&o.took)
	s.checks.Merge(&o.checks)
}

func (s *sums) answered() int { return s.allowed + s.denied }

// sum sums up those of some answers that are no errors.
func sum(answers []answer, of func(*answer) bool) *sums {
	s := new(sums)
	for i := range answers {
		a := &answers[i]
		if a.err != nil || !of(a) {
			continue
		}
		s.at[a.at]++
		if a.allowed {
			s.allowed++
		} else {
			s.denied++
		}
		if !a.down {
			s.took.Add(a.waited().Length())
			s.checks.Add(a.check.Length())
		}
	}
	return s
}

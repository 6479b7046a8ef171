package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// stallBound is the maximum time of a request to a gateway that is up, not counting
// stand-stills: the Timeout of a check, and the time that a busy machine may delay processes.
const stallBound = timeout + 400*time.Millisecond

// tally contains the answers that the clients of a fleet have received since the last call
// of closeRound, in the order of arrival. Its methods are safe for concurrent use.
type tally struct {
	fleet *fleet
	bound time.Duration        // a request that takes longer has stalled
	delay *lab.SchedulingDelay // scheduling delay of the process of the demo

	mu       sync.Mutex
	answers  []answer
	answered int // number of answers without an error
	errors   int // number of errors of gateways that were up, except timeouts, which are stalls
	problem  error
	cut      int      // requests in progress at a gateway when it was killed or frozen
	slow     []answer // answers of gateways that were up that took longer than bound
	missed   int      // requests that were not sent in time

	// The fields below are about answers that closeRound has dropped.
	stalled int
	longest time.Duration
}

func newTally(f *fleet, bound time.Duration, delay *lab.SchedulingDelay) *tally {
	return &tally{fleet: f, bound: bound, delay: delay}
}

// add records an answer. It counts errors and stalls only of a gateway that was up during the whole
// request.
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
	case a.err != nil && !a.hasTimedOut():
		t.errors++
		if t.problem == nil {
			t.problem = a.err
		}
	case a.hasTimedOut() || a.waited().Length() > t.bound:
		t.slow = append(t.slow, a)
	}
}

// miss adds the number of requests that the demo did not send in time.
func (t *tally) miss(requests int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed += requests
}

func (t *tally) standing() standing {
	t.mu.Lock()
	s, slow := standing{requests: t.answered, errors: t.errors, stalls: t.stalled}, slices.Clone(t.slow)
	t.mu.Unlock()
	s.stalls += t.stalls(slow, (*answer).waited, t.bound)
	return s
}

// answersSince returns the answers that arrived after a time. Answers are ordered by
// their ends, except for the time that a worker waited for mu.
func (t *tally) answersSince(at int64) (all []answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.answers) - 1; i >= 0 && t.answers[i].done > at-int64(time.Second); i-- {
		if t.answers[i].done > at {
			all = append(all, t.answers[i])
		}
	}
	return all
}

// recentAdmissions returns the number of requests of a client that were admitted within the
// time per before now.
func (t *tally) recentAdmissions(client int, now int64, per time.Duration) (held int) {
	for _, a := range t.answersSince(now - int64(per)) {
		if a.allowed && a.client == client && a.check.To > now-int64(per) {
			held++
		}
	}
	return held
}

// forget drops answers that arrived more than a second before the given time. It is for served
// gateways, which get no verdict.
func (t *tally) forget(before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = slices.DeleteFunc(t.answers, func(a answer) bool { return a.done <= before-int64(time.Second) })
	t.slow = newest(t.slow)
}

// closeRound drops all answers, but keeps the number of stalls and the longest wait.
// There must be no traffic.
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

// admissions returns the spans of the checks that admitted a request, by account.
func (t *tally) admissions(selects func(*answer) bool) map[account][]span {
	all := make(map[account][]span)
	for i := range t.answers {
		if a := &t.answers[i]; a.allowed && selects(a) {
			all[a.account] = append(all[a.account], a.check)
		}
	}
	return all
}

// sums contains the counts and the durations of a set of answers.
type sums struct {
	allowed, denied int
	at              [places]int
	took            lab.Histogram // duration of the whole request, as its client saw it
	checks          lab.Histogram // duration of the check in the request
}

func (s *sums) merge(o *sums) {
	s.allowed, s.denied = s.allowed+o.allowed, s.denied+o.denied
	for i, n := range o.at {
		s.at[i] += n
	}
	s.took.Merge(&o.took)
	s.checks.Merge(&o.checks)
}

func (s *sums) answered() int { return s.allowed + s.denied }

// sum returns the sums of the answers without an error for which selects returns true.
func sum(answers []answer, selects func(*answer) bool) *sums {
	s := new(sums)
	for i := range answers {
		a := &answers[i]
		if a.err != nil || !selects(a) {
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

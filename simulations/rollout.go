package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Of one run in so many the witness's numbers change, at one host after the other within
// so long, as rules are rolled out.
const (
	renumberedOf = 6
	rolledOutIn  = 3 * time.Second

	lessWitnessRate = 80_000 // before, or after: a SlidingLog takes no more than the usual one
)

// rollout is the numbers that the witness has, and those that it has at each host from a
// moment on.
type rollout struct {
	before, after weir.Limit
	at            []time.Duration // by host; never, if they do not change
}

// draw has the witness's numbers change in some runs: by a new Version, or as a limit whose
// numbers vary. It draws from randomness of its own.
func (r *rollout) draw(s *stage) {
	r.before = s.witnessLimit()
	r.after = r.before
	rng := s.rand("rollout")
	r.at = make([]time.Duration, len(s.Nodes))
	if rng.IntN(renumberedOf) > 0 {
		for i := range r.at {
			r.at[i] = never
		}
		return
	}
	if rng.IntN(2) == 0 {
		r.before.Rate = lessWitnessRate
	} else {
		r.after.Rate = lessWitnessRate
	}
	if rng.IntN(2) == 0 {
		r.before.Varies, r.after.Varies = true, true
	} else {
		r.after.Version++
	}
	begins := time.Duration(rng.Int64N(max(1, int64(s.Lasts-rolledOutIn))))
	for i := range r.at {
		r.at[i] = begins + time.Duration(rng.Int64N(int64(rolledOutIn)))
	}
}

// of is what a host's node has by then.
func (r *rollout) of(host int, now time.Duration) weir.Limit {
	if now >= r.at[host] {
		return r.after
	}
	return r.before
}

// rollOut has the hosts that run take the witness's new numbers when it is their time.
// A node that starts later has them from the beginning.
func (s *stage) rollOut() {
	hosts := slices.Clone(s.hosts)
	slices.SortStableFunc(hosts, func(a, b *host) int { return cmp.Compare(s.rollout.at[a.index], s.rollout.at[b.index]) })
	for _, h := range hosts {
		if s.rollout.at[h.index] >= s.Lasts {
			return
		}
		time.Sleep(s.rollout.at[h.index] - s.now())
		p, _ := s.asked(h, len(s.Limits))
		if p == nil {
			continue
		}
		if l, err := p.node.Limiter(s.rollout.after); err == nil {
			s.mu.Lock()
			p.limiters[len(s.Limits)] = l
			s.mu.Unlock()
		}
	}
}

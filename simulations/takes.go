package main

import (
	"cmp"
	"slices"
	"time"
)

// besides is by how many nodes at most a check may be carried out beside the one that
// answers it: the owner, whom the asker and the stand-in ask, and the stand-in.
const besides = 3

// lateFor is how long after its asker has gone on what it asked may be carried out, by
// a node that was late or frozen: an answer is waited for that long, to give back what
// it grants.
const lateFor = 10 * time.Second

// ask is what the witness was asked, as its caller saw it.
type ask struct {
	units    int64 // below zero given back
	from, to time.Duration
	done     bool // says the answer
	unsure   bool // several may have been asked, or nobody heard the answer
}

// unheard compares what callers saw with what nodes carried out, take by take, of one
// key. It returns units that may be spent though no caller was granted them: what others
// have carried out of a check besides, or of a check that failed, and refunds that were
// not carried out whole. And it returns those that nobody can have asked for: nodes spent
// them and no check explains it. Spends are ascending by time.
func unheard(asks []ask, spends []spent) (unheard, unasked int64) {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b ask) int { return cmp.Compare(a.from, b.from) })
	var open []*ask   // that may be carried out now
	var unsure []*ask // that may be later, or besides
	times := make(map[*ask]int)
	settle := func(until time.Duration) { // those that ended have not been carried out in time
		open = slices.DeleteFunc(open, func(a *ask) bool {
			ended := a.to < until
			if ended && a.units < 0 {
				unheard -= a.units
			}
			return ended
		})
	}
	next := 0
	for _, s := range spends {
		if s.units == 0 {
			continue // it has heard of a reset
		}
		for ; next < len(asks) && asks[next].from <= s.at; next++ {
			a := &asks[next]
			if a.done || a.units < 0 {
				open = append(open, a)
			}
			if a.unsure && a.units > 0 {
				unsure = append(unsure, a)
			}
		}
		settle(s.at)
		best := -1
		for i, a := range open { // the first to end, so that the others' takes are left to them
			if a.units == s.units && (best < 0 || a.to < open[best].to) {
				best = i
			}
		}
		if best >= 0 {
			open = slices.Delete(open, best, best+1)
			continue
		}
		if s.units < 0 {
			continue // of a take that came too late, or of a part of what was given back
		}
		at := slices.IndexFunc(unsure, func(a *ask) bool {
			return a.units == s.units && s.at <= a.to+lateFor && times[a] < besides
		})
		if at < 0 {
			unasked += s.units
			continue
		}
		times[unsure[at]]++
		unheard += s.units
	}
	for _, a := range asks[next:] {
		if a.units < 0 {
			unheard -= a.units
		}
	}
	settle(never)
	return unheard, unasked
}

package main

import (
	"slices"
	"time"
)

// second is what came of one second of a run, for the count that was asked most.
type second struct {
	At       time.Duration // when it begins
	Offered  int64         // units asked for
	Admitted []int64       // units, on each side, those of most nodes first; one side if the nodes are whole; of a Global limit, in each region
	Limit    int64         // what the limit grants in Per, in the long run: Rate
	Window   int64         // units admitted in the window of Per that ends with this second; of the whole of a shorter time at the beginning
	Bound    int64         // the most that this window may hold
	Row      string        // of the guarantees table, that the window falls under
}

// mostAsked is the count that was asked for the most units, nil if none was.
func (r *trial) mostAsked() *asks {
	var most *asks
	var units int64
	for _, a := range r.asks {
		var asked int64
		for _, i := range a.of {
			asked += a.checks[i].Units
		}
		if asked > units {
			most, units = a, asked
		}
	}
	return most
}

// perSecond is a run second by second, of the key that was asked most.
func (r *trial) perSecond() []second {
	a := r.mostAsked()
	if a == nil {
		return nil
	}
	all := make([]second, (r.Scenario.Lasts+time.Second-1)/time.Second)
	for i := range all {
		s := &all[i]
		s.At, s.Limit = time.Duration(i)*time.Second, a.l.Rate
		s.Admitted = make([]int64, max(1, a.places(s.At)))
	}
	for _, i := range a.of {
		c := &a.checks[i]
		at := int(c.Asked / time.Second)
		if at >= len(all) {
			continue
		}
		s := &all[at]
		s.Offered += c.Units
		if !c.Allowed || c.Err != "" {
			continue
		}
		side := a.place(c.Asked, c.Node)
		for side >= len(s.Admitted) {
			s.Admitted = append(s.Admitted, 0)
		}
		s.Admitted[side] += c.Units
	}
	stretches, first, next, units := a.stretches(), 0, 0, int64(0)
	for i := range all {
		s := &all[i]
		from, to := s.At+time.Second-a.l.Per, s.At+time.Second
		for ; next < len(a.ends) && a.checks[a.ends[next]].Answered < to; next++ {
			units += a.checks[a.ends[next]].Units
		}
		for ; first < next && a.checks[a.ends[first]].Answered < from; first++ {
			units -= a.checks[a.ends[first]].Units
		}
		of := stretches.next(from)
		s.Window, s.Bound, s.Row = units, of.bound(a.l)+a.inFlight(from, to), of.row()
	}
	return all
}

// rank is the place of a node's side among the sides, those of most nodes first;
// of equals the one with the first node. A node on no side, which is about to
// leave or freeze, counts for the first.
func (e *era) rank(node int) int {
	if e.side[node] < 0 {
		return 0
	}
	order := make([]int, e.sides)
	for i := range order {
		order[i] = i
	}
	sizes := make([]int, e.sides)
	for _, side := range e.side {
		if side >= 0 {
			sizes[side]++
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return sizes[y] - sizes[x] })
	return slices.Index(order, e.side[node])
}

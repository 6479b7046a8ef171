package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// plan is how a reservation is settled, drawn when the estimate is requested.
type plan struct {
	after   time.Duration // time from the reservation to its settlement
	actuals []int64       // the actual cost for each of the callers that settle the reservation; empty if there are none
	at      []*host       // where each caller settles; nil for the node of the reservation
}

// Reserved records a reservation: the request that reserved the estimated units of a check, and the calls
// that settled the reservation with the actual units.
type Reserved struct {
	Check             // the request that reserved the estimate
	Settled []Settled // an entry for each call of Settle that returned no error
	Open    []int64   // the actual cost for each caller that was killed during its call of Settle
	Tried   bool      // a caller that was not killed tried to settle the reservation, and the result was not ErrClosed
	Wrong   string    // the first error of a Settle that is unexpected
}

// Settled records that Settle returned no error to a caller.
type Settled struct {
	Asked, Answered time.Duration
	Actual          int64
}

// minUnits returns the minimum number of units that are spent for the reservation.
func (v *Reserved) minUnits() int64 {
	least := v.Units
	for _, actual := range v.Open {
		least = min(least, actual)
	}
	for _, s := range v.Settled {
		least = min(least, s.Actual)
	}
	return least
}

// Spend is the final number of units of a key with reservations, over all regions.
type Spend struct {
	Limit int16
	Key   int32
	Units int64
}

// carriedOf is the number of reservations among which, on average, one is settled from
// its text, at a random node.
const carriedOf = 3

// drawPlan draws the plan of a reservation: one in eight is never settled, one in three
// is settled at random nodes, and one in four twice.
func (a *asker) drawPlan(s *stage, made *host, units int64) *plan {
	near := slices.DeleteFunc(slices.Clone(s.hosts), func(h *host) bool { return h.region != made.region }) // nodes of other regions cannot open the text
	p := &plan{after: time.Duration(a.rng.Int64N(int64(a.load.Settles)))}
	how, carried, twice := a.rng.IntN(8), a.rng.IntN(carriedOf) == 0, a.rng.IntN(4) == 0
	settles := 1
	if twice {
		settles = 2
	}
	for range settles {
		p.actuals = append(p.actuals, a.rng.Int64N(2*units+1))
		at := near[a.rng.IntN(len(near))]
		if !carried {
			at = nil
		}
		p.at = append(p.at, at)
	}
	if how == 0 {
		p.actuals = nil
	}
	return p
}

// reserve spends and settles an estimate as planned.
func (s *stage) reserve(ctx context.Context, q question) {
	p, l, key, c := s.begin(q)
	if p == nil {
		return
	}
	made, err := l.Reserve(ctx, key, q.units)
	v := Reserved{Check: c}
	s.recordDecision(&v.Check, made.Decision(), err)
	s.mu.Lock()
	killed := p.killed
	s.mu.Unlock()
	if killed {
		return // the caller was killed with the node
	}
	text := ""
	if v.Allowed && q.plan.at[0] != nil {
		text = made.Text()
	}
	s.mu.Lock()
	at := len(s.reserved)
	s.reserved = append(s.reserved, v)
	s.mu.Unlock()
	if !v.Allowed || q.plan.actuals == nil {
		return
	}
	time.Sleep(min(q.plan.after, s.Lasts-s.elapsed()))
	for i, actual := range q.plan.actuals {
		s.asking.Go(func() { s.settleOne(ctx, q, at, i, actual, p, made, text) })
	}
}

// settleOne settles a reservation on behalf of a caller. If text is not empty, a node
// of the plan opens the reservation from the text.
func (s *stage) settleOne(ctx context.Context, q question, at, i int, actual int64, p *process, v *weir.Reservation, text string) {
	h := q.host
	if text != "" {
		h = q.plan.at[i]
	}
	for pause := h.machine.Paused(); pause > 0; pause = h.machine.Paused() { // a paused process sends no request
		time.Sleep(pause)
	}
	s.mu.Lock()
	by, able := h.runs, h.runs != nil && !h.frozen && (text != "" || h.runs == p)
	s.mu.Unlock()
	if !able {
		return
	}
	var err error
	asked := s.elapsed()
	if text != "" {
		v, err = by.limiters[q.limit].OpenReservation(s.keys[q.limit][q.key], text)
	}
	if err == nil {
		err = v.Settle(ctx, actual)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.reserved[at]
	switch {
	case by.killed:
		r.Open = append(r.Open, actual)
		return
	case err == nil:
		r.Settled = append(r.Settled, Settled{asked, s.elapsed(), actual})
	case text != "" && errors.Is(err, weir.ErrUnavailable), errors.Is(err, weir.ErrClosed), errors.Is(err, weir.ErrSettled), errors.Is(err, weir.ErrExpired):
	case r.Wrong == "":
		r.Wrong = failure(err)
	}
	r.Tried = r.Tried || !errors.Is(err, weir.ErrClosed)
}

// hasReservations reports whether the units of a limit are reserved.
func (s *Scenario) hasReservations(limit string) bool {
	return slices.ContainsFunc(s.Loads, func(l Load) bool { return l.Limit == limit && l.Settles > 0 })
}

// listSpends returns the final counts of keys with reservations, for limits whose units
// do not recover during the run.
func (s *stage) listSpends(ctx context.Context) (all []Spend) {
	for i := range s.Limits {
		l := &s.Limits[i]
		if !s.hasReservations(l.Name) || bounds.IsBucket(l) || l.Per <= s.Lasts+settleWithin {
			continue
		}
		for k := range s.keys[i] {
			units := int64(0)
			for region := range s.regions {
				if at := s.running(region, nil); at != nil {
					used, _ := s.peek(ctx, at, i, k)
					units += used
				}
			}
			all = append(all, Spend{int16(i), int32(k), units})
		}
	}
	return all
}

// checkSettledOnce checks each reservation, and the sum of the spends of each key.
func checkSettledOnce(r *trial, broken func(time.Duration, string, ...any)) {
	exact, whole := make(map[subject]int64), r.isUndisturbed()
	for i := range r.Reserved {
		v := &r.Reserved[i]
		name := r.Scenario.Limits[v.Limit].Name
		switch {
		case int64(len(v.Settled)) > r.maxSettles(v):
			broken(v.Settled[len(v.Settled)-1].Answered, "limit %q key %d: the reservation made at %s at %v was settled %d times: %v", name, v.Key, r.Scenario.Nodes[v.Node].Name, v.Asked, len(v.Settled), v.Settled)
		case whole && v.Tried && v.Allowed && len(v.Settled)+len(v.Open) == 0:
			broken(v.Answered, "limit %q key %d: the reservation made at %s at %v was not settled, although no fault occurred", name, v.Key, r.Scenario.Nodes[v.Node].Name, v.Asked)
		case v.Wrong != "":
			broken(v.Answered, "limit %q key %d: settling the reservation made at %s at %v returned an error: %v", name, v.Key, r.Scenario.Nodes[v.Node].Name, v.Asked, v.Wrong)
		}
		if !v.Allowed {
			continue
		}
		k := subject{limit: v.Limit, key: v.Key}
		actual := v.Units
		if len(v.Settled) > 0 {
			actual = v.Settled[0].Actual
		}
		exact[k] += actual
	}
	for _, s := range r.Spends {
		k, l := subject{limit: s.Limit, key: s.Key}, &r.Scenario.Limits[s.Limit]
		if whole && exact[k] <= l.Rate && s.Units != exact[k] {
			broken(r.Scenario.Lasts, "limit %q key %d: %d units are used at the end, but %d were reserved and settled, and no fault occurred", l.Name, s.Key, s.Units, exact[k])
		}
	}
}

// maxSettles returns how often a reservation may be settled: as often as a FailClosed
// limit of one unit may admit.
func (r *trial) maxSettles(v *Reserved) int64 {
	if len(v.Settled) < 2 {
		return 1
	}
	c := r.courses[r.Scenario.Nodes[v.Node].Region]
	from, to := v.Settled[0].Asked, v.Settled[len(v.Settled)-1].Answered
	for _, s := range v.Settled {
		from, to = min(from, s.Asked), max(to, s.Answered)
	}
	l := &weir.Limit{Algorithm: weir.SlidingLog, Rate: 1, Per: time.Minute, Partition: weir.FailClosed}
	s := c.situation(l, from, to)
	return bounds.Bound(l, s.Situation) + c.inFlight(l, from, to, func(from, to time.Duration) (settles int64) {
		for _, s := range v.Settled {
			if s.Answered >= from && s.Asked <= to {
				settles++
			}
		}
		return settles
	})
}

// isUndisturbed reports whether the only events are starts and orderly leaves, no packets
// are lost, no checks time out, no counts are evicted, all nodes are connected to each
// other, and there are as many nodes as expected. Otherwise no node may be able to settle a
// carried reservation.
func (r *trial) isUndisturbed() bool {
	if r.Scenario.Network.Loss > 0 || r.mayEvict() {
		return false
	}
	for _, c := range r.courses {
		if slices.ContainsFunc(c.events, func(e event) bool { return e.kind != moved }) || slices.ContainsFunc(c.eras, func(e era) bool {
			return e.sides > 1 || e.slow > 0 || e.late || e.strained || e.unaware > 0 || e.missing || e.roster > e.nodes()
		}) {
			return false
		}
	}
	return true
}

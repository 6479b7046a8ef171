package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// backWithin is the maximum time for which a unit is held after the end of its holder:
// HoldTerm, a second between two checks of a node for ended holders, and a second for the
// messages.
const backWithin = weir.HoldTerm + 2*time.Second

// confirmedWithin is the maximum time for which a member that did not hear of a release
// still counts the units: a renewal is missing for a second and a half, the node checks
// for missing renewals once a second, and half a second is for the messages.
const confirmedWithin = 3 * time.Second

// holdEnd is the reason for the end of a hold.
type holdEnd uint8

const (
	holdReleased     holdEnd = iota
	holdLost                 // the caller was notified that the hold is lost
	holdDied                 // the caller ended with the process
	holdLeft                 // the node has left the cluster
	holdDisconnected         // no caller has the hold, because the node did not grant it, or the answer was not received
	holdExpired              // the client did not renew the hold, or could not
)

// Held is a request for units of an in-flight limit, and the hold of the units if they were granted.
type Held struct {
	Asked    time.Duration
	From, To time.Duration // start and end of the time in which a caller has the units; equal if no caller has them
	// Expires is the last expiry time of a client's hold, or 0 for a hold of a process.
	// The units of the hold are free again at most expiryWithin after Expires, plus the
	// time of a round trip.
	Expires time.Duration
	Wrong   string // the first error of a renewal, except weir.ErrExpired
	Units   int64
	Key     int32
	Limit   int16
	Node    int16
	End     holdEnd
}

// probeTries is the maximum number of requests of a probe. After a denial by the owner,
// the probe waits for RetryAfter, at most 1 s, because the owner may not know yet which
// units other members hold. After a denial by another member, it waits for
// confirmedWithin, because an answer of the owner may have been lost, and the owner still
// has to return the units. If a hold is not released at all, each request is denied.
const probeTries = 5

// Probe is a request for all units of an in-flight limit when all held units must be back.
type Probe struct {
	Key     int32
	Limit   int16
	Node    int16
	Allowed bool
	Left    int64 // number of free units that the node reported
	Err     string
}

// hold takes units for a caller, or for a client in another process. The caller releases
// them after the time in the question, unless the hold is lost or the node ends first.
func (s *stage) hold(ctx context.Context, q question) {
	p, l, key, c := s.begin(q)
	if p == nil {
		return
	}
	var (
		h    *weir.Hold
		text string
		d    weir.Decision
		err  error
	)
	if q.ttl > 0 {
		text, d, err = l.HoldFor(ctx, key, q.units, q.ttl)
	} else {
		h, err = l.Hold(ctx, key, q.units)
		d = h.Decision()
	}
	s.recordDecision(&c, d, err)
	s.record(p, c)
	o := Held{Asked: c.Asked, From: c.Answered, To: c.Answered, Units: c.Units, Key: c.Key, Limit: c.Limit, Node: c.Node, End: holdDisconnected}
	s.mu.Lock()
	heard := !p.killed && !q.host.frozen
	s.mu.Unlock()
	switch {
	case q.ttl > 0:
		o.Expires = c.Answered + q.ttl
		if heard && c.Allowed {
			s.runClient(ctx, q, text, &o)
		}
	case c.Allowed:
		o.End = s.keep(p, q.host, h, q.keeps)
		if o.To = s.elapsed(); o.End == holdReleased {
			h.Release()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.killed && q.ttl == 0 {
		o.End, o.To = holdDied, min(o.To, p.ended)
		o.From = min(o.From, o.To)
	}
	s.holds = append(s.holds, o)
}

// keep waits until a hold ends, but not beyond the end of the run, and returns the reason
// for the end. The callers of a frozen node are frozen as well.
func (s *stage) keep(p *process, at *host, h *weir.Hold, keeps time.Duration) holdEnd {
	due := time.NewTimer(min(keeps, s.Lasts-s.elapsed())) // a hold does not extend the run
	defer due.Stop()
	for {
		select {
		case <-h.Lost():
			return holdLost
		case <-p.over:
			return holdLeft
		case <-due.C:
		}
		s.mu.Lock()
		waits := at.runs == p && at.frozen && s.elapsed() < s.Lasts
		s.mu.Unlock()
		if !waits {
			return holdReleased
		}
		due.Reset(10 * time.Millisecond)
	}
}

// endCallers records that the callers of a process have ended. The caller must hold s.mu.
func (p *process) endCallers(now time.Duration) {
	if p.ended == 0 {
		p.ended = now
		close(p.over)
	}
}

// probe requests all units of each in-flight limit after the end of all holds.
func (s *stage) probe(ctx context.Context) (probes []Probe) {
	if !slices.ContainsFunc(s.Limits, inFlightLimit) {
		return nil
	}
	back := s.elapsed() + backWithin
	for _, o := range s.holds {
		back = max(back, o.Expires+expiryWithin)
	}
	time.Sleep(back - s.elapsed())
	for i := range s.Limits {
		if !inFlightLimit(s.limits[i]) {
			continue
		}
		for region := range s.regions {
			at := s.running(region, nil)
			if at == nil {
				continue
			}
			for k, key := range s.keys[i] {
				p := Probe{Key: int32(k), Limit: int16(i), Node: int16(at.index)}
				l, err := s.cluster.Node(at.name).Limiter(s.limits[i])
				for try := 0; err == nil && try < probeTries && !p.Allowed; try++ {
					var h *weir.Hold
					h, err = l.Hold(ctx, key, s.limits[i].Rate)
					d := h.Decision()
					p.Allowed, p.Left = d.Allowed, d.Remaining
					h.Release()
					if d.Source == weir.Owner || d.Source == weir.Forwarded {
						time.Sleep(min(d.RetryAfter, time.Second))
					} else {
						time.Sleep(confirmedWithin)
					}
				}
				p.Err = failure(err)
				probes = append(probes, p)
			}
		}
	}
	return probes
}

func inFlightLimit(l weir.Limit) bool { return l.Algorithm == weir.InFlight }

// isHeld reports whether a caller had the units for some time.
func (o *Held) isHeld() bool { return o.To > o.From }

// wholeQuiet returns the quiet that contains a span and in which all nodes are connected
// to each other, or nil. The span must begin at least spreadTime after the quiet begins.
func (h *asks) wholeQuiet(quiets []quiet, from, to time.Duration) *quiet {
	for i := range quiets {
		if q := &quiets[i]; q.sides == 1 && !q.mute && q.from+h.spreadTime(q) <= from && to < q.to {
			return q
		}
	}
	return nil
}

// spreadTime returns the maximum time, in a quiet, until the answering member knows the
// action of a holder.
func (h *asks) spreadTime(q *quiet) time.Duration {
	return spreading + spreads*h.course.longestPause(q.from, q.to, h.course.members...)
}

// checkHeld checks each grant against the units that are held at that time.
func checkHeld(r *trial, broken func(time.Duration, string, ...any)) {
	for _, h := range r.flights {
		quiets := h.course.quiets()
		var active []Held
		told, toldWhole := false, false
		for _, g := range h.holds {
			if !g.isHeld() {
				continue
			}
			active = slices.DeleteFunc(active, func(o Held) bool { return o.To <= g.Asked || h.hasStop(o.Asked, g.From) })
			active = append(active, g)
			since, now, before := g.Asked, int64(0), g.Units
			for _, o := range active {
				if o.To > g.From {
					now += o.Units
					since = min(since, o.Asked)
				}
				if o.From < g.Asked && o.To > g.From && !h.isUnknown(&o, g.Asked) {
					before += o.Units
				}
			}
			if before > h.l.Rate && !toldWhole && h.wholeQuiet(quiets, g.Asked, g.From) != nil {
				toldWhole = true
				broken(g.From, "%v: %d units were granted at %s, asked at %v, and %d are held then: all nodes are connected to each other",
					h, g.Units, r.Scenario.Nodes[g.Node].Name, g.Asked, before)
			}
			if now <= h.l.Rate || told {
				continue
			}
			// The bound of a window of this limit also bounds the units that are held at
			// once: the units that were granted since a time and are not back yet.
			l := &weir.Limit{Name: h.l.Name, Algorithm: weir.SlidingLog, Rate: h.l.Rate, Per: max(g.From-since, 1), Partition: h.l.Partition}
			s := h.course.situation(l, since, g.From)
			s.Crashes, s.Bare, s.Stepped, s.moves = 0, 0, 0, 0 // the members report their holds to the next owner, so a crash does not raise the bound; clocks have no effect
			if allowed := bounds.Bound(l, s.Situation) + h.course.inFlight(l, since, g.From, h.granted); now > allowed {
				told = true
				broken(g.From, "%v: %d units are held at %v, the oldest since %v, %d allowed: c = %d, %s", h, now, g.From, since, allowed, s.Changes, s.rowName())
			}
		}
	}
}

// isUnknown reports whether no node can know a client's hold: the hold was granted on a
// side of a split, and all nodes of this side were killed before the heal.
func (h *asks) isUnknown(o *Held, now time.Duration) bool {
	granted, last := h.course.eraAt(o.From), time.Duration(0)
	if o.Expires == 0 || granted.sides < 2 || granted.side[o.Node] < 0 {
		return false
	}
	for n, side := range granted.side {
		if side != granted.side[o.Node] {
			continue
		}
		i := slices.IndexFunc(h.course.events, func(e event) bool { return e.kind == killed && e.node == n && o.From <= e.from && e.from < now })
		if i < 0 {
			return false
		}
		last = max(last, h.course.events[i].from)
	}
	return !slices.ContainsFunc(h.course.eras, func(e era) bool { return e.sides < 2 && e.from < last && e.to > o.From })
}

// hasStop reports whether all nodes of the region were stopped at some time from one time to
// another. In that case the holds of clients are lost.
func (h *asks) hasStop(from, to time.Duration) bool {
	return slices.ContainsFunc(h.course.events, func(e event) bool { return e.region && e.overlaps(from, to) })
}

// granted returns the number of units that were granted between two times.
func (h *asks) granted(from, to time.Duration) (units int64) {
	for _, o := range h.holds {
		if o.isHeld() && o.From >= from && o.From <= to {
			units += o.Units
		}
	}
	return units
}

// stillQuiets returns the quiets, without the time in which authority may still move.
// Authority moves when nodes that started while members were missing join.
func (h *asks) stillQuiets() []quiet {
	quiets := h.course.quiets()
	for i := range quiets {
		q := &quiets[i]
		if slices.ContainsFunc(h.course.members, func(n int) bool { return q.side[n] >= 0 && !q.weighs[n] }) {
			q.from += moving + settling
		}
	}
	return quiets
}

// backBy returns the time at which the units of a hold are back at the latest.
func (h *asks) backBy(o *Held, still []quiet, lossy bool) time.Duration {
	switch {
	case o.Expires > 0:
		return o.Expires + expiryWithin + h.course.longestWait(h.course.eraAt(o.Expires))
	case o.End == holdLeft:
		return o.To + leaveWithin + backWithin
	case o.End == holdReleased && !lossy:
		if q := h.wholeQuiet(still, o.Asked, o.To); q != nil && h.course.longestPause(q.from, q.to, h.course.members...) == 0 {
			if by := o.To + h.course.longestWait(q.era) + scheduling; by < q.to {
				return by
			}
		}
	}
	return o.To + backWithin
}

// checkGivenBack checks that a denied request had no room, because units were held or may
// not have been back yet. After the end of all holds, no units may be held.
func checkGivenBack(r *trial, broken func(time.Duration, string, ...any)) {
	for _, p := range r.Probes {
		eras := r.courses[r.Scenario.Nodes[p.Node].Region].eras
		if l := &r.Scenario.Limits[p.Limit]; r.Unsettled == "" && !p.Allowed && eras[len(eras)-1].nodes() >= r.Scenario.Expect {
			broken(r.Scenario.Lasts, "limit %q key %d: %d of %d units are free at %s when all holds have ended, %v ago (%v)",
				l.Name, p.Key, p.Left, l.Rate, r.Scenario.Nodes[p.Node].Name, backWithin, p.Err)
		}
	}
	if r.mayEvict() {
		return // a node has room for a bounded number of holds
	}
	for _, h := range r.flights {
		quiets, still := h.course.quiets(), h.stillQuiets()
		lossy := h.course.scenario.Network.Loss > 0
		at, active := 0, []Held(nil)
		slices.SortStableFunc(h.holds, func(a, b Held) int { return cmp.Compare(a.Asked, b.Asked) })
		for _, i := range h.of {
			c := &h.checks[i]
			if c.Allowed || c.Err != "" {
				continue
			}
			for ; at < len(h.holds) && h.holds[at].Asked <= c.Answered; at++ {
				active = append(active, h.holds[at])
			}
			active = slices.DeleteFunc(active, func(o Held) bool { return h.backBy(&o, still, lossy) < c.Asked })
			q := h.wholeQuiet(quiets, c.Asked, c.Answered)
			if q == nil || q.missing || h.course.isBelowRoster(q) || h.course.longestPause(q.from, q.to, h.course.members...) > 0 ||
				h.course.awaitsJoins(q) && c.Asked < q.from+moving+settling {
				continue
			}
			units := int64(0)
			for _, o := range active {
				units += o.Units
			}
			if units+c.Units <= h.l.Rate {
				broken(c.Answered, "%v: %d units were denied at %s, asked at %v, as %v, where %d can be held", h, c.Units, r.Scenario.Nodes[c.Node].Name, c.Asked, c.Source, units)
				break
			}
		}
	}
}

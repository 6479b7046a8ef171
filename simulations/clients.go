package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
)

const (
	// expiryWithin is how long members may still count a hold after its ttl, in addition
	// to the time of a round trip. The ttl begins with the answer to the last renewal.
	expiryWithin = 100 * time.Millisecond
	// renewals is the number of times that a client renews its hold within a ttl.
	renewals = 3
	// abandonsOf is the number of clients among which, on average, one abandons its
	// hold: this client neither renews nor releases the hold.
	abandonsOf = 8
)

// runClient renews the hold of a client at random nodes, and then releases or abandons it.
func (s *stage) runClient(ctx context.Context, q question, text string, o *Held) {
	ttl := q.ttl
	random := rand.New(rand.NewPCG(uint64(q.keeps), uint64(o.Asked)))
	abandons := random.IntN(abandonsOf) == 0
	end := min(o.From+q.keeps, s.Lasts)
	due := o.Asked + ttl // the client has the units until this time
	for next := o.From + ttl/renewals; ; next = s.elapsed() + ttl/renewals {
		time.Sleep(min(next, end, due) - s.elapsed())
		if s.elapsed() >= end || s.elapsed() >= due {
			break
		}
		sent := s.elapsed()
		err, heard := s.askForClient(ctx, q, random, func(l *weir.Limiter, key string) error { return l.RenewHold(ctx, key, text, ttl) })
		switch {
		case heard && errors.Is(err, weir.ErrExpired):
			o.To, o.End = min(s.elapsed(), due), holdLost
			if s.elapsed() >= due {
				o.End = holdExpired
			}
			return
		case heard && err == nil:
			due = sent + ttl
		case heard && o.Wrong == "":
			o.Wrong = failure(err)
		}
		if !heard || err == nil || !errors.Is(err, errNoNode) {
			o.Expires = s.elapsed() + ttl
		}
	}
	o.To = min(s.elapsed(), due)
	if abandons || s.elapsed() >= due {
		o.To, o.End = due, holdExpired
		return
	}
	err, heard := s.askForClient(ctx, q, random, func(l *weir.Limiter, key string) error { return l.ReleaseHold(ctx, key, text) })
	if o.End = holdExpired; heard && err == nil { // otherwise the hold may end only by its ttl
		o.End = holdReleased
	}
}

// errNoNode means that no node can be asked.
var errNoNode = errors.New("no node runs")

// askForClient sends a request about a client's hold to a node of the region, and reports
// whether the client receives the answer.
func (s *stage) askForClient(ctx context.Context, q question, random *rand.Rand, do func(l *weir.Limiter, key string) error) (err error, heard bool) {
	s.mu.Lock()
	h := anyOf(s.hosts, random, func(h *host) bool { return h.region == q.host.region && h.canAsk() })
	if h == nil {
		s.mu.Unlock()
		return errNoNode, true
	}
	p := h.runs
	s.mu.Unlock()
	err = do(p.limiters[q.limit], s.keys[q.limit][q.key])
	s.mu.Lock()
	defer s.mu.Unlock()
	return err, !p.killed && !h.frozen && !errors.Is(err, weir.ErrClosed)
}

// checkNotLost checks that no renewal within the ttl of a hold reported that the hold has
// expired, unless the hold may be lost (mayLose). In an undisturbed run, renewals must not
// return other errors either.
func checkNotLost(r *trial, broken func(time.Duration, string, ...any)) {
	if r.mayEvict() {
		return // a node has room for a bounded number of holds
	}
	for _, h := range r.flights {
		for _, o := range h.holds {
			if o.Expires == 0 || !o.isHeld() {
				continue
			}
			if o.End == holdLost && !h.mayLose(o.Asked, o.To) {
				broken(o.To, "%v: a hold of %d units, granted at %s at %v, is lost", h, o.Units, r.Scenario.Nodes[o.Node].Name, o.From)
				break
			}
			if o.Wrong != "" && r.isUndisturbed() {
				broken(o.To, "%v: renewing a hold of %d units, granted at %s at %v, returned an error: %v", h, o.Units, r.Scenario.Nodes[o.Node].Name, o.From, o.Wrong)
				break
			}
		}
	}
}

// mayLose reports whether a hold may be lost between two times: in a split, at a change of
// connectivity, if all nodes of the region end, if a member dies whose counts may be on no
// other member, or if several members crash or freeze.
func (h *asks) mayLose(from, to time.Duration) bool {
	c := h.course
	for i := range c.eras {
		if e := &c.eras[i]; e.to+c.settle > from && e.from <= to && (e.sides != 1 || e.unaware > 0) {
			return true
		}
	}
	gone := make(map[int]bool)
	for i := range c.events {
		e := &c.events[i]
		if !e.overlaps(from-copying, to) {
			continue
		}
		switch {
		case e.kind == changed, e.kind == killed && e.fresh, e.region:
			return true
		case e.kind == killed, e.kind == timedOut:
			gone[e.node] = true
		}
	}
	return len(gone) > 1
}

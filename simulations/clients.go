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
	// renewals is how often a client renews its hold within the ttl.
	renewals = 3
	// abandonsOf is the number of clients of which one neither renews nor releases its
	// hold in the end.
	abandonsOf = 8
)

// carry renews the hold of a client at random nodes, and then releases or abandons it.
func (s *stage) carry(ctx context.Context, q question, text string, o *Held) {
	ttl := q.ttl
	random := rand.New(rand.NewPCG(uint64(q.keeps), uint64(o.Asked)))
	abandons := random.IntN(abandonsOf) == 0
	end := min(o.From+q.keeps, s.Lasts)
	due := o.Asked + ttl // the client has the units until this time
	for next := o.From + ttl/renewals; ; next = s.now() + ttl/renewals {
		time.Sleep(min(next, end, due) - s.now())
		if s.now() >= end || s.now() >= due {
			break
		}
		sent := s.now()
		err, heard := s.carried(ctx, q, random, func(l *weir.Limiter, key string) error { return l.RenewHold(ctx, key, text, ttl) })
		switch {
		case heard && errors.Is(err, weir.ErrExpired):
			o.To, o.End = min(s.now(), due), holdLost
			if s.now() >= due {
				o.End = holdExpired
			}
			return
		case heard && err == nil:
			due = sent + ttl
		case heard && o.Wrong == "":
			o.Wrong = failure(err)
		}
		if !heard || err == nil || !errors.Is(err, errNobody) {
			o.Expires = s.now() + ttl
		}
	}
	o.To = min(s.now(), due)
	if abandons || s.now() >= due {
		o.To, o.End = due, holdExpired
		return
	}
	err, heard := s.carried(ctx, q, random, func(l *weir.Limiter, key string) error { return l.ReleaseHold(ctx, key, text) })
	if o.End = holdExpired; heard && err == nil { // otherwise the hold may end only by its ttl
		o.End = holdReleased
	}
}

// errNobody means that no node can be asked.
var errNobody = errors.New("no node runs")

// carried sends a request about a client's hold to a node of the region, and reports
// whether the client receives the answer.
func (s *stage) carried(ctx context.Context, q question, random *rand.Rand, do func(l *weir.Limiter, key string) error) (err error, heard bool) {
	s.mu.Lock()
	h := anyOf(s.hosts, random, func(h *host) bool { return h.region == q.host.region && h.asks() })
	if h == nil {
		s.mu.Unlock()
		return errNobody, true
	}
	p := h.runs
	s.mu.Unlock()
	err = do(p.limiters[q.limit], s.keys[q.limit][q.key])
	s.mu.Lock()
	defer s.mu.Unlock()
	return err, !p.killed && !h.frozen && !errors.Is(err, weir.ErrClosed)
}

// notLost checks that no client learnt within the ttl of its hold that the hold has
// expired. In an undisturbed run, renewals must not return other errors either.
func notLost(r *trial, broken func(time.Duration, string, ...any)) {
	if r.evicts() {
		return // a node has room for a bounded number of holds
	}
	for _, h := range r.flights {
		for _, o := range h.holds {
			if o.Expires == 0 || !o.has() {
				continue
			}
			if o.End == holdLost && !h.mayLose(o.Asked, o.To) {
				broken(o.To, "%v: a hold of %d units, granted at %s at %v, is lost", h, o.Units, r.Scenario.Nodes[o.Node].Name, o.From)
				break
			}
			if o.Wrong != "" && r.undisturbed() {
				broken(o.To, "%v: to renew a hold of %d units, granted at %s at %v, is an error: %v", h, o.Units, r.Scenario.Nodes[o.Node].Name, o.From, o.Wrong)
				break
			}
		}
	}
}

// mayLose reports whether a hold may be lost between two times. This is the case in a
// split, or if several members crash or freeze that may be the only members with the
// hold.
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

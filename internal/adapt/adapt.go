// Package adapt computes the factor of an adaptive limit from measurements of all nodes. It is pure: time is an
// argument.
//
// The factor multiplies the numbers of the limits of a rule. A backend that is overloaded makes it fall at once,
// to the part of the started requests that the backend completes. While clients are denied and the backend
// completes requests in time, it rises again: at once to just below the factor at which the backend was
// overloaded, and beyond in steps that grow.
//
// All judgments compare two numbers of the same Sample. So a report that is late, lost or counted twice
// has little effect: it changes both numbers.
package adapt

import (
	"math"
	"time"
)

// Bounds are the rule by which a factor adapts.
type Bounds struct {
	Latency  time.Duration // of a request that is not slow; above zero
	Slow     float64       // part of the requests that may be slow, from 0 to 1
	Errors   float64       // part of the requests that may fail, from 0 to 1
	Min, Max float64       // of the factor; 0 < Min <= Max
	InFlight bool          // a limit of the rule bounds the requests in flight
}

// latency returns the mean latency of the requests in flight, by Little's law. It shows a queue before the
// requests in it have ended.
func (s *totals) latency() float64 { return s.busy / max(s.done, 1) }

// totals is a Sample that is smoothed if it has few requests.
type totals struct{ started, done, slow, failed, denied, busy float64 }

// enough is the number of requests of a Sample that is not smoothed.
const enough = 50

// merge makes m the later part of s. The fewer requests m has, the more s keeps of the earlier Samples.
func (s *totals) merge(m Sample) {
	w := min(1, float64(max(m.Done, m.Started)+1)/enough)
	for _, p := range []struct {
		sum *float64
		now float64
	}{
		{&s.started, float64(m.Started)}, {&s.done, float64(m.Done)}, {&s.slow, float64(m.Slow)},
		{&s.failed, float64(m.Failed)}, {&s.denied, float64(m.Denied)}, {&s.busy, m.Busy.Seconds()},
	} {
		*p.sum += w * (p.now - *p.sum)
	}
}

// isAbove reports whether a part of n is above the bound by more than chance explains.
func isAbove(part, n, bound float64) bool {
	return part > bound*n+2*math.Sqrt(bound*n)+1
}

// The constants of the controller. The tests of this package show what each choice costs.
const (
	lowest   = 0.5   // part of the factor that one decrease leaves at least
	mildest  = 0.95  // part of the factor that one decrease leaves at most
	goal     = 0.8   // of Bounds.Latency: the mean latency to which a decrease brings the requests of an in-flight limit
	calm     = 0.7   // of Bounds.Latency: with a higher mean latency the factor does not rise
	plateau  = 0.95  // of the ceiling: to which the factor rises at once
	small    = 0.005 // of Bounds.Max: the first step beyond the plateau
	large    = 0.05  // of Bounds.Max: the largest
	widening = 1.3   // of a step to the next
	growing  = 1.03  // started requests for each that ends: with more, the factor does not rise

	settling = 1250 * time.Millisecond // until the effect of a decrease shows in the Samples
	stepping = 500 * time.Millisecond  // between two steps
	resting  = 2 * time.Second         // on the plateau
)

// Reason is the cause of the last change of a factor.
type Reason string

// The reasons.
const (
	Unchanged Reason = ""
	Slow      Reason = "slow"      // more requests are slow than Bounds.Slow
	Errors    Reason = "errors"    // more requests fail than Bounds.Errors
	Queue     Reason = "queue"     // the requests in flight will be slow
	Recovered Reason = "recovered" // the backend completes requests in time, and clients are denied
)

// State is the state of a factor. The zero State stands for a factor of Bounds.Max.
type State struct {
	Factor  float64
	Ceiling float64 // the factor at which the backend was overloaded last; 0 if it was not
	Reason  Reason
	At      time.Time // of the last change, by the clock of the node that decided
	Lowered uint64
	Raised  uint64

	recent  totals    // of the last Samples
	step    float64   // next step beyond the plateau; 0 stands for small
	changed time.Time // last change, as this node saw it
	rested  bool      // the factor was on the plateau for resting
	quiet   float64   // mean latency on the plateau
}

// Next returns the State after a Sample.
func (s State) Next(b Bounds, m Sample, now time.Time) State {
	if s.Factor == 0 {
		s.Factor = b.Max
	}
	s.Factor = min(max(s.Factor, b.Min), b.Max)
	if now.Before(s.changed) { // the clock has stepped back
		s.changed = now
	}
	if m.IsEmpty() {
		s.recent = totals{}
		return s
	}
	s.recent.merge(m)
	switch reason := s.judge(&b); {
	case reason != Unchanged:
		s.decrease(&b, reason, now)
	case s.recent.denied >= 1 && s.recent.latency() < calm*b.Latency.Seconds():
		s.increase(&b, now)
	}
	return s
}

// judge returns the reason for which the backend is overloaded, or Unchanged.
func (s *State) judge(b *Bounds) Reason {
	r, latency := &s.recent, b.Latency.Seconds()
	switch {
	case isAbove(r.failed, r.done, b.Errors):
		return Errors
	case r.done > 1.05*r.started: // requests of a queue that ends are slow
	case isAbove(r.slow, r.done, b.Slow):
		return Slow
	case r.latency() > latency && r.busy > 10*latency:
		return Queue
	}
	return Unchanged
}

// decrease lowers the factor, unless the effect of the last decrease is not known yet.
func (s *State) decrease(b *Bounds, reason Reason, now time.Time) {
	r := &s.recent
	wait := settling
	if r.denied < 1 { // the last decrease had no effect, because the limit is above the demand
		wait = stepping
	}
	if now.Sub(s.changed) < wait {
		return
	}
	part := max(r.done-r.failed, 0) / max(r.started, 1)
	excess := r.latency() / b.Latency.Seconds()
	ceiling := s.Factor * min(max(part, lowest), 1)
	f := ceiling
	switch {
	case reason == Errors:
	case b.InFlight && part > mildest:
		f = s.Factor * goal / max(excess, goal)
		ceiling = f
	default: // undershoot, so that the queue ends
		f *= 1 - min(max(0.15*(excess-0.7), 0.05), 0.5)
	}
	f = max(min(f, mildest*s.Factor), lowest*s.Factor, b.Min)
	if f >= s.Factor {
		return
	}
	s.Ceiling, s.step, s.rested = ceiling, 0, false
	s.set(f, reason, now)
	s.Lowered++
}

// increase raises the factor to the plateau, or by a step.
func (s *State) increase(b *Bounds, now time.Time) {
	r := &s.recent
	mean, since := r.latency(), now.Sub(s.changed)
	f := plateau * s.Ceiling
	switch {
	case s.Factor < f:
		if since < settling {
			return
		}
		s.rested = false
	case !s.rested && s.Ceiling > 0:
		if since < resting {
			return
		}
		s.rested, s.quiet = true, mean
		return
	case since < stepping || r.started > growing*r.done || s.Ceiling > 0 && mean > 2*s.quiet+0.05*b.Latency.Seconds():
		return
	default:
		step := max(s.step, small)
		f = s.Factor + step*b.Max
		s.step = min(step*widening, large)
	}
	f = min(f, b.Max, s.Factor*max(1, 0.85*b.Latency.Seconds()/max(mean, 1e-9)))
	if f <= s.Factor {
		return
	}
	s.set(f, Recovered, now)
	s.Raised++
}

func (s *State) set(f float64, reason Reason, now time.Time) {
	s.Factor, s.Reason, s.At, s.changed = f, reason, now, now
}

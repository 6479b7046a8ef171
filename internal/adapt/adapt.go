// Package adapt computes the factor of an adaptive limit from measurements of all nodes. It is pure: time is an
// argument.
//
// The factor multiplies the numbers of the limits of a rule. If the backend is overloaded, the factor falls at
// once to the part of the started requests that the backend completes. While clients are denied and the backend
// completes requests in time, the factor rises: at once to just below the part that the backend has borne,
// and after a rest in steps that grow.
//
// Other controllers failed. AIMD with a fixed decrease of 0.7 needs two overloads for a fall to 60 %. A controller
// that compares the latency with the least latency needs calm times, which a busy limit does not have. With an
// increase that ignored growing queues, the factor swung by ±30 % at a latency of 2 s, instead of ±15 %.
//
// In random runs (WEIR_FULL=1 go test -v -run FactorSettles ./internal/adapt) with at least 170 requests a second, 20
// in flight and, for a rate, a latency of 100 ms and six workers, the worst p99 was the latency for an in-flight limit
// and 1.5 times the latency for a rate, and the factor swung by ±20 %. With exponential service times, the worst p99
// was 1.8 and 2.6 times the latency, and the factor swung by ±26 %.
//
// Each comparison uses two numbers of the same Sample. If a report is late, lost or counted twice, both numbers
// change, and the result is nearly the same.
package adapt

import "time"

// Bounds are the rule by which a factor adapts.
type Bounds struct {
	Latency  time.Duration // maximum latency of a request that is not slow; above zero
	Slow     float64       // part of the requests that may be slow, from 0 to 1
	Errors   float64       // part of the requests that may fail, from 0 to 1
	Min, Max float64       // bounds of the factor; 0 < Min <= Max
	InFlight bool          // a limit of the rule bounds the requests in flight
}

// The constants of the controller, chosen by the simulation in the tests of this package.
const (
	lowest   = 0.5   // minimum of the new factor after a decrease, as a part of the old
	mildest  = 0.95  // maximum of the new factor after a decrease, as a part of the old
	goal     = 0.8   // mean latency to which a decrease brings the requests of an in-flight limit, as a part of Bounds.Latency
	calm     = 0.7   // mean latency above which the factor does not rise, as a part of Bounds.Latency
	plateau  = 0.95  // factor to which the factor rises at once, as a part of the ceiling
	small    = 0.005 // first step beyond the plateau, as a part of Bounds.Max
	large    = 0.05  // largest step, as a part of Bounds.Max
	widening = 1.3   // each step, as a multiple of the step before
	growing  = 1.03  // number of started requests for each request that ends, above which the factor does not rise
	noise    = 0.7   // deviation of a number of requests that chance explains, in standard deviations

	settling = 900 * time.Millisecond // time until the effect of a change shows in the Samples
	stepping = 500 * time.Millisecond // minimum time between two steps
	resting  = 2 * time.Second        // time on the plateau before the first step
	longest  = 3                      // maximum latency of a queue in seconds, for the wait before the next decrease
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

// State is the state of a factor. The zero State stands for a factor of Bounds.Max. A State may start anew from
// its exported fields on any node.
type State struct {
	Factor  float64   `json:"factor"`
	Ceiling float64   `json:"ceiling,omitempty"` // the factor that the backend bore at the last decrease; 0 if there was none
	Reason  Reason    `json:"reason"`
	At      time.Time `json:"at"`             // time of the last change, by the clock of the node that decided
	Until   time.Time `json:"until,omitzero"` // end of the published State, unless it is published again; zero for none

	recent  totals    // totals of the last Samples
	changed time.Time // last change, by the clock of this node
	step    float64   // last step beyond the plateau; 0 before the first
	rested  bool      // the factor has rested on the plateau
	worst   float64   // mean latency in seconds at the time of the last decrease
	quiet   float64   // mean latency in seconds while no queue grows; 0 if it is not known
}

// Next returns the State after a Sample. Without measurements, the factor stays.
func (s State) Next(b Bounds, m Sample, now time.Time) State {
	if s.Factor == 0 {
		s.Factor = b.Max
	}
	s.Factor = min(max(s.Factor, b.Min), b.Max)
	if now.Before(s.changed) { // the clock has stepped back
		s.changed = now
	}
	if m.IsEmpty() {
		s.recent, s.quiet = totals{}, 0
		return s
	}
	s.recent.merge(m)
	switch reason := s.judge(&b); {
	case reason != Unchanged:
		s.decrease(&b, reason, now)
	case s.recent.denied >= 1 && s.recent.latency() < calm*b.Latency.Seconds(): // the factor rises only if the limit is used up, as the congestion window of TCP does
		s.increase(&b, now)
	}
	return s
}

// judge returns the reason why the backend is judged to be overloaded, or Unchanged. It also updates quiet.
func (s *State) judge(b *Bounds) Reason {
	r, target := &s.recent, b.Latency.Seconds()
	mean := r.latency()
	switch {
	case isAbove(r.failed, r.done, b.Errors):
		return Errors
	case r.done > 1.05*r.started: // no reason: the slow requests come from a queue that is ending
	case isAbove(r.slow, r.done, b.Slow):
		return Slow
	case mean > target && r.busy > 10*target:
		return Queue
	case !b.InFlight && s.quiet > 0 && r.denied >= 1 && mean > 2*s.quiet+0.15*target && r.grows():
		return Queue
	}
	if mean < calm*target && !r.grows() {
		if s.quiet == 0 {
			s.quiet = mean
		}
		s.quiet += 0.1 * (mean - s.quiet)
	}
	return Unchanged
}

// isLowered reports whether the last change was a decrease.
func (s *State) isLowered() bool { return s.Reason != Unchanged && s.Reason != Recovered }

// decreaseWait returns the minimum time from a change to a decrease, so that an overload causes a single decrease.
func (s *State) decreaseWait(b *Bounds) time.Duration {
	r := &s.recent
	switch {
	case r.denied < 1: // the limit is above the demand, so the last decrease had no effect
		return stepping
	case !b.InFlight && s.isLowered() && r.latency() < 1.1*s.worst: // the last decrease may be enough for the queue to end
		return settling + time.Duration(2*min(r.latency(), longest)*float64(time.Second))
	}
	return settling
}

// decrease lowers the factor to the part of the requests that the backend completes, or below that part while a
// queue makes requests slow. If the backend completes nearly all requests of an in-flight limit, decrease relies on
// the latency being proportional to the limit.
func (s *State) decrease(b *Bounds, reason Reason, now time.Time) {
	if now.Sub(s.changed) < s.decreaseWait(b) {
		return
	}
	r := &s.recent
	part, excess := r.completed(), r.latency()/b.Latency.Seconds()
	ceiling := s.Factor * min(max(part, lowest), 1)
	f := ceiling
	switch {
	case reason == Errors:
	case b.InFlight && part > mildest:
		f = s.Factor * (goal / max(excess, goal))
		ceiling = f
	default:
		if s.isLowered() && !r.grows() { // the factor is low enough, but the queue is still long
			ceiling = max(ceiling, s.Ceiling)
		}
		f *= 1 - min(max(0.15*(excess-0.7), 0.05), 0.5)
	}
	if f = max(min(f, mildest*s.Factor), lowest*s.Factor, b.Min); f < s.Factor {
		s.Ceiling, s.step, s.rested, s.worst = ceiling, 0, false, r.latency()
		s.set(f, reason, now)
	}
}

// increase raises the factor to the plateau, or by a step once the factor has rested on the plateau.
func (s *State) increase(b *Bounds, now time.Time) {
	r, target := &s.recent, b.Latency.Seconds()
	mean, since := r.latency(), now.Sub(s.changed)
	f := plateau * s.Ceiling
	switch {
	case s.Factor < f:
		if since < settling {
			return
		}
	case s.Ceiling > 0 && !s.rested:
		s.rested = since >= resting
		return
	case since < stepping || r.started > growing*r.done || mean > 1.5*s.quiet+0.05*target:
		return
	default:
		s.step = min(max(s.step*widening, small), large)
		f = s.Factor + s.step*b.Max
	}
	if f = min(f, b.Max, s.Factor*max(1, 0.85*target/max(mean, 1e-9))); f > s.Factor {
		s.set(f, Recovered, now)
	}
}

func (s *State) set(f float64, reason Reason, now time.Time) {
	s.Factor, s.Reason, s.At, s.changed = f, reason, now.UTC(), now
}

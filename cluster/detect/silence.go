package detect

import "time"

// DelayTolerance is how late a check may run before this process counts as delayed.
const DelayTolerance = 20 * time.Millisecond

// Silence measures how long an event has not happened, as far as this process was running
// to observe it. A delayed process trusts its own suspicions less (Lifeguard, arXiv
// 1707.00788). Of the time between two checks, at most the planned time and DelayTolerance
// count, since the process may have been suspended for the rest. A late check reports
// false unless the check before found the limit exceeded too: the event may be in a socket
// that this process has not read yet.
//
// The zero Silence began at the zero time. A Silence is not safe for concurrent use.
type Silence struct {
	start    time.Time     // the argument of Restart
	checked  time.Time     // time of the last check
	elapsed  time.Duration // the part of the time between start and checked that counts
	exceeded bool          // the last check found the limit exceeded
}

// Restart records that the event happened, or that the wait for it began, at the given time.
func (s *Silence) Restart(at time.Time) { *s = Silence{start: at, checked: at} }

// Start returns the time that was last passed to Restart.
func (s *Silence) Start() time.Time { return s.start }

// Check performs the check that was planned for the time due, and reports whether the silence has
// lasted for limit.
func (s *Silence) Check(limit time.Duration, due, now time.Time) (exceeded bool) {
	late := now.Sub(due) > DelayTolerance
	until := now
	if late {
		until = due.Add(DelayTolerance)
	}
	if until.After(s.checked) {
		s.elapsed += until.Sub(s.checked)
	}
	s.checked = now
	before := s.exceeded
	s.exceeded = s.elapsed >= limit
	return s.exceeded && (before || !late)
}

// maxDelay is the maximum scheduling delay that is taken into account.
const maxDelay = time.Second

// schedulingDelay is the scheduling delay of this process, measured by its checks. A delay
// is forgotten over four times its length. The zero schedulingDelay is no delay.
type schedulingDelay struct {
	delay    time.Duration
	recorded time.Time
}

// record updates the delay by a check that was planned for the time due and runs at the time now.
func (d *schedulingDelay) record(due, now time.Time) {
	d.delay = min(max(now.Sub(due), d.delay-now.Sub(d.recorded)/4), maxDelay)
	d.recorded = now
}

// ExtraTime returns the additional time that a member has to answer if this process has the
// scheduling delay in the argument own, and the member has reported the given delay.
func ExtraTime(own, reported time.Duration) time.Duration {
	extra := min(max(own, reported), maxDelay)
	if extra < DelayTolerance {
		return 0
	}
	return extra
}

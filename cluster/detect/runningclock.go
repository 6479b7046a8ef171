package detect

import "time"

// TimerTolerance is how late a timer may fire while the process runs.
const TimerTolerance = 2 * time.Millisecond

// RunningClock is a clock that stops while its process does not run. A deadline on it gives
// each process the same time to send a request and to read the response, however long the
// machine ran other processes meanwhile.
//
// The process reports its checks. If a check runs more than TimerTolerance after it was due, the process
// did not run between these two times. It has then neither written a request nor read a response. So a
// late check does not end any wait, unless the previous check was late too. Otherwise a process whose
// checks are all late would never end a wait.
//
// Each time is a duration since a moment that is the same for all calls. The zero RunningClock has no
// check planned. A RunningClock is not safe for concurrent use.
type RunningClock struct {
	stopped time.Duration // how long the process did not run
	due     time.Duration // when the next check is due, if planned
	planned bool
	late    bool // the last check was late
}

// Plan sets the time at which the next check is due.
func (r *RunningClock) Plan(due time.Duration) { r.due, r.planned = due, true }

// Due returns the time at which the next check is due. It reports false if none is planned.
func (r *RunningClock) Due() (due time.Duration, planned bool) { return r.due, r.planned }

// Read returns the time on the clock at the time now. While a check is overdue, the clock stands at the
// time at which the check was due.
func (r *RunningClock) Read(now time.Duration) time.Duration {
	if r.isOverdue(now) {
		now = r.due
	}
	return now - r.stopped
}

// Check performs the planned check at the time now. It reports whether the caller must end
// the waits whose deadlines the clock has reached. No check is planned afterwards. If the
// caller does not plan another check, it must call CancelCheck.
func (r *RunningClock) Check(now time.Duration) (ends bool) {
	late := r.isOverdue(now)
	if late {
		r.stopped += now - r.due
	}
	ends = !late || r.late
	r.late, r.planned = late, false
	return ends
}

// CancelCheck cancels the planned check. After CancelCheck, the last check does not count as late. The
// caller must call CancelCheck when no request is waiting.
func (r *RunningClock) CancelCheck() { r.late, r.planned = false, false }

func (r *RunningClock) isOverdue(now time.Duration) bool {
	return r.planned && now-r.due > TimerTolerance
}

package patience

import "time"

// OnTime is how late a timer may fire while the process runs.
const OnTime = 2 * time.Millisecond

// Running is a clock that stops while its process does not run. A deadline on it gives each
// process the same time to send a request and to read the response, however long the machine
// ran others meanwhile.
//
// The process reports its looks. A look that comes more than OnTime after it was due shows
// that the process did not run from then on. If the process did not run, it has neither
// written a request nor read a response. So a late look does not end any wait, unless the
// look before it was late too: a process may be late to every look.
//
// Times are those since any one moment, the same for all calls. The zero Running has no look
// planned. It is not safe for concurrent use.
type Running struct {
	stood   time.Duration // for which the process did not run
	due     time.Duration // of the next look, if planned
	planned bool
	late    bool // the last look came late
}

// Plan sets the time at which the next look is due.
func (r *Running) Plan(due time.Duration) { r.due, r.planned = due, true }

// Due returns the time at which the next look is due. It reports false if none is planned.
func (r *Running) Due() (due time.Duration, planned bool) { return r.due, r.planned }

// At returns the time on the clock at now. From the time at which a look is overdue until
// that look, the clock does not move.
func (r *Running) At(now time.Duration) time.Duration {
	if r.overdue(now) {
		now = r.due
	}
	return now - r.stood
}

// Look performs the planned look at the time now. It reports whether the caller must end
// the waits whose deadlines the clock has reached. No look is planned afterwards. Where
// none follows, call Rest.
func (r *Running) Look(now time.Duration) (ends bool) {
	late := r.overdue(now)
	if late {
		r.stood += now - r.due
	}
	ends = !late || r.late
	r.late, r.planned = late, false
	return ends
}

// Rest cancels the planned look. After Rest, the last look does not count as late. The caller
// must call Rest when no request is waiting.
func (r *Running) Rest() { r.late, r.planned = false, false }

func (r *Running) overdue(now time.Duration) bool { return r.planned && now-r.due > OnTime }

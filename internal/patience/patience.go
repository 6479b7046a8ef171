// Package patience counts how long a process has waited in vain, allowing for its own
// lateness.
package patience

import "time"

// LateBy is how much later than due a look may come before this process counts as late
// itself.
const LateBy = 20 * time.Millisecond

// Patience counts how long something has not happened, as far as this process was
// there to see. Lifeguard (arXiv 1707.00788) is the idea: a process that is late itself trusts
// its own accusations less. Of the time between two looks no more counts than was
// planned and LateBy, since for the rest this process may have stood still; and a
// look that comes late accuses nobody if the one before did not: what has happened
// meanwhile may lie in a socket whose reader has yet to run.
//
// It is a step function: looks and the time go in. The zero Patience has waited since
// the beginning of time. It is not safe for concurrent use.
type Patience struct {
	from   time.Time     // since when it counts
	looked time.Time     // up to when it has counted
	passed time.Duration // counted up to then
	over   bool          // the last look found it exhausted
}

// Restart notes that it happened, or began to be waited for, at a time.
func (p *Patience) Restart(at time.Time) { *p = Patience{from: at, looked: at} }

// Since returns the time that Restart was given.
func (p *Patience) Since() time.Time { return p.from }

// Exhausted takes a look, which was to be taken at due, and reports whether more
// than most has passed.
func (p *Patience) Exhausted(most time.Duration, due, now time.Time) bool {
	late := now.Sub(due) > LateBy
	until := now
	if late {
		until = due.Add(LateBy)
	}
	if until.After(p.looked) {
		p.passed += until.Sub(p.looked)
	}
	p.looked = now
	before := p.over
	p.over = p.passed >= most
	return p.over && (before || !late)
}

// maxLate bounds what is allowed to a process that runs late.
const maxLate = time.Second

// Lateness is how late a process runs, by its looks: it is held to be so for four times
// as long. The zero Lateness is of a process that is in time.
type Lateness struct {
	late   time.Duration
	looked time.Time
}

// Looked notes a look that was taken at now and was to be taken at due.
func (l *Lateness) Looked(due, now time.Time) {
	l.late = min(max(now.Sub(due), l.late-now.Sub(l.looked)/4), maxLate)
	l.looked = now
}

// By is how late the process runs, a second at most.
func (l *Lateness) By() time.Duration { return l.late }

// Allowed is how much more time a member has to answer where this process runs late, or
// the member reports that it does.
func Allowed(own, said time.Duration) time.Duration {
	allowed := min(max(own, said), maxLate)
	if allowed < LateBy {
		return 0
	}
	return allowed
}

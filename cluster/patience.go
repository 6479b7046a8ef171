package cluster

import "time"

// lateBy is how much later than due something may be before this process counts as
// late itself.
const lateBy = 20 * time.Millisecond

// patience counts how long something has not happened, as far as this process was
// there to see. Lifeguard (arXiv 1707.00788) is the idea: who is late itself trusts
// its own accusations less. Of the time between two looks no more counts than was
// planned and lateBy, since for the rest this process may have stood still; and a
// look that comes late accuses nobody if the one before did not: what has happened
// meanwhile may lie in a socket whose reader has yet to run.
//
// It is a step function: looks and the time go in.
type patience struct {
	from   time.Time     // since when it counts
	looked time.Time     // up to when it has counted
	passed time.Duration // counted up to then
	over   bool          // the last look found it exhausted
}

// restart says that it happened, or began to be waited for, at a time.
func (p *patience) restart(at time.Time) { *p = patience{from: at, looked: at} }

// exhausted takes a look, which was to be taken at due, and reports whether more
// than most has passed.
func (p *patience) exhausted(most time.Duration, due, now time.Time) bool {
	late := now.Sub(due) > lateBy
	until := now
	if late {
		until = due.Add(lateBy)
	}
	if until.After(p.looked) {
		p.passed += until.Sub(p.looked)
	}
	p.looked = now
	before := p.over
	p.over = p.passed >= most
	return p.over && (before || !late)
}

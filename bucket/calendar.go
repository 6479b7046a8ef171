package bucket

// A FixedWindow with a Start counts in the windows of a calendar. The asking node names the
// window by its Start, and the count keeps the latest Start. So if the clock of a node is
// behind, the node still uses the later window, and no window begins twice:
//
//	stored start < Start    a new window begins at Start
//	stored start > Start    the stored window judges
//	now ≥ Start + Per       the window is over, and the next window begins at its end
//
// The last line uses the clock of the node that holds the count, because this clock also
// determines when a recovered count is forgotten. Calendar windows vary in length: days by an
// hour, and months by three days. So the last line can compute a start that is wrong by this
// difference. The next ask that names the right window corrects the start.

// isCalendar reports whether the windows of the limit have names.
func (l *Limit) isCalendar() bool { return l.Start != 0 && l.Algorithm == FixedWindow }

// windowStart returns the start of the window of an ask at the time now.
func (l *Limit) windowStart(now int64) int64 {
	per := l.per()
	return after(l.Start, timeSince(l.Start, now)/per*per)
}

func (l *Limit) advanceCalendar(c cell, now int64) (cell, uint64) {
	start := l.windowStart(now)
	if c.x == 0 {
		return cell{at: start}, 0
	}
	if c.at >= start {
		return c, c.x
	}
	// The units of windows before the previous window have recovered. Two successive starts
	// are less than one and a half Per apart, whichever of the two windows Per belongs to.
	if debt := l.excess(c); debt > 0 && timeSince(c.at, start)/3 < l.per()/2 {
		return cell{at: start, x: debt}, debt
	}
	return cell{at: start}, 0
}

// mergeWindow returns a copy of l. If both limits are calendars and the limit stored has the
// later Start, the copy has the Start and the Per of stored.
func (l *Limit) mergeWindow(stored *Limit) Limit {
	judge := *l
	if judge.isCalendar() && stored.isCalendar() && stored.Start > judge.Start {
		judge.Start, judge.Per = stored.Start, stored.Per
	}
	return judge
}

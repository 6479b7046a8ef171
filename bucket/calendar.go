package bucket

// A FixedWindow with a Start is the window of a calendar. The asking node names the window by
// its Start, and the count keeps the latest name. So if the clock of a node is behind, the
// node still uses the later window, and no window begins twice:
//
//	stored start < Start    a new window begins at Start
//	stored start > Start    the stored window judges
//	now ≥ Start + Per       the window is over, and the next window begins at its end
//
// The last line uses the clock of the node that holds the count, because a recovered count is
// forgotten by that clock. The length of the windows of a calendar varies, by an hour for
// days and by three days for months. Where the last line applies, the name of the next window
// is wrong by as much, until an ask names the right window.

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

// mergeWindow returns l. If both limits are calendars and stored has the later Start, the
// result has the Start and the Per of stored.
func (l *Limit) mergeWindow(stored *Limit) Limit {
	judge := *l
	if judge.isCalendar() && stored.isCalendar() && stored.Start > judge.Start {
		judge.Start, judge.Per = stored.Start, stored.Per
	}
	return judge
}

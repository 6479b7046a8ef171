package bucket

// A FixedWindow with a Start is a calendar's: the asking node names the window by its
// Start, and the count keeps the latest name. Of two clocks the one that is behind
// so finds the later window, and no window is begun twice:
//
//	stored start < Start    a new window begins at Start
//	stored start > Start    the stored window judges
//	now ≥ Start + Per       it is over, and the next one begins at its end
//
// The last line is by the clock of the node that holds the count, for a count that has
// recovered is forgotten by that clock. Calendars' windows differ in length, a day
// by an hour and a month by three days: where the last line applies, the next
// window's name is off by as much until an ask names the right one.

// calendar reports whether the limit's windows are named.
func (l *Limit) calendar() bool { return l.Start != 0 && l.Algorithm == FixedWindow }

// windowStart returns the start of the window that an ask at now is for.
func (l *Limit) windowStart(now int64) int64 {
	per := l.per()
	return after(l.Start, since(l.Start, now)/per*per)
}

func (l *Limit) advanceCalendar(c cell, now int64) (cell, uint64) {
	start := l.windowStart(now)
	if c.x == 0 {
		return cell{at: start}, 0
	}
	if c.at >= start {
		return c, c.x
	}
	// What is before the window before has recovered: two starts in a row are
	// less than one and a half Per apart, whichever of them Per is of.
	if debt := l.excess(c); debt > 0 && since(c.at, start)/3 < l.per()/2 {
		return cell{at: start, x: debt}, debt
	}
	return cell{at: start}, 0
}

// later is l with the name of the stored window, if that is the later one.
func (l *Limit) later(stored *Limit) Limit {
	judge := *l
	if judge.calendar() && stored.calendar() && stored.Start > judge.Start {
		judge.Start, judge.Per = stored.Start, stored.Per
	}
	return judge
}

package bucket

// convert changes a count of another limit into a count of l. The number of used units is
// the same before and after, so no unit is lost or counted twice. After that, l determines
// how the units recover. Used units are not scaled to the new Rate: a replica counts the units that each
// node has spent and refunded. If a replica was converted later, or a tally arrived later, scaled units
// would count twice or not at all.
//
// g must not be nil if either limit is a SlidingLog. If l is not a
// SlidingLog, convert leaves g empty.
//
// If Algorithm and Per are the same, the windows and the log stay as they are, because no
// cell depends on Rate. There are two exceptions: a level falls at the old rate until the conversion,
// and the debt that an ended FixedWindow has left is the excess above the old rate. If Per
// differs, a FixedWindow and a log that lie within the new Per keep their times, a level
// keeps its fraction, and the window of a calendar keeps its name. In all other cases the
// used units become usage of this instant, or of the current window of the calendar.
func (l *Limit) convert(from *Limit, c *cell, g *log, now int64) {
	oldPer, newPer := from.per(), l.per()
	sameKind := from.Algorithm == l.Algorithm || from.Algorithm.isBucket() && l.Algorithm.isBucket()
	named := l.isCalendar()
	if sameKind && oldPer == newPer && named == from.isCalendar() && (from.Rate == l.Rate || !l.recoversByRate()) {
		return
	}
	h := open(g)
	v, used := from.advance(*c, &h, now)
	now = max(now, v.at)
	switch {
	case used == 0:
		v = cell{}
		h.clear()
	case sameKind && l.Algorithm.isBucket():
		v.y = mulDivUp(v.y, newPer, 0, oldPer)
		if v.y >= newPer {
			v.x, v.y = add(v.x, 1), 0
		}
	case named && from.isCalendar():
	case named:
		v = cell{at: l.windowStart(now), x: used}
		h.clear()
	case sameKind && l.Algorithm == FixedWindow && timeSince(v.at, now) < newPer:
	case sameKind && l.Algorithm == SlidingLog && timeSince(int64(v.y), now) < newPer:
	default:
		v = cell{at: l.alignedStart(now)}
		h.clear()
		v = l.spend(v, &h, now, used)
	}
	*c = v
	save(g, &h)
}

// recoversByRate reports whether the used units of a cell at a later time depend on Rate.
func (l *Limit) recoversByRate() bool { return l.Algorithm.isBucket() || l.Algorithm == FixedWindow }

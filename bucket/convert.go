package bucket

// convert takes a count that was kept under from, and expresses what is used now
// under l, once: nothing resets, and nothing counts twice. What is used, in whole
// units, is the same before and after; what recovers afterwards does so
// by l. g must not be nil if either is a SlidingLog; l's other algorithms leave it
// empty.
//
// Under the same Algorithm and Per the windows and the log stay as they are, since
// no cell depends on Rate; but a level falls at the old rate until now, and what a
// FixedWindow that has ended left as a debt was above the old rate. Under another
// Per, a window that is still open and a log that lies within it keep their times,
// and a level its fraction; a calendar's window keeps its name. All else becomes
// usage of this instant, or of the window that the calendar has at this instant.
func (l *Limit) convert(from *Limit, c *cell, g *log, now int64) {
	oldPer, newPer := from.per(), l.per()
	sameKind := from.Algorithm == l.Algorithm || from.Algorithm.isBucket() && l.Algorithm.isBucket()
	named := l.calendar()
	if sameKind && oldPer == newPer && named == from.calendar() && (from.Rate == l.Rate || !l.recoversByRate()) {
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
	case named && from.calendar():
	case named:
		v = cell{at: l.windowStart(now), x: used}
		h.clear()
	case sameKind && l.Algorithm == FixedWindow && since(v.at, now) < newPer:
	case sameKind && l.Algorithm == SlidingLog && since(int64(v.y), now) < newPer:
	default:
		v = cell{at: l.opens(now)}
		h.clear()
		v = l.spend(v, &h, now, used)
	}
	*c = v
	save(g, &h)
}

// recoversByRate reports whether it depends on Rate what of a cell counts as time passes.
func (l *Limit) recoversByRate() bool { return l.Algorithm.isBucket() || l.Algorithm == FixedWindow }

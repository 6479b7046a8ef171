package bucket

import (
	"math"
	"time"
)

// Count is the count of an ID in transit between stores. All times are ages, so only the
// speed of the clocks matters. Only a calendar window is identified by a time, the Start of its
// Limit. The zero Count is empty.
//
// Export fills a Count, Append and Parse encode and decode it, and Import stores it. The time
// in transit does not count as elapsed: the imported count never has fewer used units than
// the exported count has at the time of the import.
type Count struct {
	Limit Limit // the limit that last judged the count, which may be a share; zero if there was no count

	// Total is the total of the count, if the stores are tracked. It is not part of the
	// encoding.
	Total Total

	partial bool
	changed bool
	age     uint64 // age of the field at of the cell
	ahead   uint64 // how far the newest entry of a log is ahead of now; if not 0, age is 0
	x, y    uint64 // fields of the cell; for a log, y is the time from the oldest to the newest entry
	entries []byte // entries in the format of a log; the time of the first entry is 0
}

// Partial reports whether c contains only the end of a SlidingLog: the entries after a Mark.
func (c *Count) Partial() bool { return c.partial }

// empty reports whether no units are used. For a Partial count, it reports whether there are
// no entries after the Mark.
func (c *Count) empty() bool { return c.x|c.y == 0 }

// Used returns the whole units of c that are used at the time now. For a SlidingLog it returns the
// units that were used at the time of the Export. If c is a piece of a log, only the units of
// the piece are included.
func (c *Count) Used(now int64) int64 {
	if c.empty() {
		return 0
	}
	if c.Limit.Algorithm == SlidingLog {
		return int64(c.x)
	}
	v := cell{at: before(now, c.age), x: c.x, y: c.y}
	if c.Limit.isCalendar() {
		v.at = c.Limit.Start // regardless of this clock
	}
	_, used := c.Limit.advance(v, nil, now)
	return int64(used)
}

// RecoversIn returns the time until no unit of c counts any more, 0 if c is empty. If c is a piece
// of a log, only the units of the piece are included.
func (c *Count) RecoversIn(now int64) time.Duration {
	if c.empty() {
		return 0
	}
	v := cell{at: after(before(now, c.age), c.ahead), x: c.x, y: c.y}
	if c.Limit.isCalendar() {
		v.at = c.Limit.Start // regardless of this clock
	}
	return timeUntil(v.at, c.Limit.span(v), now)
}

// Changed reports whether, at the time of the Export, the count had changed since it was
// collected, so that CollectOne would have returned its change.
func (c *Count) Changed() bool { return c.changed }

func (c *Count) clear() {
	*c = Count{entries: c.entries[:0]}
}

// Mark identifies the last entry of a SlidingLog that a receiver has, as long as the log only
// grows at its end. The zero Mark identifies no entry. A Mark is valid only for the store
// that returned it.
type Mark struct {
	edits uint64
	at    int64  // time of the newest entry that the receiver has
	units uint64 // units of that entry that the receiver has; more units can be added to the entry
}

// maxExport is the maximum number of bytes of a log in an Export.
const maxExport = 16 << 10

// Export reads the count of id into c for a receiver that has the entries up to the Mark
// received. It does not change the store. c is the whole count, or for a SlidingLog
// with a Mark, only the entries after the Mark, and then c is Partial. If the log has changed
// other than at its end since the Mark, for example by a refund or a conversion, c is the whole
// count.
//
// An Export returns at most 16 KiB of a log. If the result more is true, the log has further
// entries: call Export again with the returned Mark, and c is the next piece, which is Partial. The result
// exists is false if there is no count or the count has recovered. c is then empty.
func (s *Store) Export(id ID, now int64, received Mark, c *Count) (mark Mark, more, exists bool) {
	return s.export(id, now, received, c, maxExport)
}

// export is Export with pieces whose maximum length in bytes is the argument most,
// except that a piece has at least one entry.
func (s *Store) export(id ID, now int64, received Mark, c *Count, most int) (mark Mark, more, exists bool) {
	c.clear()
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Mark{}, false, false
	}
	l := sh.limitOf(&sh.slots[i])
	c.Limit, c.Total, c.changed = *l, sh.totalOf(i), sh.slots[i].limit&changed != 0
	g := open(sh.logOf(l, &sh.slots[i]))
	v, used := l.advance(sh.slots[i].cell, &g, now)
	if used == 0 {
		return Mark{}, false, false
	}
	if l.Algorithm == SlidingLog {
		mark, more = c.exportLog(v, &g, now, received, most)
		return mark, more, true
	}
	if l.isCalendar() {
		c.Limit.Start = v.at
	}
	c.age, c.x, c.y = timeSince(v.at, now), v.x, v.y
	return Mark{}, false, true
}

// exportLog reads the entries after a Mark from a log that is up to date.
func (c *Count) exportLog(v cell, g *log, now int64, received Mark, most int) (mark Mark, more bool) {
	t, off, sent := int64(v.y), g.head, uint64(0)
	if received.edits == g.edits {
		c.partial = true
		mark = received
		t, off, sent = g.findAfter(v, received)
	}
	mark.edits = g.edits
	for first := true; off < len(g.buf); first = false {
		delta, units, next := g.readNext(off)
		if !first && len(c.entries)+next-off > most {
			more = true
			break
		}
		if first {
			delta = 0
		}
		t += int64(delta)
		mark.at, mark.units = t, units
		units = sub(units, sent)
		sent = 0
		c.entries = appendEntry(c.entries, delta, units)
		c.x += units
		c.y += delta
		off = next
	}
	if c.x > 0 {
		c.age, c.ahead = timeSince(mark.at, now), timeSince(now, mark.at)
	}
	return mark, more
}

// Import stores c as the count of id, or appends it to the count if c is Partial. Then Import
// spends as many further units as the argument extra, or refunds the newest units if extra is
// negative. If c replaces a count, Import also spends the uncollected units of the replaced count
// that have not recovered, or refunds them if they are negative. All uncollected units remain
// uncollected. Import records no change.
//
// Import stores all used units of c, even if they exceed what its Limit allows: that Limit may
// be a share of the limit by which they were spent. The further units are spent as in Debit, but
// the larger limit, of c or of the stored count, determines how many units are dropped. If no units
// are used then and the stored count has no uncollected units, the count is removed. If the stored
// count has not recovered and its limit has a higher Version than the limit of c, the stored
// limit continues to judge, and c is converted to it once.
//
// c.Total becomes the total of the count, even if c is Partial, in the same way as in
// SetTotal.
func (s *Store) Import(id ID, c *Count, now, extra int64) {
	sh, i := s.lockSlot(id)
	inserted := false
	switch {
	case i >= 0 && c.partial && sh.recoveryTime(&sh.slots[i]) > now:
		sh.appendLog(i, c, now, extra)
	case i >= 0:
		s.replace(sh, i, c, now, extra)
	default:
		judge := c.Limit
		if n, used := sh.convertImport(id, c, &judge, now, extra, judge.maxUsage()); used > 0 {
			s.insert(sh, n, &judge, sh.changes.nextTotal(Total{}, c.Total), now)
			inserted = true
		} else {
			sh.release(&judge, &n)
		}
	}
	sh.mu.Unlock()
	if inserted {
		s.trim(id, now)
	}
}

// Renew imports a newer replica of a count, and reports whether it did. The count is imported
// if there is no count of id, or if the stored count has not changed since it was collected,
// and its total has no origin or is an earlier total of the origin of c.Total.
func (s *Store) Renew(id ID, c *Count, now int64) bool {
	sh, i := s.lockSlot(id)
	if i < 0 {
		sh.mu.Unlock()
		s.Import(id, c, now, 0)
		return true
	}
	defer sh.mu.Unlock()
	t := sh.totalOf(i)
	later := t.Origin == 0 || t.Origin == c.Total.Origin &&
		(c.Total.Series > t.Series || c.Total.Series == t.Series && c.Total.Spent > t.Spent)
	if sh.slots[i].limit&changed != 0 || !later {
		return false
	}
	s.replace(sh, i, c, now, 0)
	return true
}

// convertImport converts c into a count that is not in the table yet. The argument judge is the limit
// that judges the new count. The result is the new count, and the used units including the units on
// top.
func (sh *shard) convertImport(id ID, c *Count, judge *Limit, now, onTop int64, most uint64) (n slot, used uint64) {
	n = slot{id: id, cell: cell{at: after(before(now, c.age), c.ahead), x: c.x, y: c.y}}
	from, logs := c.Limit.Algorithm == SlidingLog, judge.Algorithm == SlidingLog
	var g *log
	if from || logs {
		n.log = sh.logs.alloc()
		g = &sh.logs.logs[n.log]
	}
	if c.Limit.isCalendar() {
		n.cell.at = c.Limit.Start
	}
	if from {
		g.buf = append(g.buf, c.entries...)
		n.cell.y = uint64(before(n.cell.at, c.y))
	}
	if *judge != c.Limit {
		judge.convert(&c.Limit, &n.cell, g, now)
	}
	if from && !logs {
		sh.logs.free(n.log)
		n.log, g = 0, nil
	}
	return n, judge.spendOnTop(&n.cell, g, now, onTop, most)
}

// replace replaces the count in slot i with c.
func (s *Store) replace(sh *shard, i int, c *Count, now, extra int64) {
	old := &sh.slots[i]
	stored := *sh.limitOf(old)
	net := sh.uncollected(&stored, old)
	judge := c.Limit
	if stored.Version > judge.Version && sh.recoveryTime(old) > now || judge == (Limit{}) {
		judge = stored
	}
	most := max(judge.maxUsage(), c.Limit.maxUsage(), stored.maxUsage())
	h := open(sh.logOf(&stored, old))
	_, before := stored.advance(old.cell, &h, now)
	again := min(net, int64(before)) // recovered units must not be spent again
	n, used := sh.convertImport(old.id, c, &judge, now, addNet(extra, again), most)
	flags := old.flags() &^ parted
	if used == 0 && net == 0 {
		id := old.id
		sh.release(&judge, &n)
		sh.remove(i, &s.placement)
		s.total.Add(-1)
		if flags != 0 {
			sh.touch(id)
		}
		return
	}
	sh.release(&stored, old)
	whose := sh.changes.nextTotal(sh.totalOf(i), c.Total)
	sh.judgeBy(old, sh.intern(&judge, whose.seriesKey()), flags)
	n.limit = old.limit
	sh.slots[i] = n
	if sh.changes != nil {
		sh.changes.spent[i] = whose.Spent
	}
	sh.setUncollected(&judge, &sh.slots[i], net)
}

// appendLog adds the entries of a partial log to the count in slot i, one by one.
func (sh *shard) appendLog(i int, c *Count, now, extra int64) {
	s := &sh.slots[i]
	flags := s.flags() &^ parted
	most := max(c.Limit.maxUsage(), sh.limitOf(s).maxUsage())
	l := sh.reconcile(s, &c.Limit, now)
	s.limit = s.entryIndex() | flags // do not record a change, although reconcile did
	g := sh.logOf(l, s)
	v, _ := l.advance(s.cell, g, now)
	if g == nil {
		v = l.spend(v, nil, now, c.x)
	}
	t := before(after(before(now, c.age), c.ahead), c.y)
	for off := 0; g != nil && off < len(c.entries); {
		delta, units, next := (&log{buf: c.entries}).readNext(off)
		t = after(t, delta)
		v = g.spend(v, t, units)
		off = next
	}
	s.cell = v
	l.spendOnTop(&s.cell, g, now, extra, most)
	sh.setTotal(i, c.Total)
}

// spendOnTop spends units, or refunds them if units is negative. It returns the number of used
// units.
func (l *Limit) spendOnTop(c *cell, g *log, now, units int64, most uint64) (used uint64) {
	if units < 0 {
		l.refund(c, g, now, -max(units, -math.MaxInt64), 0, false, Lease{})
		units = 0
	}
	h := open(g)
	v, used := l.advance(*c, &h, now)
	v, n := l.spendUpTo(most, v, &h, now, nonNegative(units), used)
	if n > 0 {
		*c = v
		save(g, &h)
	}
	return max(used, min(used+n, most))
}

// SpendElsewhere records units that were spent on another node, in the same way as Debit without
// MaxOfCopies. Negative units were refunded on another node, and are recorded in the same way as
// in Refund without a receipt. The count changes, but the change has no units.
func (s *Store) SpendElsewhere(id ID, l *Limit, now, units int64) {
	if units > 0 {
		s.debit(id, l, now, units, false)
	} else if units < 0 {
		s.refund(id, l, now, -max(units, -math.MaxInt64), 0, false, Lease{}, false)
	}
}

// Used returns the whole units of id that are used at the time now, and the limit that last judged
// them. ok is false if there is no count or the count has recovered.
func (s *Store) Used(id ID, now int64) (used int64, l Limit, ok bool) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return 0, Limit{}, false
	}
	l = *sh.limitOf(&sh.slots[i])
	g := open(sh.logOf(&l, &sh.slots[i]))
	_, u := l.advance(sh.slots[i].cell, &g, now)
	if u == 0 {
		return 0, Limit{}, false
	}
	return int64(u), l, true
}

// RecoversIn returns the time until no unit of id counts any more, or 0 if no unit counts at the time now. The
// limit that last judged the count determines this time, and not the numbers of the next ask.
func (s *Store) RecoversIn(id ID, now int64) (d time.Duration) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		c := &sh.slots[i].cell
		if span := sh.limitOf(&sh.slots[i]).span(*c); span > 0 {
			d = timeUntil(c.at, span, now)
		}
	}
	sh.mu.Unlock()
	return d
}

// Judge returns the limit that last judged the count of id, and whether the store has a
// count. A recovered count is in the store until its place is reused.
func (s *Store) Judge(id ID) (l Limit, exists bool) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Limit{}, false
	}
	return *sh.limitOf(&sh.slots[i]), true
}

// Scan appends the IDs in a piece of the store to ids, and returns the cursor of the next
// piece. The first cursor is 0, and the scan ends when the returned cursor is 0. A piece is a snapshot of a
// shard that is not empty. A large store has 1,024 shards. IDs of recovered counts may be
// included. IDs that are inserted during the scan may be missing; with Track, they are
// recorded as changes, unless Import has inserted them.
func (s *Store) Scan(cursor uint64, ids []ID) (next uint64, _ []ID) {
	shards := uint64(len(s.shards))
	for n := len(ids); cursor < shards && len(ids) == n; cursor++ {
		sh := &s.shards[cursor]
		sh.mu.Lock()
		for i := range sh.slots {
			if sh.slots[i].limit != 0 {
				ids = append(ids, sh.slots[i].id)
			}
		}
		sh.mu.Unlock()
	}
	if cursor >= shards {
		return 0, ids
	}
	return cursor, ids
}

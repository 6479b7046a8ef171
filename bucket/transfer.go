package bucket

import "math"

// Count is what is held of one id as it travels between stores, with ages in the
// place of times, so that only the clocks' pace matters; a calendar's window keeps
// the name that its Limit has. The zero Count is empty.
//
// Export fills it, Append and Parse carry it, and Import makes it a count again.
// The time on its way passes for no time: what is imported has never less used
// than what was exported has by then.
type Count struct {
	Limit Limit // that last judged it, which may be a share; zero if there was no count

	// Whose is its total, where the stores that it travels between track. It is not
	// part of the encoding.
	Whose Total

	partial bool
	changed bool
	age     uint64 // of the cell's time
	ahead   uint64 // of a log whose newest entry is ahead of now, by how much; age is 0 then
	x, y    uint64 // as in a cell; of a log, y is how long before the newest entry the oldest one was
	entries []byte // of a log, as in a log; the first one's own time is 0
}

// Partial reports whether c is the end of a SlidingLog alone, what came after a Mark.
func (c *Count) Partial() bool { return c.partial }

// Empty reports whether nothing is used; of a Partial one, whether nothing came after.
func (c *Count) empty() bool { return c.x|c.y == 0 }

// Used is the whole units of c that are used now. A SlidingLog's are those
// that were used when it was exported: of c alone, if it is a piece.
func (c *Count) Used(now int64) int64 {
	if c.empty() {
		return 0
	}
	if c.Limit.Algorithm == SlidingLog {
		return int64(c.x)
	}
	v := cell{at: before(now, c.age), x: c.x, y: c.y}
	if c.Limit.calendar() {
		v.at = c.Limit.Start // whatever this clock says
	}
	_, used := c.Limit.advance(v, nil, now)
	return int64(used)
}

// Changed reports whether c is of a count that has changed since it was collected, so
// that CollectOne has something to say of it.
func (c *Count) Changed() bool { return c.changed }

func (c *Count) clear() {
	*c = Count{entries: c.entries[:0]}
}

// Mark says up to which entry a receiver has a SlidingLog, as long as that log
// only grows at its end. The zero Mark is nothing. It means something only to the
// store that gave it.
type Mark struct {
	edits uint64
	at    int64  // the time of the newest entry that it has
	units uint64 // of that entry, to which more can come
}

// maxExport is the most bytes of a log in one Export.
const maxExport = 16 << 10

// Export reads the count of id for a receiver that has it up to after, and
// changes nothing. c is the whole count; of a SlidingLog with a Mark, it is what
// came after, and Partial. If that log has changed other than at its end since
// then (by a refund or a conversion, or as it was begun again), c is whole again.
//
// Of a log, one Export has 16 KiB at most; more reports whether there is more: Export
// again with the Mark that was returned, and the next piece is Partial. held is
// false if there is no count, or it has recovered; c is then empty.
func (s *Store) Export(id ID, now int64, after Mark, c *Count) (mark Mark, more, held bool) {
	return s.export(id, now, after, c, maxExport)
}

// export is Export of pieces of at most this many bytes, but of one entry at least.
func (s *Store) export(id ID, now int64, after Mark, c *Count, most int) (mark Mark, more, held bool) {
	c.clear()
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Mark{}, false, false
	}
	l := sh.limitOf(&sh.slots[i])
	c.Limit, c.Whose, c.changed = *l, sh.totalOf(i), sh.slots[i].limit&changed != 0
	g := open(sh.logOf(l, &sh.slots[i]))
	v, used := l.advance(sh.slots[i].cell, &g, now)
	if used == 0 {
		return Mark{}, false, false
	}
	if l.Algorithm == SlidingLog {
		mark, more = c.exportLog(v, &g, now, after, most)
		return mark, more, true
	}
	if l.calendar() {
		c.Limit.Start = v.at
	}
	c.age, c.x, c.y = since(v.at, now), v.x, v.y
	return Mark{}, false, true
}

// exportLog reads what came after a mark of a log that is up to date.
func (c *Count) exportLog(v cell, g *log, now int64, after Mark, most int) (mark Mark, more bool) {
	t, off, sent := int64(v.y), g.head, uint64(0)
	if after.edits == g.edits {
		c.partial = true
		mark = after
		t, off, sent = g.after(v, after)
	}
	mark.edits = g.edits
	for first := true; off < len(g.buf); first = false {
		delta, units, next := g.next(off)
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
		c.age, c.ahead = since(mark.at, now), since(now, mark.at)
	}
	return mark, more
}

// Import makes c the count of id, or appends it if it is Partial, and spends on
// top of it: extra units (below zero: refunds the newest usage), and where c
// replaces a count, what that has spent here that nobody has collected yet and
// that has not recovered. That stays to be collected; nothing is noted as changed.
//
// What c says is used is taken as it is, since its Limit may be a share of what
// it was spent of; units on top are counted as Debit does, by the
// larger one of c's and the stored limit. An empty count with
// nothing on top forgets the id. If the limit stored here has a higher Version
// than c's, it goes on judging, and c is converted to it once.
//
// c.Whose becomes the count's total, also of a Partial one, as SetWhose would have it.
func (s *Store) Import(id ID, c *Count, now, extra int64) {
	sh, i := s.lockSlot(id)
	inserted := false
	switch {
	case i >= 0 && c.partial && sh.recovers(&sh.slots[i]) > now:
		sh.appends(i, c, now, extra)
	case i >= 0:
		s.replace(sh, i, c, now, extra)
	default:
		judge := c.Limit
		if n, used := sh.imported(id, c, &judge, now, extra, judge.most()); used > 0 {
			s.insert(sh, n, &judge, sh.changes.succeed(Total{}, c.Whose), now)
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

// Renew is Import of a later copy: it does so, and reports that it did, if there is no
// count of id, or one that has not changed since it was collected, whose total is nobody's
// or an earlier one of c.Whose's origin.
func (s *Store) Renew(id ID, c *Count, now int64) bool {
	sh, i := s.lockSlot(id)
	if i < 0 {
		sh.mu.Unlock()
		s.Import(id, c, now, 0)
		return true
	}
	defer sh.mu.Unlock()
	t := sh.totalOf(i)
	later := t.Origin == 0 || t.Origin == c.Whose.Origin &&
		(c.Whose.Series > t.Series || c.Whose.Series == t.Series && c.Whose.Spent > t.Spent)
	if sh.slots[i].limit&changed != 0 || !later {
		return false
	}
	s.replace(sh, i, c, now, 0)
	return true
}

// imported makes a count that is not in the table yet of c, which judge judges,
// and says what is used of it with the units on top.
func (sh *shard) imported(id ID, c *Count, judge *Limit, now, onTop int64, most uint64) (n slot, used uint64) {
	n = slot{id: id, cell: cell{at: after(before(now, c.age), c.ahead), x: c.x, y: c.y}}
	from, logs := c.Limit.Algorithm == SlidingLog, judge.Algorithm == SlidingLog
	var g *log
	if from || logs {
		n.log = sh.logs.alloc()
		g = &sh.logs.logs[n.log]
	}
	if c.Limit.calendar() {
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
	return n, judge.onTop(&n.cell, g, now, onTop, most)
}

// replace puts c in the place of the count in slot i.
func (s *Store) replace(sh *shard, i int, c *Count, now, extra int64) {
	old := &sh.slots[i]
	stored := *sh.limitOf(old)
	net := sh.uncollected(&stored, old)
	judge := c.Limit
	if stored.Version > judge.Version && sh.recovers(old) > now || judge == (Limit{}) {
		judge = stored
	}
	most := max(judge.most(), c.Limit.most(), stored.most())
	h := open(sh.logOf(&stored, old))
	_, before := stored.advance(old.cell, &h, now)
	again := min(net, int64(before)) // what has recovered is not spent again
	n, used := sh.imported(old.id, c, &judge, now, addNet(extra, again), most)
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
	whose := sh.changes.succeed(sh.totalOf(i), c.Whose)
	sh.judgeBy(old, sh.intern(&judge, whose.by()), flags)
	n.limit = old.limit
	sh.slots[i] = n
	if sh.changes != nil {
		sh.changes.spent[i] = whose.Spent
	}
	sh.setUncollected(&judge, &sh.slots[i], net)
}

// appends adds the end of a log to the count in slot i, entry by entry.
func (sh *shard) appends(i int, c *Count, now, extra int64) {
	s := &sh.slots[i]
	flags := s.flags() &^ parted
	most := max(c.Limit.most(), sh.limitOf(s).most())
	l := sh.reconcile(s, &c.Limit, now)
	s.limit = s.judge() | flags // which notes no change, though reconcile did
	g := sh.logOf(l, s)
	v, _ := l.advance(s.cell, g, now)
	if g == nil {
		v = l.spend(v, nil, now, c.x)
	}
	t := before(after(before(now, c.age), c.ahead), c.y)
	for off := 0; g != nil && off < len(c.entries); {
		delta, units, next := (&log{buf: c.entries}).next(off)
		t = after(t, delta)
		v = g.spend(v, t, units)
		off = next
	}
	s.cell = v
	l.onTop(&s.cell, g, now, extra, most)
	sh.setTotal(i, c.Whose)
}

// onTop spends units, or refunds them below zero, and says what is used then.
func (l *Limit) onTop(c *cell, g *log, now, units int64, most uint64) (used uint64) {
	if units < 0 {
		l.refund(c, g, now, -max(units, -math.MaxInt64), 0, false, Lease{})
		units = 0
	}
	h := open(g)
	v, used := l.advance(*c, &h, now)
	v, n := l.spendUpTo(most, v, &h, now, whole(units), used)
	if n > 0 {
		*c = v
		save(g, &h)
	}
	return max(used, min(used+n, most))
}

// SpendElsewhere counts units that were spent on another node, as Debit does, or
// below zero that were refunded there, as Refund does without a receipt. That is
// a change, but of no units of this store.
func (s *Store) SpendElsewhere(id ID, l *Limit, now, units int64) {
	if units > 0 {
		s.debit(id, l, now, units, false)
	} else if units < 0 {
		s.refund(id, l, now, -max(units, -math.MaxInt64), 0, false, Lease{}, false)
	}
}

// Used is the whole units of id that are used now, and the limit that last
// judged them; ok is false if no count is held, or it has recovered.
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

// Judge is the limit that last judged id's count, and whether one is held: one that has
// recovered is held until its place is used.
func (s *Store) Judge(id ID) (l Limit, held bool) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Limit{}, false
	}
	return *sh.limitOf(&sh.slots[i]), true
}

// Scan appends the ids of one piece of the store to ids, and returns where the
// next one begins: it starts at cursor 0, and is over when next is 0. A piece is
// one shard that holds something, seen as it is at one time: of 1,024 that a large
// store has. Ids that have recovered can be among them. Those that are inserted
// meanwhile can be missing; with Track they are noted as changes.
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

package bucket

import (
	"math/bits"
	"time"
)

// Part is so many of the limit's units, which recover at the same part of its rate,
// from 0 to its Capacity. A bucket's Rate is that of a multiple of Per, where it
// takes one to be exact within a thousandth; it is never above the part.
func (l *Limit) Part(units int64) Limit {
	p := *l
	p.Whole, p.wholeRate, p.wholePer = l.Capacity(), l.Rate, l.Per
	if !l.Algorithm.isBucket() {
		p.Rate = units
		return p
	}
	if units == 0 {
		p.Burst = -1
		return p
	}
	p.Burst = units
	if p.Rate == p.Whole {
		p.Rate = units
		return p
	}
	const precise = 1000
	hi, lo := bits.Mul64(uint64(p.Rate), uint64(units))
	times := uint64(1)
	if hi == 0 && lo/uint64(p.Whole) < precise && lo%uint64(p.Whole) != 0 {
		times = max(1, min(precise*uint64(p.Whole)/lo+1, uint64(maxPer/p.Per)))
		lo *= times
	}
	rate, _ := bits.Div64(hi, lo, uint64(p.Whole))
	if p.Rate, p.Per = int64(rate), p.Per*time.Duration(times); p.Validate() != nil {
		p.Burst = -1 // what is spent would not recover in any time that counts
	}
	return p
}

// partOf reports whether Part made l of whole.
func (l *Limit) partOf(whole *Limit) bool {
	return l.wholeRate == whole.Rate && l.wholePer == whole.Per && l.Whole == whole.Capacity() &&
		l.Algorithm == whole.Algorithm && l.Version == whole.Version && l.Start == whole.Start
}

// partOf is the part of whole that SetPart has set for the count in slot i, nil if it
// has not, or i is below zero.
func (sh *shard) partOf(i int, whole *Limit) *Limit {
	if i < 0 || sh.slots[i].limit&parted == 0 {
		return nil
	}
	if l := sh.limitOf(&sh.slots[i]); l.partOf(whole) {
		return l
	}
	return nil
}

// SetPart lets the part judge a count, of the whole that it is a Part
// of: from then on TakePart needs no part as an argument. That ends with
// ClearPart, and whenever another limit judges the count, or another node's count
// takes its place. Without a count of id it does nothing.
func (s *Store) SetPart(id ID, part *Limit) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return
	}
	c := &sh.slots[i]
	if stored := &sh.numbers.at[c.judge()]; !stored.is(part) {
		return
	} else if stored.Limit != *part {
		judge := sh.intern(part, stored.by)
		sh.judgeBy(c, judge, c.flags())
	}
	c.limit |= parted
}

// ClearPart takes back what SetPart said. TakePart has taken before it returns, or
// does not take any more.
func (s *Store) ClearPart(id ID) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		sh.slots[i].limit &^= parted
	}
	sh.mu.Unlock()
}

// TakePart is TakeInto by the part of whole that SetPart has set. It does nothing and
// returns false if none is set, or one of another whole.
func (s *Store) TakePart(id ID, whole *Limit, now, units int64, r *Result) bool {
	sh, i := s.lockSlot(id)
	l := sh.partOf(i, whole)
	if l == nil {
		sh.mu.Unlock()
		return false
	}
	c := &sh.slots[i]
	l.takeInto(&c.cell, sh.logOf(l, c), now, units, r)
	if r.Allowed && units > 0 {
		s.note(sh, c, l, units)
	}
	sh.mu.Unlock()
	return true
}

package bucket

import (
	"math/bits"
	"time"
)

// Scale returns a share of l whose capacity is the argument units, from 0 to the Capacity of l.
// The units recover at the same part of the rate of l. For a bucket, Scale multiplies Per, up to
// the largest valid Per, if the Rate needs this for a precision of a thousandth. The rate is never
// higher than the exact part. If the units of a bucket would take too long to recover, the
// capacity of the share is 0. The share has no Keep.
func (l *Limit) Scale(units int64) Limit {
	p := *l
	p.Keep = 0
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
		p.Burst = -1 // the units would take too long to recover
	}
	return p
}

// isPartOf reports whether Scale computed l from a limit with the numbers of whole.
func (l *Limit) isPartOf(whole *Limit) bool {
	return l.wholeRate == whole.Rate && l.wholePer == whole.Per && l.Whole == whole.Capacity() &&
		l.Algorithm == whole.Algorithm && l.Version == whole.Version && l.Start == whole.Start
}

// findPart returns the limit that SetPart has set for the count in slot i, if Scale has computed it
// from whole. Otherwise, or if i is negative, findPart returns nil.
func (sh *shard) findPart(i int, whole *Limit) *Limit {
	if i < 0 || sh.slots[i].limit&parted == 0 {
		return nil
	}
	if l := sh.limitOf(&sh.slots[i]); l.isPartOf(whole) {
		return l
	}
	return nil
}

// SetPart makes the limit part, which Scale has computed from a whole limit, judge a count.
// Afterwards TakePart and TakeAllParts need only the whole limit, and the part judges their asks of
// this count. This ends with ClearPart, when another limit judges the count, or when a count of
// another node is imported. SetPart does nothing if there is no count of id, or if the limit that
// judges the count has other numbers than the part.
func (s *Store) SetPart(id ID, part *Limit) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return
	}
	c := &sh.slots[i]
	if stored := &sh.numbers.at[c.entryIndex()]; !stored.equals(part) {
		return
	} else if stored.Limit != *part {
		judge := sh.intern(part, stored.series)
		sh.judgeBy(c, judge, c.flags())
	}
	c.limit |= parted
}

// ClearPart ends the effect of SetPart. A concurrent TakePart has either taken before
// ClearPart returns, or does not take.
func (s *Store) ClearPart(id ID) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		sh.slots[i].limit &^= parted
	}
	sh.mu.Unlock()
}

// TakePart is like TakeInto with the limit that SetPart has set for id. It returns false and does
// nothing if there is no count of id, if no limit is set, or if Scale has computed the set limit from
// a limit other than whole.
func (s *Store) TakePart(id ID, whole *Limit, now, units int64, r *Result) bool {
	sh, i := s.lockSlot(id)
	l := sh.findPart(i, whole)
	if l == nil {
		sh.mu.Unlock()
		return false
	}
	c := &sh.slots[i]
	if whole.Keep > 0 {
		kept := l.Keeping(whole)
		l = &kept
	}
	l.takeInto(&c.cell, sh.logOf(l, c), now, units, r)
	if r.Allowed && units > 0 {
		s.note(sh, c, l, units)
	}
	sh.mu.Unlock()
	return true
}

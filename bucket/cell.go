package bucket

import "time"

// cell is one id's count, of fixed size and without pointers. The zero cell has
// nothing used, and so has every cell with x and y zero, or for a log with x
// zero: it equals no count whatever its time is. No field depends on Rate or
// Burst, so a limit whose Rate changes judges the same units by other numbers.
//
//	               at                     x               y
//	FixedWindow    the window's start     units in it
//	SlidingWindow  the window's start     units in it     units in the one before
//	SlidingLog     the newest entry       units           the oldest entry's time
//	the buckets    when it held x and y   whole units     and this many 1/Per units, below Per
type cell struct {
	at   int64
	x, y uint64
}

// Result is the answer to one operation on a count.
//
// ResetAfter is how long until the whole limit is there for a caller that asks steadily, at
// its rate, if nothing more is asked until then. Of a FixedWindow that is its window's
// end (the following one's, if a debt is left); of a SlidingWindow, too, or, if nothing
// was admitted in the window that is open, when all of the one before has slid out; of
// a SlidingLog, when the newest entry has expired; of the buckets, when the level is
// none. But where a window or log has nothing left, it is no later than when a unit is
// there again. On a denial it is never below RetryAfter.
type Result struct {
	Allowed    bool
	Limit      int64         // what the limit grants: Rate, or Burst for the buckets
	Remaining  int64         // whole units left now, never below zero
	RetryAfter time.Duration // zero if allowed; else the soonest that the same ask could be admitted
	ResetAfter time.Duration // zero if nothing is used; else until the whole limit is there again, see below
	Receipt    Receipt       // of a Take that was allowed, or a Debit: what Refund wants
}

// Receipt names the time that a take was counted at, so that a refund reaches
// the window it was taken from. It means something only to the store that gave it. 0 names
// nothing.
type Receipt int64

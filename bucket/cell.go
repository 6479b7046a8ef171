package bucket

import "time"

// cell is one id's count, of fixed size and without pointers. What its fields
// hold depends on the algorithm; the zero cell has nothing used. A SlidingLog
// keeps its entries in a log beside it.
type cell struct {
	at   int64
	x, y uint64
}

// log is the entries of a SlidingLog.
type log struct{}

// Result is the answer to one operation on a count.
type Result struct {
	Allowed    bool
	Limit      int64         // what the limit grants: Rate, or Burst for the buckets
	Remaining  int64         // whole units left now, never below zero
	RetryAfter time.Duration // zero if allowed; else the soonest that the same ask could be admitted
	ResetAfter time.Duration // until the count is empty if nothing more is asked
	Receipt    Receipt       // of a Take that was allowed: what Refund wants
}

// Receipt names the time that a take was counted at, so that a refund reaches
// the window it was taken from. It means something only to the store that gave it.
type Receipt int64

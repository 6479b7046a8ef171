package bucket

import "time"

// cell is the count of an ID, with a fixed size and without pointers. If x and y are zero, or
// if only x is zero and the cell belongs to a log, no units are used. Such a cell is equivalent
// to no count, whatever its time is. No field depends on Rate or Burst: if the Rate of a limit
// changes, the new Rate judges the same units.
//
//	               at                     x               y
//	FixedWindow    start of the window    units in it     unused
//	SlidingWindow  start of the window    units in it     units in the previous window
//	SlidingLog     time of newest entry   units           time of oldest entry
//	the buckets    time of x and y        whole units     additional 1/Per units, below Per
type cell struct {
	at   int64
	x, y uint64
}

// Result is the result of an operation on a count.
//
// ResetAfter is the time until Limit units are available at once, if no other units are spent
// until then: the time until the count is empty. It depends on the algorithm:
//
//   - FixedWindow: the end of the window, or of the following window if there is a debt.
//   - SlidingWindow: the time at which the last unit of the open window has slid out of the
//     following window. If no units were admitted in the open window, the time at which the last
//     unit of the previous window has slid out.
//   - SlidingLog: the time at which the newest entry expires.
//   - The buckets: the time at which the level is zero.
//
// For a denial, ResetAfter is never below RetryAfter.
type Result struct {
	Allowed    bool
	Limit      int64         // usable units of the limit: Rate, or Burst for the buckets, less the Keep of the ask
	Remaining  int64         // number of remaining whole units, less the Keep of the ask; at least zero
	RetryAfter time.Duration // zero if allowed; else the time until the same ask could be admitted, or, after a Debit, an ask of one unit
	ResetAfter time.Duration // time until Limit units are available, as described above
	Receipt    Receipt       // identifies the units for Refund, after a Take that was allowed or a Debit
}

// Receipt identifies the units of a take, so that a refund reaches the window that the units
// were taken from. A Receipt is the start of that window, the time of the entry of a log, or the
// time at which the level of a bucket would have drained. A Receipt is valid only for the store
// that returned the Receipt; for other stores see Spent. 0 means no receipt.
type Receipt int64

package bucket

import "time"

// TimerLimit returns the Limit of timers that run for at most longest. The level of a timer is the time that
// is left, in the given unit. Debit makes the timer run for at least as many units from now on, and does not
// shorten it. A capacity of a single unit makes every change urgent, and makes evictions treat a timer as
// used up. The Whole has room for the longest timer. A merge of FixedWindows would add the times of two timers,
// or keep the earlier end.
func TimerLimit(longest, unit time.Duration) Limit {
	return Limit{Algorithm: TokenBucket, Rate: 1, Per: unit, Burst: 1, Whole: int64(longest / unit), Durable: true, MaxOfCopies: true}
}

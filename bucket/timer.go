package bucket

import "time"

// TimerLimit returns the Limit of timers that run for at most the argument longest. The level of a timer is
// the time that is left, in the given unit. Debit makes a timer run for at least the debited units from now
// on, and does not shorten it. The capacity is a single unit, so Track signals hurry for a debit of any
// size, and evictions treat a running timer as used up. The Whole has room for the longest timer. The
// algorithm is TokenBucket, because a merge of FixedWindows would add the times of two timers, or keep the
// earlier end.
func TimerLimit(longest, unit time.Duration) Limit {
	return Limit{Algorithm: TokenBucket, Rate: 1, Per: unit, Burst: 1, Whole: int64(longest / unit), Durable: true, MaxOfCopies: true}
}

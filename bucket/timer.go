package bucket

import "time"

// LongestTimer is the longest time for which a timer runs.
const LongestTimer = 24 * time.Hour

// timer is the Limit of all timers. Its level is the time that is left, in milliseconds. A capacity
// of a single unit makes every change urgent, and makes evictions treat a timer as used up. The Whole
// has room for the longest timer.
var timer = Limit{Algorithm: TokenBucket, Rate: 1000, Per: time.Second, Burst: 1, Whole: int64(LongestTimer / time.Millisecond), Durable: true}

// IsTimer reports whether l judges a timer: a count that recovers when the timer ends. Of two copies
// of a timer, the one that ends later is right, because its units are a time and not usage. A merge of
// FixedWindows could add the times, or keep the earlier end.
func (l *Limit) IsTimer() bool { return *l == timer }

// ExtendTimer makes the timer of id run for at least d from now on, rounded up to milliseconds, and for
// at most LongestTimer. It does not shorten a timer. Two calls for the same id must not run at the
// same time: both could add their units.
func (s *Store) ExtendTimer(id ID, now int64, d time.Duration) {
	more := min(d, LongestTimer) - s.RecoversIn(id, now)
	if more > 0 {
		s.Debit(id, &timer, now, int64((more+time.Millisecond-1)/time.Millisecond))
	}
}

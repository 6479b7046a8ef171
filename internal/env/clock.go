// Package env is what the parts of a node share: its clocks, the lifetime of its
// goroutines, and the way in which members ask each other. It knows nothing of counts,
// views or limits, and keeps no state that a check changes.
package env

import (
	"time"

	countsync "github.com/weir-go/weir/sync"
)

// Clock is the two clocks of a node, in nanoseconds. Counts go by Now, which may be a
// caller's and may step; views, leases and everything that waits go by Monotonic, which
// never does. Where both are the same one, a check reads it once: what follows takes the
// time that was read, by TimeAt and MonotonicAt.
type Clock struct {
	now    func() int64
	steady func() int64
	steps  bool // now is a caller's
}

// NewClock returns the clocks of a node. Now is by now, or if that is nil by the steady
// clock, which starts at the time of day and costs half of time.Now.
func NewClock(now func() time.Time) Clock {
	start := time.Now()
	epoch := start.UnixNano()
	c := OneClock(func() int64 { return epoch + int64(time.Since(start)) })
	if now != nil {
		c.now, c.steps = func() int64 { return now().UnixNano() }, true
	}
	return c
}

// OneClock returns a Clock that goes by read alone, which never steps.
func OneClock(read func() int64) Clock { return Clock{now: read, steady: read} }

// Now returns the time that counts go by.
func (c *Clock) Now() int64 { return c.now() }

// Monotonic returns the time by the clock that never steps.
func (c *Clock) Monotonic() int64 { return c.steady() }

// MonotonicAt returns the time by the monotonic clock, where a check has read now.
func (c *Clock) MonotonicAt(now int64) int64 {
	if c.steps {
		return c.steady()
	}
	return now
}

// TimeAt returns both times, where a check has read now.
func (c *Clock) TimeAt(now int64) countsync.Time {
	return countsync.Time{Now: now, Monotonic: c.MonotonicAt(now)}
}

// Time returns both times.
func (c *Clock) Time() countsync.Time { return c.TimeAt(c.now()) }

// TimeOfDayAt returns the time of day at a time of the monotonic clock.
func (c *Clock) TimeOfDayAt(steady int64) int64 { return c.TimeOfDay() + steady - c.Monotonic() }

// TimeOfDay returns the time that calendars go by: unlike the one that checks read, it
// follows the machine's where that is set.
func (c *Clock) TimeOfDay() int64 {
	if c.steps {
		return c.now()
	}
	return time.Now().UnixNano()
}

// Package env contains the state that the parts of a node share: the clocks, the lifetime of the
// goroutines, the present view, and the requests between members. A check does not change this
// state.
package env

import (
	"time"

	countsync "github.com/weir-go/weir/sync"
)

// Clock contains the two clocks of a node, in nanoseconds. Counts use Now, which may be a clock of
// the caller and may step. Views, leases and all waits use Monotonic, which never steps. A check
// reads Now, and derives the other time with TimeAt or MonotonicAt, which read no clock if both
// clocks are the same.
type Clock struct {
	now       func() int64
	monotonic func() int64
	steps     bool // now is a clock of the caller, which may step
}

// NewClock returns the clocks of a node. The method Now returns the time of the argument now. If the
// argument is nil, Now returns the time of the monotonic clock, which starts at the time of day and
// costs half as much as time.Now.
func NewClock(now func() time.Time) Clock {
	start := time.Now()
	epoch := start.UnixNano()
	c := OneClock(func() int64 { return epoch + int64(time.Since(start)) })
	if now != nil {
		c.now, c.steps = func() int64 { return now().UnixNano() }, true
	}
	return c
}

// OneClock returns a Clock that uses the function read for both times, which must never step.
func OneClock(read func() int64) Clock { return Clock{now: read, monotonic: read} }

// Now returns the time of the clock for counts.
func (c *Clock) Now() int64 { return c.now() }

// Monotonic returns the time of the monotonic clock.
func (c *Clock) Monotonic() int64 { return c.monotonic() }

// MonotonicAt returns the time of the monotonic clock. The argument is a time that the caller has just read
// with Now. MonotonicAt returns the argument if both clocks are the same, and reads the monotonic clock otherwise.
func (c *Clock) MonotonicAt(now int64) int64 {
	if c.steps {
		return c.monotonic()
	}
	return now
}

// TimeAt returns both times. The argument is a time that the caller has just read with Now.
func (c *Clock) TimeAt(now int64) countsync.Time {
	return countsync.Time{Now: now, Monotonic: c.MonotonicAt(now)}
}

// Time returns both times.
func (c *Clock) Time() countsync.Time { return c.TimeAt(c.now()) }

// TimeOfDayAt returns the time of day at a time of the monotonic clock.
func (c *Clock) TimeOfDayAt(monotonic int64) int64 { return c.TimeOfDay() + monotonic - c.Monotonic() }

// TimeOfDay returns the time for calendars: the clock of the caller if there is one, or else the
// clock of the machine. Unlike Now, that time changes when the clock of the machine is set.
func (c *Clock) TimeOfDay() int64 {
	if c.steps {
		return c.now()
	}
	return time.Now().UnixNano()
}

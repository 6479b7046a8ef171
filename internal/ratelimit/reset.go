package ratelimit

import (
	"time"

	"github.com/weir-go/weir"
)

// calendarSlack is the maximum distance between a boundary of a calendar and a time that is computed
// from a decision: clocks differ, and a decision is in transit for some time.
const calendarSlack = time.Second / 2

// ResetAt returns the time at which ResetAfter of a decision d of l has passed: the whole limit is
// available. The windows of a calendar end at a whole minute in every zone. For such a limit, a time
// within calendarSlack of a whole minute is rounded to that minute, because a different clock has
// determined the rest of the window some time ago.
func ResetAt(now time.Time, d *weir.Decision, l *weir.Limiter) time.Time {
	at := now.Add(d.ResetAfter)
	if d.ResetAfter > 0 && l.Limit().Calendar != weir.NoCalendar {
		if whole := at.Round(time.Minute); at.Sub(whole).Abs() <= calendarSlack {
			return whole
		}
	}
	return at
}

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// TimeWindow is a part of each week in which limits may have other numbers. A window is open while a clock
// of its zone shows one of its days, and a time in its range. If the range passes midnight, the window
// begins on its days, and ends on the next day. An hour that the clocks skip is not in the window. If the
// clocks repeat an hour of the window, both hours are in the window. A TimeWindow is shared, and never changes.
type TimeWindow struct {
	Name string

	days     uint8 // set of time.Weekday, a bit for each
	from, to int   // minutes after the midnight of a day; to is above from, and at most a day above it
	zone     *time.Location
}

const minutesOfDay = 24 * 60

// dayNames has the names of days, from Monday.
var dayNames = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// weekday returns the day of an index in dayNames.
func weekday(i int) time.Weekday { return time.Weekday((i + 1) % 7) }

// String returns the window without its name, such as "mon, tue from 09:00 to 18:00, Europe/Berlin".
func (w *TimeWindow) String() string {
	var days []string
	for i, name := range dayNames {
		if w.days&(1<<weekday(i)) != 0 {
			days = append(days, name)
		}
	}
	text := strings.Join(days, ", ")
	if len(days) == len(dayNames) {
		text = "each day"
	}
	if w.to-w.from < minutesOfDay {
		to := (w.to-1)%minutesOfDay + 1
		text += fmt.Sprintf(" from %02d:%02d to %02d:%02d", w.from/60, w.from%60, to/60, to%60)
	}
	return text + ", " + w.zone.String()
}

// IsOpen reports whether the window is open at t.
func (w *TimeWindow) IsOpen(t time.Time) bool {
	t = t.In(w.zone)
	day, minute := t.Weekday(), 60*t.Hour()+t.Minute()
	for range 2 {
		if w.days&(1<<day) != 0 && w.from <= minute && minute < w.to {
			return true
		}
		day, minute = (day+6)%7, minute+minutesOfDay // the same time, in minutes after the midnight of the day before
	}
	return false
}

// Next returns the first time after t at which the window opens or closes, or the zero Time if there is none in
// the next 16 days.
func (w *TimeWindow) Next(t time.Time) time.Time {
	// In some weeks the window does not open, because the clocks skip its hour.
	for at, last := w.edge(t), t.Add(16*24*time.Hour); at.Before(last); at = w.edge(at) {
		if w.IsOpen(at) != w.IsOpen(t) {
			return at
		}
	}
	return time.Time{}
}

// edge returns the first time after t at which the window may open or close: a clock of the zone then shows the
// minute from or to, or is changed.
func (w *TimeWindow) edge(t time.Time) time.Time {
	t = t.In(w.zone)
	shown := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	next := 24 * time.Hour
	for _, minute := range []int{w.from, w.to} {
		after := (time.Duration(minute)*time.Minute - shown) % (24 * time.Hour)
		if after <= 0 {
			after += 24 * time.Hour
		}
		next = min(next, after)
	}
	edge := t.Add(next)
	if _, end := t.ZoneBounds(); end.After(t) && end.Before(edge) {
		return end
	}
	return edge
}

// TimeWindows returns the windows of the file, in its order. They must not be changed.
func (s *Set) TimeWindows() []*TimeWindow { return s.windows }

// openAt returns the windows that are open at t, a bit for each, and the next time at which one of them
// opens or closes. The time is zero if there is none.
func (s *Set) openAt(t time.Time) (open uint64, next time.Time) {
	for i, w := range s.windows {
		if w.IsOpen(t) {
			open |= 1 << i
		}
		if at := w.Next(t); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return open, next
}

// limitTime has the numbers of a limit while a window is open.
type limitTime struct {
	window  int          // index in Set.windows
	numbers []weir.Limit // indexed by variant, without values; zero for tiers to which the window does not apply
}

// At returns the limit with the numbers of the time windows that are open at t.
func (l *Limit) At(t time.Time) *Limit {
	open, _ := l.set.openAt(t)
	return l.withWindows(open)
}

// withWindows returns the limit with the numbers of the open windows. Of several open windows, the first in the file applies.
func (l *Limit) withWindows(open uint64) *Limit {
	if l.times == nil {
		return l
	}
	now := *l
	now.tiers = slices.Clone(l.tiers)
	for _, t := range slices.Backward(l.times) {
		if open&(1<<t.window) == 0 {
			continue
		}
		for v, numbers := range t.numbers {
			switch {
			case numbers == weir.Limit{}:
			case v == 0:
				now.base = numbers
			default:
				now.tiers[v-1] = numbers
			}
		}
	}
	return &now
}

// OpenTimeWindows returns the names of the time windows that are open in s.
func (s *Snapshot) OpenTimeWindows() (names []string) {
	for i, w := range s.windows {
		if s.open&(1<<i) != 0 {
			names = append(names, w.Name)
		}
	}
	return names
}

// InForce returns a limit of this Set with the numbers of the time windows that are open in s, multiplied by
// the factor of its rule.
func (s *Snapshot) InForce(l *Limit) *Limit {
	return l.withWindows(s.open).Scaled(s.factorOf(s.ruleOf[l.Index]))
}

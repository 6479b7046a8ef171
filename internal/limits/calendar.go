package limits

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Unit is the part of a calendar that a window covers.
type Unit uint8

const (
	None  Unit = iota // windows have no dates
	Day               // from midnight to midnight, 23 to 25 hours
	Week              // from Monday, as in ISO 8601
	Month             // from the first day of a month
)

// LoadZone returns the time zone of a name. It refuses Local, which differs between machines.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("it differs between machines: use an IANA name such as \"Europe/Berlin\", or none for UTC")
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("use an IANA name such as \"Europe/Berlin\"; on a machine without time zones, import _ \"time/tzdata\": %w", err)
	}
	return loc, nil
}

// Window returns the start and the end of the window that contains t.
func (c Unit) Window(t time.Time) (start, end time.Time) {
	year, month, day := t.Date()
	next := func() { day++ }
	switch c {
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
		next = func() { day += 7 }
	case Month:
		day = 1
		next = func() { month++ }
	}
	start = midnight(year, month, day, t.Location())
	for {
		next()
		if end = midnight(year, month, day, t.Location()); t.Before(end) {
			return start, end
		}
		start = end
	}
}

// midnight returns the first instant of a date. If clocks are put forward at midnight, the date
// begins at one o'clock. If clocks are put back over midnight, the date begins at the earlier of
// the two midnights.
func midnight(year int, month time.Month, day int, loc *time.Location) time.Time {
	utc := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	// The offset of a zone is below a day. While the offset does not change, a date begins at most
	// once.
	for t := utc.Add(-24 * time.Hour).In(loc); ; {
		begin, end := t.ZoneBounds()
		_, offset := t.Zone()
		first := utc.Add(-time.Duration(offset) * time.Second)
		if !begin.IsZero() && first.Before(begin) {
			first = begin
		}
		if end.IsZero() || first.Before(end) || !end.After(t) { // ZoneBounds may return an end before t
			return first.In(loc)
		}
		t = end
	}
}

// Windows computes the numbers of a limit in the window that is open by the clock of this node. Only
// limits with a Calendar, and a Global FixedWindow, need this. Requests to other nodes carry the
// numbers, and no zone. Windows is safe for concurrent use.
type Windows struct {
	unit Unit
	zone *time.Location
	open atomic.Pointer[bucket.Limit]
}

// NewWindows returns the windows of a unit in a zone. If unit is None, windows begin at the multiples
// of Per.
func NewWindows(unit Unit, zone *time.Location) *Windows { return &Windows{unit: unit, zone: zone} }

// Numbers returns the limit whole with the Start and the Per of the window that contains the time now. All calls
// must pass the same limit, because Numbers keeps the result until the window ends.
func (w *Windows) Numbers(whole *bucket.Limit, now int64) *bucket.Limit {
	l := w.open.Load()
	if l != nil && now >= l.Start && now < l.Start+int64(l.Per) {
		return l
	}
	l = new(*whole)
	end := w.bounds(l, now)
	if l.Start == 0 {
		l.Start = 1 // zero would name no window
	}
	l.Per = time.Duration(end - l.Start)
	w.open.Store(l)
	return l
}

// Align returns the time from now until a window ends. The argument after is that time as the decision states
// it. A debt lasts until the end of the next window. The deciding node knows only the length of the open
// window, and assumes that the next window has the same length.
func (w *Windows) Align(after time.Duration, now int64) time.Duration {
	l := w.open.Load()
	if l == nil || w.unit == None {
		return after
	}
	at, end := now+int64(after), l.Start+int64(l.Per)
	for range 2 { // the clock of the deciding node may be ahead by a window
		if at-end > int64(l.Per)/2 {
			_, next := w.unit.Window(time.Unix(0, end).In(w.zone))
			end = next.UnixNano()
			after = time.Duration(end - now)
		}
	}
	return after
}

// bounds sets the Start of the window, and returns its end. Without a Calendar windows begin at the
// multiples of Per, so that they are the same in all regions.
func (w *Windows) bounds(l *bucket.Limit, now int64) (end int64) {
	if w.unit == None {
		l.Start = now - now%int64(l.Per)
		return l.Start + int64(l.Per)
	}
	start, next := w.unit.Window(time.Unix(0, now).In(w.zone))
	l.Start = start.UnixNano()
	return next.UnixNano()
}

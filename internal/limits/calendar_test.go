package limits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
)

func TestCalendarWindowsFollowTheDates(t *testing.T) {
	for _, test := range []struct {
		name       string
		calendar   Unit
		zone       string
		at         string // in UTC, like start and end
		start, end string
	}{
		{"a day", Day, "", "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"its first instant", Day, "", "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"its last", Day, "", "2026-11-20T23:59:59.999999999Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"of 23 hours", Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"of 25 hours", Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"with an offset of 5:45", Day, "Asia/Kathmandu", "2026-11-21T12:00:00Z", "2026-11-20T18:15:00Z", "2026-11-21T18:15:00Z"},
		{"of 24 hours and a half", Day, "Australia/Lord_Howe", "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		{"that begins at one o'clock", Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"before that", Day, "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"whose last hour comes twice", Day, "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"whose first minute comes twice", Day, "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"that was left out", Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"before that was left out", Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"a week, on its Sunday", Week, "", "2026-11-22T23:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"a week, on its Monday", Week, "", "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"a week over a new year", Week, "", "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"a week that loses an hour", Week, "America/New_York", "2026-03-08T12:00:00Z", "2026-03-02T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"a month of 30", Month, "", "2026-11-30T23:59:59Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"a month of 31", Month, "", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a February of 28", Month, "", "2027-02-14T00:00:00Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"},
		{"a February of 29", Month, "", "2028-02-29T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"a month that gains an hour", Month, "Europe/Berlin", "2026-10-31T12:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			loc, err := LoadZone(test.zone)
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339Nano, test.at)
			require.NoError(t, err)
			start, end := test.calendar.Window(at.In(loc))
			require.Equal(t, test.start, start.UTC().Format(time.RFC3339Nano))
			require.Equal(t, test.end, end.UTC().Format(time.RFC3339Nano))
		})
	}
}

var oddZones = []string{"", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "Australia/Lord_Howe",
	"Pacific/Apia", "Pacific/Chatham", "Africa/Casablanca", "Asia/Tehran", "Africa/Cairo", "Antarctica/Troll", "America/Nuuk", "Asia/Gaza"}

// windowNumber returns the number of the window that contains t. It depends on the latest date in the zone
// during the three hours before t, in steps of a minute.
func windowNumber(c Unit, t time.Time) (number int) {
	for back := time.Duration(0); back <= 3*time.Hour; back += time.Minute {
		at := t.Add(-back)
		year, month, day := at.Date()
		n := 10_000*year + 100*int(month) + day
		switch c {
		case Week:
			y, w := at.ISOWeek()
			n = 100*y + w
		case Month:
			n = 100*year + int(month)
		}
		number = max(number, n)
	}
	return number
}

func TestInstantsOfCalendarWindowHaveSameNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := LoadZone(rapid.SampledFrom(oddZones).Draw(t, "zone"))
		require.NoError(t, err)
		c := rapid.SampledFrom([]Unit{Day, Week, Month}).Draw(t, "calendar")
		at := time.Unix(rapid.Int64Range(0, 4_000_000_000).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).In(loc)
		if _, change := at.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			at = change.Add(time.Duration(rapid.Int64Range(-int64(26*time.Hour), int64(26*time.Hour)).Draw(t, "from it")))
		}
		start, end := c.Window(at)
		require.False(t, at.Before(start), "%v is before %v", at, start)
		require.True(t, at.Before(end), "%v is not before %v", at, end)
		number := windowNumber(c, at)
		require.Equal(t, number, windowNumber(c, start), "at %v, of %v", start, at)
		require.Equal(t, number, windowNumber(c, end.Add(-1)), "before %v, of %v", end, at)
		require.Greater(t, windowNumber(c, end), number, "at %v, of %v", end, at)
		require.Less(t, windowNumber(c, start.Add(-1)), number, "before %v, of %v", start, at)
		againStart, againEnd := c.Window(end)
		require.Equal(t, end.UnixNano(), againStart.UnixNano(), "windows follow one another")
		require.True(t, againEnd.After(againStart))
	})
}

func TestNumbersDoesNotAllocateWithinWindow(t *testing.T) {
	loc, err := LoadZone("Europe/Berlin")
	require.NoError(t, err)
	w := NewWindows(Day, loc)
	whole := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 7, Version: 3}
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC).UnixNano()
	l := *w.Numbers(&whole, now)
	require.Equal(t, bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 7, Version: 3, Per: 23 * time.Hour, Start: time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC).UnixNano()}, l)
	require.NoError(t, l.Validate())
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Numbers(&whole, now) }))
	require.Equal(t, l.Start+int64(l.Per), w.Numbers(&whole, l.Start+int64(l.Per)).Start, "the next window begins where this one ends")
	w.zone = time.UTC
	require.EqualValues(t, 1, w.Numbers(&whole, 5).Start, "zero would be no name")
}

// At the turn of a year after a leap year, from 2041 on, ZoneBounds returns an end before its
// argument.
func TestCalendarLimitHasWindowsEachYear(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	years := testenv.PickFull(t, 57, 228) // 57 are the years 2197, 2193 and so on, with each year after a leap year
	for _, name := range oddZones {
		loc, err := LoadZone(name)
		require.NoError(t, err)
		for year := 2197; year >= 1970; year -= 228 / years {
			for _, hour := range []int{-36, -12, 0, 12, 36} {
				at := time.Date(year, 1, 1, hour, 30, 0, 0, loc)
				for _, c := range []Unit{Day, Week, Month} {
					start, end := c.Window(at)
					require.False(t, at.Before(start), "%v %v", c, at)
					require.True(t, at.Before(end), "%v %v", c, at)
					if c == Day {
						require.Equal(t, windowNumber(c, at), windowNumber(c, start), "%v", at)
						require.Equal(t, windowNumber(c, at), windowNumber(c, end.Add(-1)), "%v", at)
					}
				}
			}
		}
	}
}

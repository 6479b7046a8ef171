package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// calendarOf returns the starts of successive days, which have 23, 24 or 25 hours.
func calendarOf(lengths []int64) (starts []int64) {
	starts = []int64{origin}
	for _, hours := range lengths {
		starts = append(starts, starts[len(starts)-1]+hours*int64(time.Hour))
	}
	return starts
}

// TestCalendarCountKeepsLatestStart compares a count that moves between stores with a list
// of used units for each window. Every asking node and every store has its own clock, and
// some clocks step.
func TestCalendarCountKeepsLatestStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const days = 12
		starts := calendarOf(rapid.SliceOfN(rapid.Int64Range(23, 25), days, days).Draw(t, "hours"))
		dayOf := func(now int64) int {
			for i := range starts {
				if now < starts[i] {
					return max(0, i-1)
				}
			}
			return days
		}
		rate := rapid.Int64Range(1, 6).Draw(t, "rate")
		limitAt := func(now int64) *Limit {
			d := dayOf(now)
			return &Limit{Algorithm: FixedWindow, Rate: rate, Start: starts[d], Per: time.Duration(starts[d+1] - starts[d])}
		}
		skew := rapid.Int64Range(-int64(2*time.Hour), int64(2*time.Hour))
		stores := []*Store{NewStore(10, Salt{}), NewStore(10, Salt{})}
		owner, ahead := 0, skew.Draw(t, "clock of the owner")
		id := ID{1, 2}
		var used [days + 2]int64
		var length [days + 2]time.Duration
		now, current := origin+int64(3*time.Hour), 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = min(now+rapid.OneOf(rapid.Int64Range(0, int64(time.Hour)), rapid.Int64Range(0, int64(30*time.Hour))).Draw(t, "step"),
				starts[days-1]-int64(5*time.Hour))
			l := limitAt(now + skew.Draw(t, "clock of the asking node"))
			clock := now + ahead
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0:
				stores[owner].Compact(clock)
				continue
			case 1: // the owner hands over to another store with the same clock
				var c Count
				_, _, held := stores[owner].Export(id, clock, Mark{}, &c)
				if held {
					var carried Count
					carried.Limit = c.Limit
					_, err := carried.Parse(c.Append(nil))
					require.NoError(t, err)
					owner = 1 - owner
					stores[owner].Import(id, &carried, clock, 0)
				}
				continue
			}
			// The window of the asking node judges, unless it has ended by the clock of the
			// owner, or is before the current window.
			day := dayOf(l.Start)
			if clock >= starts[day+1] {
				day++
			}
			if used[current] > 0 && current > day {
				day = current
			}
			if day != current {
				current = day
			}
			// A day that no ask has named yet is assumed to be as long as the previous day.
			if used[day] == 0 || dayOf(l.Start) == day {
				length[day] = l.Per
			}
			n := rapid.Int64Range(1, rate).Draw(t, "units")
			r := stores[owner].Take(id, l, clock, n)
			require.Equal(t, used[day]+n <= rate, r.Allowed, "day %d has %d of %d", day, used[day], rate)
			if r.Allowed {
				used[day] += n
			} else {
				require.EqualValues(t, timeUntil(starts[day], uint64(length[day]), clock), r.RetryAfter, "until the next day")
			}
			require.Equal(t, rate-used[day], r.Remaining)
		}
	})
}

func TestCalendarWindowsKeepDebtsAndUnits(t *testing.T) {
	day := func(start int64) *Limit {
		return &Limit{Algorithm: FixedWindow, Rate: 10, Per: 24 * time.Hour, Start: start}
	}
	const hour = int64(time.Hour)
	const today, tomorrow = origin, origin + 24*hour
	id := ID{1, 2}
	for name, check := range map[string]func(t *testing.T, s *Store){
		"debt in the next window only": func(t *testing.T, s *Store) {
			require.False(t, s.Debit(id, day(today), today, 15).Allowed)
			require.EqualValues(t, 5, s.Peek(id, day(tomorrow), tomorrow, 1).Remaining)
			require.EqualValues(t, 10, s.Peek(id, day(tomorrow+24*hour), tomorrow+24*hour, 1).Remaining)
		},
		"debt between months of different length": func(t *testing.T, s *Store) {
			month := func(start, days int64) *Limit {
				return &Limit{Algorithm: FixedWindow, Rate: 10, Per: time.Duration(24 * hour * days), Start: start}
			}
			february, march := today+31*24*hour, today+59*24*hour
			s.Debit(id, month(today, 31), today, 15)
			require.EqualValues(t, 5, s.Peek(id, month(february, 28), february, 1).Remaining)
			require.EqualValues(t, 10, s.Peek(id, month(march, 31), march, 1).Remaining)
			s.Reset(id, 0)
			s.Debit(id, month(february, 28), february, 15)
			require.EqualValues(t, 5, s.Peek(id, month(march, 31), march, 1).Remaining)
			require.EqualValues(t, 10, s.Peek(id, month(march+31*24*hour, 30), march+31*24*hour, 1).Remaining)
		},
		"usage when a limit joins or leaves the calendar": func(t *testing.T, s *Store) {
			for version := range uint64(2) {
				plain := &Limit{Algorithm: FixedWindow, Rate: 10, Per: time.Hour}
				s.Take(id, plain, today+12*hour, 4)
				l := day(today)
				l.Version = version
				require.EqualValues(t, 6, s.Peek(id, l, today+12*hour, 1).Remaining)
				require.EqualValues(t, 6, s.Peek(id, l, today+23*hour, 1).Remaining)
				plain.Per, plain.Version = 24*time.Hour, 2*version
				require.EqualValues(t, 6, s.Peek(id, plain, today+23*hour, 1).Remaining)
				s.Reset(id, 0)
			}
		},
		"name with newer rules from a slow clock": func(t *testing.T, s *Store) {
			s.Take(id, day(tomorrow), tomorrow, 10)
			l := day(today)
			l.Version, l.Rate = 1, 12
			require.EqualValues(t, 2, s.Peek(id, l, tomorrow-1, 1).Remaining)
			l.Start = tomorrow
			require.EqualValues(t, 2, s.Peek(id, l, tomorrow, 1).Remaining)
		},
		"units from another node in a later window": func(t *testing.T, s *Store) {
			s.Take(id, day(today), tomorrow-2, 10)
			s.SpendElsewhere(id, day(tomorrow), tomorrow-1, 7)
			require.EqualValues(t, 3, s.Peek(id, day(today), tomorrow, 1).Remaining)
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, NewStore(10, Salt{})) })
	}
}

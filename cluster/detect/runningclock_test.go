package detect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRunningClockStopsWithItsProcess(t *testing.T) {
	const ms = time.Millisecond
	type check struct {
		due, now time.Duration
		shows    time.Duration
		ends     bool
	}
	for _, c := range []struct {
		about  string
		checks []check
	}{
		{"checks that run in time", []check{{20 * ms, 20 * ms, 20 * ms, true}, {40 * ms, 40 * ms, 40 * ms, true}}},
		{"a timer's own delay counts", []check{{20 * ms, 22 * ms, 22 * ms, true}}},
		{"a late check counts up to when it was due, and ends no wait", []check{{20 * ms, 180 * ms, 20 * ms, false}, {182 * ms, 182 * ms, 22 * ms, true}}},
		{"the second of two late checks ends the waits", []check{{20 * ms, 180 * ms, 20 * ms, false}, {182 * ms, 300 * ms, 22 * ms, true}, {302 * ms, 400 * ms, 24 * ms, true}}},
		{"a late check after one in time ends no wait", []check{{20 * ms, 80 * ms, 20 * ms, false}, {82 * ms, 83 * ms, 23 * ms, true}, {100 * ms, 200 * ms, 40 * ms, false}}},
	} {
		t.Run(c.about, func(t *testing.T) {
			var r RunningClock
			for _, l := range c.checks {
				r.Plan(l.due)
				require.Equal(t, l.shows, r.Read(l.now), "while it is overdue")
				require.Equal(t, l.ends, r.Check(l.now))
				require.Equal(t, l.shows, r.Read(l.now), "after it")
				_, planned := r.Due()
				require.False(t, planned)
			}
		})
	}
}

func TestCancelCheckForgetsLateCheck(t *testing.T) {
	var r RunningClock
	r.Plan(0)
	require.False(t, r.Check(time.Second))
	r.CancelCheck()
	r.Plan(2 * time.Second)
	require.False(t, r.Check(3*time.Second), "the process was suspended once more, perhaps an hour later")
}

// The clock never runs backwards, and never faster than time. It is behind by at most the
// total delay of the checks.
func TestRunningClockIsBehindByDelayOfChecks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r RunningClock
		now, shown, late := time.Duration(0), time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "checks") {
			due := now + time.Duration(rapid.IntRange(0, 50).Draw(t, "after"))*time.Millisecond
			r.Plan(due)
			then := due + time.Duration(rapid.IntRange(0, 300).Draw(t, "late"))*time.Millisecond
			late += then - due
			r.Check(then)
			shows := r.Read(then)
			if shows < shown || shows-shown > then-now || then-shows > late {
				t.Fatalf("at %v it shows %v, after %v at %v, with a delay of %v", then, shows, shown, now, late)
			}
			now, shown = then, shows
		}
	})
}

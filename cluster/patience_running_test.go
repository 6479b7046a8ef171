package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/patience"
)

func TestRunningStandsStillWithItsProcess(t *testing.T) {
	const ms = time.Millisecond
	type look struct {
		due, now time.Duration
		shows    time.Duration
		ends     bool
	}
	for _, c := range []struct {
		about string
		looks []look
	}{
		{"looks that are taken in time", []look{{20 * ms, 20 * ms, 20 * ms, true}, {40 * ms, 40 * ms, 40 * ms, true}}},
		{"a timer's own delay counts", []look{{20 * ms, 22 * ms, 22 * ms, true}}},
		{"a late look counts up to when it was due, and ends nothing", []look{{20 * ms, 180 * ms, 20 * ms, false}, {182 * ms, 182 * ms, 22 * ms, true}}},
		{"the second of two late looks ends what has passed", []look{{20 * ms, 180 * ms, 20 * ms, false}, {182 * ms, 300 * ms, 22 * ms, true}, {302 * ms, 400 * ms, 24 * ms, true}}},
		{"the next late look after one in time ends nothing", []look{{20 * ms, 80 * ms, 20 * ms, false}, {82 * ms, 83 * ms, 23 * ms, true}, {100 * ms, 200 * ms, 40 * ms, false}}},
	} {
		t.Run(c.about, func(t *testing.T) {
			var r patience.Running
			for _, l := range c.looks {
				r.Plan(l.due)
				require.Equal(t, l.shows, r.At(l.now), "overdue as it is")
				require.Equal(t, l.ends, r.Look(l.now))
				require.Equal(t, l.shows, r.At(l.now), "once it is taken")
				_, planned := r.Due()
				require.False(t, planned)
			}
		})
	}
}

func TestRunningForgetsALateLookAtRest(t *testing.T) {
	var r patience.Running
	r.Plan(0)
	require.False(t, r.Look(time.Second))
	r.Rest()
	r.Plan(2 * time.Second)
	require.False(t, r.Look(3*time.Second), "the process stood still once more, an hour later as it may be")
}

// The clock never runs backwards, and never faster than time. It is behind by at most the
// total lateness of the looks.
func TestRunningIsBehindByLatenessAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r patience.Running
		now, shown, late := time.Duration(0), time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			due := now + time.Duration(rapid.IntRange(0, 50).Draw(t, "after"))*time.Millisecond
			r.Plan(due)
			then := due + time.Duration(rapid.IntRange(0, 300).Draw(t, "late"))*time.Millisecond
			late += then - due
			r.Look(then)
			shows := r.At(then)
			if shows < shown || shows-shown > then-now || then-shows > late {
				t.Fatalf("at %v it shows %v, after %v at %v, of lateness %v", then, shows, shown, now, late)
			}
			now, shown = then, shows
		}
	})
}

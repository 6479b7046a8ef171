package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCalendarLimitsAreCheckedOnce(t *testing.T) {
	daily := Limit{Name: "daily", Algorithm: FixedWindow, Rate: 5, Calendar: Day, Zone: "Europe/Berlin"}
	require.NoError(t, daily.Validate())
	for says, edit := range map[string]func(*Limit){
		"Per is 24h0m0s and Calendar day: leave Per zero":    func(l *Limit) { l.Per = 24 * time.Hour },
		"Calendar is day and Algorithm sliding_window":       func(l *Limit) { l.Algorithm = SlidingWindow },
		"Calendar 4 is unknown":                              func(l *Limit) { l.Calendar = 4 },
		`Zone is "Europe/Berlin" and there is no Calendar`:   func(l *Limit) { l.Calendar, l.Per = NoCalendar, time.Hour },
		`Zone is "Europe/Nowhere": use an IANA name such as`: func(l *Limit) { l.Zone = "Europe/Nowhere" },
		`import _ "time/tzdata"`:                             func(l *Limit) { l.Zone = "Europe/Nowhere" },
		`Zone is "Local": it differs between machines`:       func(l *Limit) { l.Zone = "Local" },
		"Rate is 0": func(l *Limit) { l.Rate = 0 },
		"Burst is 5: only token_bucket and leaky_bucket have one": func(l *Limit) { l.Burst = 5 },
		`Zone is "../../etc/passwd": use an IANA name such as`:    func(l *Limit) { l.Zone = "../../etc/passwd" },
	} {
		l := daily
		edit(&l)
		err := l.Validate()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

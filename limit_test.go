package weir

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/wire"
)

// logbook records the log lines at Warn and above. It may be read while the node logs.
type logbook struct{ lab.Text }

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func TestOtherAlgorithmAtSameVersionIsRefused(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	limiter(t, n, Limit{Name: "api", Rate: 10, Per: time.Minute, Version: 3})
	another := Limit{Name: "api", Algorithm: TokenBucket, Rate: 10, Per: time.Minute, Version: 3}
	_, err := n.Limiter(another)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `Limit: Algorithm of "api" is token_bucket, and this node has a limit of that Name with sliding_window`)
	another.Version = 4
	limiter(t, n, another)
	require.Zero(t, n.Stats().Conflicts)
}

func TestConflictingNumbersAreLoggedOnceAndCounted(t *testing.T) {
	daily := Limit{Algorithm: FixedWindow, Rate: 10, Calendar: Day, Zone: "Europe/Berlin"}
	bucket := Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Minute, Burst: 20}
	window := Limit{Rate: 10, Per: time.Minute}
	for what, c := range map[string]struct {
		limit    Limit
		edit     func(l *Limit)
		one, two string
	}{
		"Rate":      {window, func(l *Limit) { l.Rate = 12 }, "10 per 1m, sliding_window, regional, majority_share", "12 per 1m, sliding_window, regional, majority_share"},
		"Per":       {window, func(l *Limit) { l.Per = time.Hour }, "10 per 1m", "10 per 1h"},
		"Scope":     {window, func(l *Limit) { l.Scope = Global }, "regional", "global"},
		"Partition": {window, func(l *Limit) { l.Partition = FailOpen }, "majority_share", "fail_open"},
		"Burst":     {bucket, func(l *Limit) { l.Burst = 30 }, "burst 20", "burst 30"},
		"Keep":      {window, func(l *Limit) { l.Keep = 2 }, "per 1m, sliding", "per 1m, keep 2, sliding"},
		"no Burst":  {bucket, func(l *Limit) { l.Burst = 0 }, "burst 20", "burst 10"},
		"Zone":      {daily, func(l *Limit) { l.Zone = "" }, "Europe/Berlin", "UTC"},
		"Calendar":  {daily, func(l *Limit) { l.Calendar = Month }, "calendar day", "calendar month"},
		"windows":   {daily, func(l *Limit) { l.Calendar, l.Zone, l.Per = NoCalendar, "", 24*time.Hour }, "calendar day", "10 per 24h"},
	} {
		t.Run(what, func(t *testing.T) {
			var log logbook
			n := solo(t, Config{Logger: log.logger()})
			one, two := c.limit, c.limit
			one.Name, two.Name = "per user", "per user"
			c.edit(&two)
			for i := range uint64(3) {
				limiter(t, n, one)
				require.Equal(t, 2*i, n.Stats().Conflicts)
				limiter(t, n, two)
				require.Equal(t, 2*i+1, n.Stats().Conflicts)
			}
			require.Len(t, log.Lines(), 1)
			for _, part := range []string{"level=WARN", `limit="per user"`, "version=0", c.one, c.two} {
				require.Contains(t, log.Lines()[0], part)
			}
		})
	}
}

func TestConflictingLimitsStillDecide(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	strict := limiter(t, n, Limit{Rate: 3, Per: time.Hour})
	wide := limiter(t, n, Limit{Rate: 10, Per: time.Hour})
	allow(t, strict, "k", 3)
	deny(t, strict, "k", 1)
	require.EqualValues(t, 6, allow(t, wide, "k", 1).Remaining, "one count, each judged by its own numbers")
}

func TestMalformedDeclarationIsRefused(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	reply := serveAll(n, append(wire.Header{Op: wire.OpDeclare}.Append(nil), 5, 'x'))
	require.Empty(t, reply[0])
}

func TestCalendarLimitsAreValidated(t *testing.T) {
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
		"Burst is 5: leave Burst zero, because only token_bucket and leaky_bucket have a Burst": func(l *Limit) { l.Burst = 5 },
		`Zone is "../../etc/passwd": use an IANA name such as`:                                  func(l *Limit) { l.Zone = "../../etc/passwd" },
	} {
		l := daily
		edit(&l)
		err := l.Validate()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

// A decision of a calendar limit states ends of windows, but a ban ends at any time.
func TestBanOfCalendarLimitStatesItsEnd(t *testing.T) {
	l := limiter(t, solo(t, Config{Now: newHand().Now, Logger: quiet}), Limit{
		Algorithm: FixedWindow, Rate: 1, Calendar: Day, Ban: Ban{Denials: 1, Within: time.Minute, For: BanLengths{72 * time.Hour}},
	})
	var d Decision
	for range 3 {
		var err error
		d, err = l.Allow(t.Context(), "k")
		require.NoError(t, err)
	}
	require.True(t, d.Banned)
	require.Equal(t, []time.Duration{72 * time.Hour, 72 * time.Hour}, []time.Duration{d.RetryAfter, d.ResetAfter})
}

package weir

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// logbook is what was logged at Warn and above, and can be read meanwhile.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.text.String(), func(c rune) bool { return c == '\n' })
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func TestAnotherAlgorithmAtTheSameVersionIsRefused(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	first := Limit{Name: "api", Rate: 10, Per: time.Minute, Version: 3}
	another := Limit{Name: "api", Algorithm: TokenBucket, Rate: 10, Per: time.Minute, Version: 3}
	_, err := n.Limiter(first)
	require.NoError(t, err)
	for range 2 {
		_, err = n.Limiter(another)
		require.ErrorIs(t, err, ErrInvalid)
		for _, part := range []string{SlidingWindow.String(), TokenBucket.String(), `"api"`, "Version 3", "raise Version", "another Name"} {
			require.ErrorContains(t, err, part)
		}
	}
	varies := another
	varies.Varies = true
	_, err = n.Limiter(varies)
	require.ErrorIs(t, err, ErrInvalid, "it is judged by the other all the same")

	older := another
	older.Version = 2
	_, err = n.Limiter(older)
	require.NoError(t, err, "the higher version holds")
	other := another
	other.Name = "api/tokens"
	_, err = n.Limiter(other)
	require.NoError(t, err)
	_, err = n.Limiter(first)
	require.NoError(t, err)
	another.Version = 4
	_, err = n.Limiter(another)
	require.NoError(t, err)
	first.Version = 4
	_, err = n.Limiter(first)
	require.ErrorIs(t, err, ErrInvalid)
	require.Zero(t, n.Stats().Conflicts)
}

func TestOtherNumbersAtTheSameVersionAreLoggedOnceWithBothAndCounted(t *testing.T) {
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
				require.Len(t, log.lines(), 1)
				limiter(t, n, two)
				require.Equal(t, 2*i+1, n.Stats().Conflicts, "the same once more is no conflict")
			}
			for _, part := range []string{"level=WARN", `limit="per user"`, "version=0", c.one, c.two} {
				require.Contains(t, log.lines()[0], part)
			}

			one.Version, two.Version = 1, 1
			limiter(t, n, one)
			require.Len(t, log.lines(), 1)
			limiter(t, n, two)
			require.Len(t, log.lines(), 2, "of each version once")
			require.Contains(t, log.lines()[1], "version=1")
		})
	}
}

func TestNoCheckFailsForAConflict(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	strict := limiter(t, n, Limit{Rate: 3, Per: time.Hour})
	wide := limiter(t, n, Limit{Rate: 10, Per: time.Hour})
	allow(t, strict, "k", 3)
	d, err := strict.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.EqualValues(t, 6, allow(t, wide, "k", 1).Remaining, "one count, each judged by its own numbers")
}

func TestWhatIsMeantIsNoConflict(t *testing.T) {
	var log logbook
	n := solo(t, Config{Logger: log.logger()})
	for _, l := range []Limit{
		{Name: "window", Rate: 10, Per: time.Minute},
		{Name: "window", Rate: 10, Per: time.Minute},
		{Name: "window", Rate: 20, Per: time.Minute, Version: 1},
		{Name: "window", Rate: 10, Per: time.Minute}, // by who does not know of Version 1 yet
		{Name: "window", Rate: 30, Per: time.Minute, Version: 1, Varies: true},
		{Name: "window", Rate: 20, Per: time.Minute, Version: 1},

		{Name: "bucket", Algorithm: LeakyBucket, Rate: 10, Per: time.Minute},
		{Name: "bucket", Algorithm: LeakyBucket, Rate: 10, Per: time.Minute, Burst: 10},
		{Name: "daily", Algorithm: FixedWindow, Rate: 10, Calendar: Day},
		{Name: "daily", Algorithm: FixedWindow, Rate: 10, Calendar: Day, Zone: "UTC"},

		{Name: "tiers", Rate: 10, Per: time.Minute, Varies: true},
		{Name: "tiers", Rate: 20, Per: time.Hour, Varies: true},
		{Name: "tiers", Rate: 30, Per: time.Minute},
		{Name: "tiers", Rate: 40, Per: time.Minute, Varies: true},
	} {
		limiter(t, n, l)
	}
	require.Zero(t, n.Stats().Conflicts)
	require.Empty(t, log.lines())
}

func TestConflictsTakeBoundedMemoryAndFewLines(t *testing.T) {
	var log logbook
	r := newRegistry(log.logger())
	now := int64(time.Hour)
	add := func(i int, rate int64, version uint64) {
		require.NoError(t, r.add(Limit{Name: fmt.Sprint("user ", i), Rate: rate, Per: time.Minute, Version: version}, now))
	}
	const names = maxRegistered + 100
	for i := range names {
		add(i, 1, 0)
	}
	require.Len(t, r.all, maxRegistered)
	require.Len(t, r.at, maxRegistered)
	for i := range names {
		add(i, 2, 0)
	}
	require.EqualValues(t, maxRegistered, r.conflicts.Load())
	require.Len(t, log.lines(), conflictLines)
	now += int64(conflictPace)
	for i := range names {
		add(i, 3, 0)
	}
	require.Len(t, log.lines(), 2*conflictLines)
	require.NotEqual(t, log.lines()[0], log.lines()[conflictLines], "another name's turn")
	require.NoError(t, r.add(Limit{Name: fmt.Sprint("user ", names-1), Algorithm: FixedWindow, Rate: 1, Per: time.Minute}, now), "beyond the bound nothing is compared")
	for i := range maxRegistered {
		add(i, 1, 1)
	}
	require.Len(t, r.all, maxRegistered)
}

func TestDeclaredLimitsArriveAsTheyAre(t *testing.T) {
	var limits []Limit
	for i := range 1000 {
		limits = append(limits, Limit{
			Name: fmt.Sprint("limit ", i), Algorithm: Algorithm(i % 5), Rate: int64(i + 1), Per: time.Duration(i) * time.Hour, Burst: int64(i % 7),
			Scope: Scope(i % 2), Partition: PartitionPolicy(i % 4), Calendar: Calendar(i % 4), Zone: strings.Repeat("z", i%9), Version: uint64(i) << 50,
		})
	}
	bodies := appendLimits(limits)
	require.Greater(t, len(bodies), 2)
	var got []Limit
	for _, body := range bodies {
		require.Less(t, len(body), declareBytes+2*wire.MaxNameBytes+100)
		some, err := parseLimits(body)
		require.NoError(t, err)
		got = append(got, some...)
	}
	require.Equal(t, limits, got)
	require.Empty(t, appendLimits(nil))

	for about, wrong := range map[string]Limit{
		"a long name":             {Name: strings.Repeat("n", wire.MaxNameBytes+1), Rate: 1},
		"a long zone":             {Name: "n", Zone: strings.Repeat("z", wire.MaxNameBytes+1)},
		"a rate that is negative": {Name: "n", Rate: -1},
		"a time that is negative": {Name: "n", Per: -1},
	} {
		_, err := parseLimits(wrong.append(nil))
		require.ErrorIs(t, err, wire.ErrMalformed, about)
	}
	r := newRegistry(quiet)
	require.NoError(t, r.add(Limit{Name: "varies", Rate: 1, Per: time.Second, Varies: true}, 0))
	require.NoError(t, r.add(Limit{Name: "stays", Rate: 1, Per: time.Second}, 0))
	require.Equal(t, []Limit{{Name: "stays", Rate: 1, Per: time.Second}}, r.declared(), "what varies is no one's to compare")

	for cut := 1; cut < len(limits[0].append(nil)); cut++ {
		_, err := parseLimits(bodies[0][:cut])
		require.ErrorIs(t, err, wire.ErrMalformed, cut)
	}
	n := solo(t, Config{Logger: quiet})
	reply := make(answers, 1)
	b := cluster.NewBatch("other", reply)
	b.Requests = [][]byte{append(wire.Header{Op: wire.OpDeclare}.Append(nil), 5, 'x')}
	inbound{n}.Serve(b)
	require.Empty(t, reply[0])
}

package rules

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

func timeAt(t testing.TB, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

func TestTimeWindowFollowsClocksOfItsZone(t *testing.T) {
	const berlin = "zone: Europe/Berlin"
	for _, c := range []struct{ about, window, at, want, next string }{
		{"before", "days: [mon], from: '09:00', to: '18:00', " + berlin, "2026-11-30T07:59:59Z", "closed", "2026-11-30T08:00:00Z"},
		{"from its first moment", "days: [mon], from: '09:00', to: '18:00', " + berlin, "2026-11-30T08:00:00Z", "open", "2026-11-30T17:00:00Z"},
		{"to its end", "days: [mon], from: '09:00', to: '18:00', " + berlin, "2026-11-30T17:00:00Z", "closed", "2026-12-07T08:00:00Z"},
		{"past midnight", "days: fri, from: '22:00', to: '06:00'", "2026-12-05T05:59:00Z", "open", "2026-12-05T06:00:00Z"},
		{"not past the midnight before", "days: fri, from: '22:00', to: '06:00'", "2026-12-04T05:59:00Z", "closed", "2026-12-04T22:00:00Z"},
		{"whole days", "days: [sat, sun]", "2026-12-05T00:00:00Z", "open", "2026-12-07T00:00:00Z"},
		{"to midnight", "from: 18:00, to: 24:00", "2026-12-05T23:59:59Z", "open", "2026-12-06T00:00:00Z"},
		{"always", "", "2026-12-05T00:00:00Z", "open", "0001-01-01T00:00:00Z"},
		{"in no hour that is skipped", "days: sun, from: '02:00', to: '03:00', " + berlin, "2026-03-29T00:00:00Z", "closed", "2026-04-05T00:00:00Z"},
		{"in both hours that are one", "days: sun, from: '02:00', to: '03:00', " + berlin, "2026-10-25T00:00:00Z", "open", "2026-10-25T02:00:00Z"},
		{"twice", "days: sun, from: '01:00', to: '02:30', " + berlin, "2026-10-25T00:30:00Z", "closed", "2026-10-25T01:00:00Z"},
	} {
		w := mustParse(t, "times: [{name: w, "+c.window+"}]\nrules: []").TimeWindows()[0]
		at := timeAt(t, c.at)
		require.Equal(t, c.want == "open", w.IsOpen(at), c.about)
		require.Equal(t, c.next, w.Next(at).UTC().Format(time.RFC3339), c.about)
	}
}

// A random window is open if the weekday and the time that a clock of its zone shows are in the window. Next
// returns the next minute in which this changes.
func TestTimeWindowAgreesWithClockFaces(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu", "Pacific/Apia"}
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		var days []string
		for _, day := range dayNames {
			if r.IntN(2) == 0 {
				days = append(days, day)
			}
		}
		from, to := fmt.Sprintf("%02d:%02d", r.IntN(24), 15*r.IntN(4)), fmt.Sprintf("%02d:%02d", r.IntN(24), 15*r.IntN(4))
		if len(days) == 0 || from == to {
			continue
		}
		name := zones[r.IntN(len(zones))]
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		w := mustParse(t, fmt.Sprintf("times: [{name: w, days: %v, from: %q, to: %q, zone: %s}]\nrules: []", "["+strings.Join(days, ", ")+"]", from, to, name)).TimeWindows()[0]
		isOpen := func(at time.Time) bool {
			face := at.In(zone).Format("15:04")
			day := strings.ToLower(at.In(zone).Format("Mon"))
			before := dayNames[(slices.Index(dayNames, day)+6)%7]
			if from < to {
				return slices.Contains(days, day) && from <= face && face < to
			}
			return slices.Contains(days, day) && from <= face || slices.Contains(days, before) && face < to
		}
		at := time.Date(2011+r.IntN(16), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), 0, 0, zone)
		if _, end := at.ZoneBounds(); r.IntN(2) == 0 && !end.IsZero() {
			at = end.Add(-time.Duration(r.IntN(48*60)) * time.Minute).Truncate(time.Minute)
		}
		next := at.Add(time.Minute)
		for ; isOpen(next) == isOpen(at) && next.Before(at.Add(16*24*time.Hour)); next = next.Add(time.Minute) {
			require.Equal(t, isOpen(next), w.IsOpen(next), "seed %d: %v at %v", seed, w, next)
		}
		require.Equal(t, isOpen(at), w.IsOpen(at), "seed %d: %v at %v", seed, w, at)
		require.True(t, next.Equal(w.Next(at)), "seed %d: %v after %v: %v, want %v", seed, w, at, w.Next(at), next)
	}
}

// timed has three time windows: Monday from 9 to 18, the whole Monday, and the weekend.
const timed = `
tiers: {free: {}, paid: {multiply: 10}, own: {}}
times:
- {name: peak, days: mon, from: "09:00", to: "18:00"}
- {name: monday, days: mon}
- {name: weekend, days: [sat, sun]}
rules:
- name: r
  key: user
  soft: {over: 50%, for: 1m}
  limit:
    rate: 100
    per: 1h
    keep: 20%
    tiers: {own: {rate: 60, keep: 50%}}
    times: {weekend: {multiply: 2}, monday: {rate: 7, tiers: [paid, own]}, peak: {multiply: 0.5, tiers: [free, own]}}
    values: {vip: {rate: 9}}
- {name: plain, key: ip, limit: {rate: 5, per: 1m}}
`

const tuesday, mondayNight, mondayNoon, saturday = "2026-12-01T12:00:00Z", "2026-11-30T03:00:00Z", "2026-11-30T12:00:00Z", "2026-12-05T12:00:00Z"

func TestFirstOpenTimeWindowOfTierApplies(t *testing.T) {
	set := mustParse(t, timed)
	for _, c := range []struct {
		at, tier, key string
		rate, keep    int64
	}{
		{tuesday, "", "k", 100, 20}, {tuesday, "paid", "k", 1000, 200}, {tuesday, "own", "k", 60, 30},
		{saturday, "", "k", 200, 40}, {saturday, "paid", "k", 2000, 400}, {saturday, "own", "k", 120, 60}, {saturday, "paid", "vip", 9, 2},
		{mondayNoon, "", "k", 100, 20}, {mondayNoon, "free", "k", 50, 10}, {mondayNoon, "paid", "k", 7, 2}, {mondayNoon, "own", "k", 30, 15}, {mondayNoon, "free", "vip", 9, 2},
		{mondayNight, "free", "k", 100, 20}, {mondayNight, "paid", "k", 7, 2}, {mondayNight, "own", "k", 7, 2},
	} {
		l := set.Rules()[0].Limits[0].At(timeAt(t, c.at)).ForKey(c.tier, c.key)
		require.Equal(t, []int64{c.rate, c.keep}, []int64{l.Rate, l.Keep}, "%s in %q at %s", c.key, c.tier, c.at)
		require.Same(t, &set.Rules()[1].Limits[0], set.Rules()[1].Limits[0].At(timeAt(t, c.at)))
	}
}

func TestBookPutsTimeWindowsInForce(t *testing.T) {
	var shared sharedValues
	now := timeAt(t, "2026-11-30T08:59:59Z")
	b := newSharedBook(t, &shared, &now, timed)
	rates := func() string {
		s := b.Current()
		l := &s.Rules()[0].Limits[0]
		var all []string
		for _, tier := range []string{"", "free", "paid"} {
			c := s.Count(l, tier, "k")
			require.EqualValues(t, max(1, c.Limiter.Limit().Rate/2), c.Soft.Limit().Rate)
			require.Contains(t, c.Policy, fmt.Sprint(";q=", c.Limiter.Limit().Rate-c.Limiter.Limit().Keep))
			all = append(all, fmt.Sprint(c.Limiter.Limit().Rate))
		}
		return strings.Join(all, " ")
	}
	at := func(text string) {
		now = timeAt(t, text)
		b.refresh()
	}
	require.Equal(t, "100 100 7", rates())
	before := b.Current()
	at("2026-11-30T09:00:00Z")
	require.Equal(t, "100 50 7", rates())
	require.Equal(t, []string{"peak", "monday"}, b.Current().OpenTimeWindows())
	require.Equal(t, []string{"monday"}, before.OpenTimeWindows())
	s, l := b.Current(), &b.Current().Rules()[0].Limits[0]
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Count(l, "free", "k") }))
	require.EqualValues(t, 50, s.InForce(l).ForTier("free").Rate)

	require.EqualValues(t, 100, before.Limiter(l, "free", "k").Limit().Rate, "a Snapshot never changes")
	require.NoError(t, b.Override("r", "k", Override{Rate: 33}))
	require.Equal(t, "33 33 33", rates(), "an override takes precedence")
	require.NoError(t, b.Restore("r", "k"))
	require.EqualValues(t, 9, b.Current().Limiter(l, "free", "vip").Limit().Rate, "a value takes precedence")
	b.refresh()
	serial := b.Current().Serial()
	at("2026-11-30T17:59:59Z")
	require.Equal(t, serial, b.Current().Serial(), "nothing has changed")
	at("2026-11-30T08:00:00Z")
	require.Equal(t, "100 100 7", rates(), "the clock was put back")
	at("2026-12-05T00:00:00Z")
	require.Equal(t, "200 200 2000", rates(), "the clock was put forward")
	require.NoError(t, b.enforce(mustParse(t, strings.ReplaceAll(timed, "multiply: 2", "multiply: 3"))))
	require.Equal(t, "300 300 3000", rates(), "a new file")
	require.NoError(t, b.enforce(mustParse(t, ratedFile(0, 8))))
	require.Equal(t, "8", fmt.Sprint(rateOf(b)), "a file without times")
	require.Empty(t, b.Current().OpenTimeWindows())
}

// When a time window opens or closes, the used units stay used, and all nodes have the new numbers in
// time, for all algorithms except in_flight. A denial that a node remembers ends with the window.
func TestTimeWindowChangeKeepsCounts(t *testing.T) {
	for _, limit := range []string{
		"algorithm: sliding_window, per: 24h", "algorithm: sliding_log, per: 24h", "algorithm: fixed_window, per: 24h", "calendar: week",
		"algorithm: token_bucket, per: 1000h, burst: 100", "algorithm: leaky_bucket, per: 1000h, burst: 100",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
			require.NoError(t, err)
			defer c.Close()
			time.Sleep(time.Minute)
			begin := time.Now().UTC().Add(2 * time.Minute).Truncate(time.Minute)
			text := fmt.Sprintf("times: [{name: peak, from: '%s', to: '%s'}]\nrules: [{name: r, key: user, limit: {rate: 100, %s, times: {peak: {multiply: 0.5}}}}]",
				begin.Format("15:04"), begin.Add(time.Minute).Format("15:04"), limit)
			books := make(map[string]*Book)
			for _, name := range c.Names() {
				books[name] = staticBook(t, c.Node(name), text)
			}
			time.Sleep(pace)
			limiter := func(name string) *weir.Limiter {
				s := books[name].Current()
				return s.Limiter(&s.Rules()[0].Limits[0], "", "k")
			}
			take := func(name string, units int64) weir.Decision {
				d, err := limiter(name).AllowN(t.Context(), "k", units)
				require.NoError(t, err)
				return d
			}
			require.True(t, take("a", 60).Allowed)
			time.Sleep(time.Until(begin) - time.Millisecond)
			for _, name := range c.Names() {
				require.EqualValues(t, 100, limiter(name).Limit().Rate, "%s: %s before", limit, name)
			}
			time.Sleep(pace)
			for _, name := range c.Names() {
				d := take(name, 1)
				require.False(t, d.Allowed, "%s: %s has used 60 of 50", limit, name)
				require.EqualValues(t, 50, d.Limit, limit)
			}
			time.Sleep(time.Until(begin.Add(time.Minute - 10*time.Millisecond)))
			for _, name := range c.Names() {
				require.False(t, take(name, 1).Allowed, "%s: still", limit)
			}
			time.Sleep(10*time.Millisecond + pace)
			for i, name := range c.Names() {
				d := take(name, 10)
				require.True(t, d.Allowed, "%s: %s has used %d of 100", limit, name, 60+10*i)
				require.InDelta(t, 30-10*i, d.Remaining, 1, limit)
			}
		})
	}
}

func TestTimeWindowErrorsHavePlaceAndRemedy(t *testing.T) {
	const rule = "\nrules: [{name: r, key: ip, limit: {rate: 1000000, per: 1h, times: {%s}}}]"
	const tiers = "tiers: {free: {}}\ntimes: [{name: a}]"
	many := "times: [{name: " + strings.Join(numberedNames("t", maxWindows+1), "}, {name: ") + "}]"
	for _, c := range []struct{ file, in, want string }{
		{"times: {peak: {}}", "", "rules.yaml:1:8: times is a map: use a list"},
		{many, "", "rules.yaml:1:8: times has 65 entries: use at most 64"},
		{"times: [{}]", "", "rules.yaml:1:9: name is missing"},
		{"times: [{name: a/b}]", "", `rules.yaml:1:16: name is "a/b": use letters, digits, spaces and . _ : -`},
		{"times: [{name: a}, {name: a}]", "", `rules.yaml:1:27: time "a" is used twice: give each time its own name (the first is on line 1)`},
		{"times: [{name: a, day: mon}]", "", `rules.yaml:1:19: unknown field "day": did you mean "days"?`},
		{"times: [{name: a, days: []}]", "", "rules.yaml:1:25: the list is empty: remove it, or add to it"},
		{"times: [{name: a, days: Monday}]", "", `rules.yaml:1:25: day is "Monday": write mon`},
		{"times: [{name: a, days: mon-fri}]", "", `rules.yaml:1:25: day is "mon-fri": list each day, like [mon, tue]`},
		{"times: [{name: a, days: today}]", "", `rules.yaml:1:25: unknown day "today": known are mon, tue, wed, thu, fri, sat, sun`},
		{"times: [{name: a, from: 9:00}]", "", `rules.yaml:1:25: from is "9:00": use a time of the day from 00:00 to 23:59, with two digits for the hour`},
		{"times: [{name: a, from: '24:00'}]", "", `rules.yaml:1:25: from is "24:00": use a time of the day from 00:00 to 23:59, with two digits for the hour`},
		{"times: [{name: a, to: 6pm}]", "", `rules.yaml:1:23: to is "6pm": use a time of the day from 00:00 to 24:00, with two digits for the hour`},
		{"times: [{name: a, from: '06:00', to: '06:00'}]", "", "rules.yaml:1:38: to is the same as from: leave both out for the whole day"},
		{"times: [{name: a, zone: CEST}]", "", `rules.yaml:1:25: unknown zone "CEST": use a name like Europe/Berlin or UTC`},
		{"times: [{name: a, zone: Local}]", "", `rules.yaml:1:25: zone is "Local": use a name like Europe/Berlin or UTC`},
		{tiers, "b: {multiply: 2}", `rules.yaml:3:68: unknown time "b": known are a`},
		{tiers, "a: 2", "rules.yaml:3:71: a is a number: use a map"},
		{tiers, "a: {}", "rules.yaml:3:71: a changes nothing: add multiply, or a rate"},
		{tiers, "a: {burst: 2}", "rules.yaml:3:71: a changes nothing: add multiply, or a rate"},
		{tiers, "a: {multiply: 0}", "rules.yaml:3:82: multiply is 0: use 0.001 to 1e+06"},
		{tiers, "a: {multiply: 2, rate: 3}", "rules.yaml:3:91: rate with multiply: use one of them"},
		{tiers, "a: {multiply: 1000000}, a: {rate: 1}", `rules.yaml:3:92: field "a" is set twice: remove one (the first is on line 3)`},
		{tiers, "a: {multiply: 2, tiers: fre}", `rules.yaml:3:92: unknown tier "fre": did you mean "free"?`},
		{tiers, "a: {rate: 3, burst: 4}", "rules.yaml:3:88: burst with sliding_window: remove burst, because only token_bucket and leaky_bucket have a burst"},
	} {
		_, err := Parse("rules.yaml", []byte(c.file+fmt.Sprintf(rule, c.in)))
		require.ErrorContains(t, err, c.want, c.file+c.in)
	}
	_, err := Parse("rules.yaml", []byte("times: [{name: a}]\nrules: [{name: r, key: ip, limit: {rate: 1000000000, per: 1h, times: {a: {multiply: 1000000}}}}]"))
	require.EqualError(t, err, "rules.yaml:2:74: the multiplied rate or burst is 2000000000000: use at most 1000000000000")
}

func TestMultipliedRateMayBeMaximum(t *testing.T) {
	const rule = "times: [{name: a}]\nrules: [{name: r, key: ip, limit: {algorithm: token_bucket, rate: 1000000, per: 1h, burst: %d, times: {a: {multiply: 1000000}}}}]"
	l := mustParse(t, fmt.Sprintf(rule, 1_000_000)).Rules()[0].Limits[0].At(time.Now()).ForKey("", "k")
	require.Equal(t, []int64{maxRate, maxRate}, []int64{l.Rate, l.Burst})
	_, err := Parse("rules.yaml", []byte(fmt.Sprintf(rule, 1_000_001)))
	require.ErrorContains(t, err, "the multiplied rate or burst is 1000001000000: use at most 1000000000000")
}

package outbound

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelayFollowsFieldsOfResponse(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		want  time.Duration
		lines []string
	}{
		{0, nil},
		{5 * time.Second, []string{"Retry-After: 5"}},
		{0, []string{"Retry-After: 0", `RateLimit: "a";r=0;t=9`}},
		{0, []string{"Retry-After: -5"}},
		{0, []string{"Retry-After: soon"}},
		{0, []string{"Retry-After: 1.5"}},
		{366 * 24 * time.Hour, []string{"Retry-After: 99999999999999999999999"}},
		{7 * time.Second, []string{"Retry-After: " + date(7*time.Second)}},
		{7 * time.Second, []string{"Retry-After: " + date(time.Hour+7*time.Second), "Date: " + date(time.Hour)}},
		{0, []string{"Retry-After: " + date(-time.Second)}},
		{9 * time.Second, []string{`RateLimit: "burst";r=0;t=2, "day";r=0;t=9`, `RateLimit: "x";r=5;t=100`}},
		{4 * time.Second, []string{`RateLimit: "a;r=0;t=99, \" b"; pk=:AA==: ;r=0;t=4`}},
		{0, []string{`RateLimit: "a";r=0, "b";t=5, c;r=0;t=3, ;;;,"`}},
		{0, []string{"RateLimit: limit=100, remaining=0, reset=5"}},
	} {
		h := make(http.Header)
		for _, line := range c.lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		require.Equal(t, c.want, delayOf(h, now), c.lines)
	}
}

func FuzzDelay(f *testing.F) {
	f.Add("Mon, 30 Nov 2026 12:00:00 GMT", "", "")
	f.Add("", `"a";r=0;t=9, "b`, "*.example.com")
	f.Fuzz(func(t *testing.T, after, limit, host string) {
		h := http.Header{"Retry-After": {after}, "Ratelimit": {limit}, "Date": {after}}
		if d := delayOf(h, time.Unix(0, 0)); d < 0 {
			t.Errorf("negative delay %v", d)
		}
		_, _ = parseHosts(host)
	})
}

func TestPauseWithLatestEndWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{until: make(map[string]time.Time)}
		require.Negative(t, p.findRest("a"))
		require.True(t, p.extend("a", 5*time.Second))
		require.False(t, p.extend("a", time.Second))
		require.False(t, p.extend("a", 5*time.Second))
		require.True(t, p.extend("a", 6*time.Second))
		require.Equal(t, 6*time.Second, p.findRest("a"))
		require.LessOrEqual(t, p.findRest("b"), time.Duration(0))
		require.True(t, p.extend("b", time.Second))
		time.Sleep(2 * time.Second)
		require.Equal(t, 4*time.Second, p.findRest("a"), "the end of another pause changes nothing")
		time.Sleep(4 * time.Second)
		require.Zero(t, p.findRest("a"))
	})
}

func TestPausedKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{until: make(map[string]time.Time)}
		for i := range 2 * mostPauses {
			require.True(t, p.extend(fmt.Sprint(i), time.Second))
		}
		require.Len(t, p.until, mostPauses)
		time.Sleep(2 * time.Second)
		require.True(t, p.extend("new", time.Second))
		require.Len(t, p.until, 1, "the ended pauses make room")
		require.Positive(t, p.findRest("new"))
	})
}

func TestPauseOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{1, time.Hour} { // below a millisecond, and above MaxPause
			g := newGate(t, Options{MaxPause: time.Second})
			ctx, cancel := context.WithCancel(t.Context())
			turn, err := g.Wait(newRequest(t, "GET", "https://a").WithContext(ctx))
			require.NoError(t, err)
			cancel()
			turn.Pause(ctx, d)
			decision, err := turn.limit.limiter.Peek(t.Context(), turn.key)
			require.NoError(t, err)
			require.False(t, decision.Allowed, "the owner knows the pause")
			require.Equal(t, min(max(d, time.Millisecond), time.Second), decision.RetryAfter)
		}
	})
}

func TestPauseIsAtMostMaxPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Options{MaxPause: 2 * time.Second})
		r := newRequest(t, "GET", "https://a")
		turn, err := g.Wait(r)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, turn.PauseBy(t.Context(), http.Header{"Retry-After": {"3600"}}))
		begun := time.Now()
		_, err = g.Wait(r)
		require.NoError(t, err)
		require.InDelta(t, 2, time.Since(begun).Seconds(), 0.011)
		_, err = g.Wait(newRequest(t, "GET", "https://b"))
		require.NoError(t, err)
	})
}

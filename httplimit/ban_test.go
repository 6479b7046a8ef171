package httplimit

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestBanShowsInResponseAndSparesExemptClients(t *testing.T) {
	var now atomic.Int64
	now.Store(noon.UnixNano())
	m := newLimiter(t, `
exempt: {ip: 192.0.2.9}
rules:
- name: login
  match: {path: /login}
  key: ip
  ban: {denials: 2, within: 1m, for: [1m, 1h]}
  limits: [{name: fast, rate: 1, per: 1s}, {name: open, algorithm: in_flight, rate: 100}]
- {name: all, key: ip, limit: {rate: 1000, per: 1h}}
`, Options{}, weir.Config{Now: func() time.Time { return time.Unix(0, now.Load()) }})
	h := m.Handler(hello)
	for range 20 {
		require.Equal(t, http.StatusOK, answer(h, get("/login", "192.0.2.9")).Code, "an exempt client meets no rule")
	}
	for i, want := range []struct{ code, bans int }{{200, 0}, {429, 0}, {429, 1}, {429, 1}, {429, 1}} {
		w := answer(h, get("/login", "192.0.2.1", "Accept", "application/json"))
		require.Equal(t, want.code, w.Code, i)
		require.EqualValues(t, want.bans, m.node.Stats().Bans["login/fast"].Begun, i)
		if i < 3 {
			require.Empty(t, w.Header()["X-Ratelimit-Banned"], i)
			continue
		}
		require.Equal(t, []string{"true"}, w.Header()["X-Ratelimit-Banned"])
		require.Equal(t, "60", w.Header().Get("Retry-After"))
		require.JSONEq(t, `{"error": "banned", "message": "banned after too many denied requests (\"login/fast\"): try again in 60 s", "retry_after": 60}`, w.Body.String())
	}
	require.Equal(t, http.StatusOK, answer(h, get("/", "192.0.2.1")).Code, "other rules are not affected")
	now.Add(int64(time.Minute))
	for _, code := range []int{200, 429, 429, 429} {
		require.Equal(t, code, answer(h, get("/login", "192.0.2.1")).Code)
	}
	require.Equal(t, "3600", answer(h, get("/login", "192.0.2.1")).Header().Get("Retry-After"))
	require.Equal(t, weir.BanStats{Begun: 2, Denied: 4}, m.node.Stats().Bans["login/fast"])
}

package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const carriedRules = `
tiers: {free: {}, paid: {multiply: 10}}
default_tier: free
rules:
- {name: streams, key: user, limit: {algorithm: in_flight, rate: 3}}
- {name: exports, key: user, limit: {algorithm: in_flight, rate: 3}}
- {name: trial, key: user, limit: {algorithm: in_flight, rate: 1}, shadow: true}
- {name: tokens, key: user, limit: {algorithm: fixed_window, rate: 100, per: 2h}}
- {name: points, key: user, limit: {algorithm: fixed_window, rate: 100, per: 2h}}
- {name: soft, key: user, limit: {rate: 2, per: 2h}, soft: {over: 50%, for: 240h}}
`

// holdEnds is the maximum time that units stay held after the ttl of their hold.
const holdEnds = 2 * time.Second

// post sends a request and requires the status.
func (a *testAPI) post(path string, status int, format string, args ...any) *httptest.ResponseRecorder {
	a.t.Helper()
	body := fmt.Sprintf(format, args...)
	w := a.ask(http.MethodPost, path, body)
	require.Equal(a.t, status, w.Code, "%s %s: %s", path, body, w.Body)
	return w
}

// remaining returns the remaining units of a key.
func (a *testAPI) remaining(limit, key string) int64 {
	a.t.Helper()
	var status keyStatus
	a.get(http.MethodGet, "/v1/status"+query("rule", limit, "key", key), "", http.StatusOK, &status)
	return status.Limits[0].Remaining
}

func (a *testAPI) holds(units int, ttl string) (h heldAnswer) {
	a.t.Helper()
	a.get(http.MethodPost, "/v1/hold", fmt.Sprintf(`{"limit":"streams","key":"u","units":%d,"ttl":%q}`, units, ttl), http.StatusOK, &h)
	return h
}

func (a *testAPI) reserves(limit string, units int) (v heldAnswer) {
	a.t.Helper()
	a.get(http.MethodPost, "/v1/reserve", fmt.Sprintf(`{"limit":%q,"key":"u","units":%d}`, limit, units), http.StatusOK, &v)
	return v
}

func TestHoldEndsByReleaseOrTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		begun := time.Now()
		h := a.holds(2, "10s")
		require.True(t, h.Allowed)
		require.EqualValues(t, []int64{3, 1}, []int64{h.Limit, h.Remaining})
		require.NotEmpty(t, h.Hold)
		require.WithinDuration(t, begun.Add(10*time.Second), *h.ExpiresAt, time.Millisecond)

		w := a.post("/v1/hold", 200, `{"limit":"streams","key":"u","units":2}`)
		require.Regexp(t, `"allowed":false.*"retry_after_s":[1-9]`, w.Body.String())
		require.NotContains(t, w.Body.String(), `"hold"`)
		require.NotContains(t, w.Body.String(), "expires_at")
		require.Regexp(t, `^[1-9]\d*$`, w.Header().Get("Retry-After"))
		require.Contains(t, w.Header().Get("RateLimit"), `"streams";r=1`)
		require.EqualValues(t, 3, a.remaining("streams", "another"))

		time.Sleep(8 * time.Second)
		a.post("/v1/renew", 200, `{"limit":"streams","key":"u","hold":%q,"ttl":"10s"}`, h.Hold)
		time.Sleep(8 * time.Second)
		require.EqualValues(t, 1, a.remaining("streams", "u"), "it was renewed")
		for range 2 {
			a.post("/v1/release", 204, `{"limit":"streams","key":"u","hold":%q}`, h.Hold)
			time.Sleep(time.Second)
			require.EqualValues(t, 3, a.remaining("streams", "u"))
		}
		a.post("/v1/renew", 410, `{"limit":"streams","key":"u","hold":%q}`, h.Hold)

		h = a.holds(3, "4s")
		require.True(t, h.Allowed)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 0, a.remaining("streams", "u"))
		time.Sleep(time.Second + holdEnds)
		require.EqualValues(t, 3, a.remaining("streams", "u"), "nobody has renewed it")
		a.post("/v1/renew", 410, `{"limit":"streams","key":"u","hold":%q}`, h.Hold)
		a.post("/v1/release", 204, `{"limit":"streams","key":"u","hold":%q}`, h.Hold)
		require.EqualValues(t, 3, a.remaining("streams", "u"))
	})
}

func TestRenewalReturnsUnneededUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		h := a.holds(3, "10s")
		renew := func(units int, status int) (got renewed) {
			body := fmt.Sprintf(`{"limit":"streams","key":"u","hold":%q,"ttl":"20s","units":%d}`, h.Hold, units)
			a.get(http.MethodPost, "/v1/renew", body, status, &got)
			return got
		}
		for _, c := range []struct{ keep, held int }{{5, 3}, {3, 3}, {2, 2}, {3, 2}, {1, 1}} {
			begun := time.Now()
			got := renew(c.keep, 200)
			require.EqualValues(t, c.held, got.Units)
			require.WithinDuration(t, begun.Add(20*time.Second), *got.ExpiresAt, time.Millisecond)
			require.EqualValues(t, 3-c.held, a.remaining("streams", "u"))
		}
		require.Contains(t, a.post("/v1/renew", 400, `{"limit":"streams","key":"u","hold":%q,"units":0}`, h.Hold).Body.String(), "/v1/release")
		a.post("/v1/release", 204, `{"limit":"streams","key":"u","hold":%q}`, h.Hold)
		require.EqualValues(t, 3, a.remaining("streams", "u"))
	})
}

func TestOverrideKeepsOrResetsUsedUnits(t *testing.T) {
	a := startTestAPI(t, carriedRules)
	take := func(limit string) { a.post("/v1/take", 200, `{"limit":%q,"key":"u","units":2}`, limit) }
	for range 2 { // the overrun of soft grants its second take
		take("soft")
		take("points")
	}
	for _, c := range []struct {
		used      string
		remaining int64
	}{{"", 46}, {`,"used":"keep"`, 46}, {`,"used":"reset"`, 50}} {
		a.post("/v1/overrides", 200, `{"limit":"points","key":"u","rate":50%s}`, c.used)
		require.Equal(t, c.remaining, a.remaining("points", "u"), c.used)
	}
	a.post("/v1/overrides", 200, `{"limit":"soft","key":"u","rate":2,"used":"reset"}`)
	require.EqualValues(t, 2, a.remaining("soft", "u"))
	require.Contains(t, a.post("/v1/overrides", 400, `{"limit":"streams","key":"u","rate":2,"used":"reset"}`).Body.String(), "in_flight")
	require.NotContains(t, a.ask(http.MethodGet, "/v1/overrides", "").Body.String(), "streams")
}

// forged returns texts that no node has made, derived from a valid text.
func forged(text string) []string {
	last := byte('A')
	if text[len(text)-1] == last {
		last = 'Q'
	}
	middle := []byte(text)
	middle[len(text)/2] ^= 1
	return []string{"", "x", text[:len(text)-1], text + "A", text[:len(text)-1] + string(last), string(middle), text[:len(text)/2]}
}

func TestMisuseOfHoldsLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		h, v := a.holds(2, "1h"), a.reserves("tokens", 60)
		type misuse struct {
			path, body, says string
			status           int
		}
		of := func(limit, key, hold string) string {
			return fmt.Sprintf(`{"limit":%q,"key":%q,"hold":%q}`, limit, key, hold)
		}
		misuses := []misuse{
			{"/v1/hold", `{"limit":"streams","key":"u","units":0}`, "units is 0: use 1 to", 400},
			{"/v1/hold", `{"limit":"streams","key":"u","units":-1}`, "units is -1: use 1 to", 400},
			{"/v1/hold", `{"limit":"streams","key":"u","units":4}`, "more than the 3 that streams can ever grant", 413},
			{"/v1/hold", `{"limit":"streams","key":"u","ttl":"999ms"}`, "ttl is 999ms: use 1s to 1h", 400},
			{"/v1/hold", `{"limit":"streams","key":"u","ttl":"61m"}`, "ttl is 1h1m: use 1s to 1h", 400},
			{"/v1/hold", `{"limit":"streams","key":"u","ttl":30}`, "ttl is 30: use a text", 400},
			{"/v1/hold", `{"limit":"streams","key":"u","tier":"none"}`, "there is no tier", 400},
			{"/v1/hold", `{"limit":"steams","key":"u"}`, `there is no limit \"steams\"`, 404},
			{"/v1/renew", `{"limit":"streams","key":"u"}`, `field \"hold\" is missing`, 400},
			{"/v1/renew", `{"limit":"streams","key":"u","hold":null}`, "hold is null: use a text", 400},
			{"/v1/settle", fmt.Sprintf(`{"limit":"streams","key":"u","reservation":%q,"units":0}`, h.Hold), "", 400},
		}
		for _, path := range []string{"/v1/renew", "/v1/release"} {
			for _, text := range append(forged(h.Hold), v.Reservation) {
				misuses = append(misuses, misuse{path, of("streams", "u", text), "", 400})
			}
			misuses = append(misuses, misuse{path, of("streams", "another", h.Hold), "", 400}, misuse{path, of("exports", "u", h.Hold), "", 400},
				misuse{path, of("steams", "u", h.Hold), "", 404})
		}
		for _, c := range misuses {
			w := a.post(c.path, c.status, "%s", c.body)
			require.Contains(t, w.Body.String(), c.says, c.body)
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 1, a.remaining("streams", "u"))
		require.EqualValues(t, 40, a.remaining("tokens", "u"))
		a.post("/v1/renew", 200, "%s", of("streams", "u", h.Hold))
		a.post("/v1/release", 204, "%s", of("streams", "u", h.Hold))
		time.Sleep(time.Second)
		require.EqualValues(t, 3, a.remaining("streams", "u"))
	})
}

func TestShadowWithoutRoomHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		hold := func(units int) (h heldAnswer) {
			a.get(http.MethodPost, "/v1/hold", fmt.Sprintf(`{"limit":"trial","key":"u","units":%d}`, units), http.StatusOK, &h)
			return h
		}
		first := hold(1)
		require.True(t, first.Allowed && !first.ShadowDenied)
		require.NotEmpty(t, first.Hold)
		for _, units := range []int{1, 100} {
			h := hold(units)
			require.True(t, h.Allowed && h.ShadowDenied)
			require.Empty(t, h.Hold)
			require.Zero(t, h.RetryAfterS)
		}
	})
}

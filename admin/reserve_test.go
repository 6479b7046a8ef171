package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMisuseOfReservationsLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		v, h := a.reserves("tokens", 60), a.holds(2, "1h")
		require.EqualValues(t, 40, v.Remaining)
		require.NotEmpty(t, v.Reservation)
		of := func(limit, key, text string, units int) string {
			return fmt.Sprintf(`{"limit":%q,"key":%q,"reservation":%q,"units":%d}`, limit, key, text, units)
		}
		for _, text := range append(forged(v.Reservation), h.Hold) {
			a.post("/v1/settle", 400, "%s", of("tokens", "u", text, 10))
		}
		for _, c := range []struct {
			path, body, says string
			status           int
		}{
			{"/v1/settle", of("tokens", "another", v.Reservation, 10), "", 400},
			{"/v1/settle", of("points", "u", v.Reservation, 10), "", 400},
			{"/v1/settle", of("token", "u", v.Reservation, 10), "there is no limit", 404},
			{"/v1/settle", of("tokens", "u", v.Reservation, -1), "units is -1: use 0 to", 400},
			{"/v1/settle", of("tokens", "u", v.Reservation, 1e12+1), "use 0 to 1000000000000", 400},
			{"/v1/settle", fmt.Sprintf(`{"limit":"tokens","key":"u","reservation":%q}`, v.Reservation), `field \"units\" is missing`, 400},
			{"/v1/reserve", `{"limit":"tokens","key":"u","units":0}`, "units is 0: use 1 to", 400},
			{"/v1/reserve", `{"limit":"tokens","key":"u","units":101}`, "more than the 100 that tokens can ever grant", 413},
			{"/v1/reserve", `{"limit":"streams","key":"u"}`, "", 400},
			{"/v1/renew", fmt.Sprintf(`{"limit":"tokens","key":"u","hold":%q}`, v.Reservation), "", 400},
		} {
			w := a.post(c.path, c.status, "%s", c.body)
			require.Contains(t, w.Body.String(), c.says, c.body)
		}
		denial := a.post("/v1/reserve", 200, `{"limit":"tokens","key":"u","units":41}`)
		require.Regexp(t, `"allowed":false.*"retry_after_s":[1-9]`, denial.Body.String())
		require.NotContains(t, denial.Body.String(), "reservation")
		require.NotContains(t, denial.Body.String(), "expires_at")
		require.Regexp(t, `^[1-9]\d*$`, denial.Header().Get("Retry-After"))
		require.EqualValues(t, 40, a.remaining("tokens", "u"), "nothing was given back or debited")

		a.post("/v1/settle", 204, "%s", of("tokens", "u", v.Reservation, 10))
		time.Sleep(time.Second)
		require.EqualValues(t, 90, a.remaining("tokens", "u"))
		for _, units := range []int{0, 10, 100} {
			a.post("/v1/settle", 409, "%s", of("tokens", "u", v.Reservation, units))
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 90, a.remaining("tokens", "u"))

		v = a.reserves("tokens", 20)
		time.Sleep(time.Until(*v.ExpiresAt) + time.Minute)
		a.post("/v1/settle", 410, "%s", of("tokens", "u", v.Reservation, 0))
		require.EqualValues(t, 70, a.remaining("tokens", "u"), "an estimate that nobody settles stays spent")
	})
}

func TestOverrunReservationIsSettledInOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		require.False(t, a.reserves("soft", 2).Soft)
		for range 2 {
			v := a.reserves("soft", 1)
			require.True(t, v.Soft)
			a.post("/v1/settle", 204, `{"limit":"soft","key":"u","reservation":%q,"units":0}`, v.Reservation)
			a.post("/v1/settle", 409, `{"limit":"soft","key":"u","reservation":%q,"units":0}`, v.Reservation)
			time.Sleep(time.Second)
		}
		require.True(t, a.reserves("soft", 1).Soft)
		require.False(t, a.reserves("soft", 1).Allowed)
	})
}

func TestClientSettlesReservationOfRequestByItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, `
rules:
- {name: failures, key: user, limit: {rate: 3, per: 240h}, count: {status: [401]}}
`)
		var d requestAnswer
		a.get(http.MethodPost, "/v1/request", `{"path":"/","user":"u","ttl":"30s"}`, http.StatusOK, &d)
		require.Len(t, d.Reservations, 1)
		require.EqualValues(t, 2, a.remaining("failures", "u"))
		text, err := json.Marshal(struct {
			carried
			Units int `json:"units"`
		}{d.Reservations[0], 0})
		require.NoError(t, err)
		a.post("/v1/settle", 204, "%s", text)
		a.post("/v1/settle", 409, "%s", text)
		time.Sleep(time.Second)
		require.EqualValues(t, 3, a.remaining("failures", "u"))

		var untold requestAnswer
		a.get(http.MethodPost, "/v1/request", `{"path":"/","user":"u"}`, http.StatusOK, &untold)
		require.Empty(t, untold.Reservations, "nobody would settle it: it stays spent")
		require.EqualValues(t, 2, a.remaining("failures", "u"))
	})
}

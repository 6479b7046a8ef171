package admin

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestPeekAnswersAsTakeAndSpendsNothing(t *testing.T) {
	a := startTestAPI(t, fmt.Sprintf(endpointRules, true))
	ask := func(path, limit string) (answer Take, header http.Header) {
		t.Helper()
		header = a.get("POST", path, fmt.Sprintf(`{"limit":%q,"key":"u"}`, limit), 200, &answer)
		return answer, header
	}
	for _, limit := range []string{"hard", "shadow", "soft"} {
		for unit := range 5 {
			first, _ := ask("/v1/peek", limit)
			peeked, header := ask("/v1/peek", limit)
			require.Equal(t, first.Remaining, peeked.Remaining, "%s, unit %d", limit, unit)
			took, _ := ask("/v1/take", limit)
			require.Equal(t, []bool{took.Allowed, took.Soft, took.ShadowDenied}, []bool{peeked.Allowed, peeked.Soft, peeked.ShadowDenied}, "%s, unit %d", limit, unit)
			require.Equal(t, !peeked.Allowed, header.Get("Retry-After") != "")
			require.Equal(t, !peeked.Allowed, peeked.RetryAfterS > 0)
			require.Equal(t, peeked.Soft, header.Get("X-RateLimit-Soft") != "")
		}
	}
}

func TestPeekShowsHeldUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		a.holds(2, "1h")
		var peeked Take
		a.get("POST", "/v1/peek", `{"limit":"streams","key":"u"}`, 200, &peeked)
		require.Equal(t, []any{true, int64(3), int64(1)}, []any{peeked.Allowed, peeked.Limit, peeked.Remaining})
		a.holds(1, "1h")
		a.get("POST", "/v1/peek", `{"limit":"streams","key":"u"}`, 200, &peeked)
		require.Equal(t, []any{false, int64(0)}, []any{peeked.Allowed, peeked.Remaining})
		a.post("/v1/take", 200, `{"limit":"points","key":"u","units":60}`)
		for units, allowed := range map[int]bool{1: true, 40: true, 41: false, 100: false} {
			a.get("POST", "/v1/peek", fmt.Sprintf(`{"limit":"points","key":"u","units":%d}`, units), 200, &peeked)
			require.Equal(t, []any{allowed, int64(40)}, []any{peeked.Allowed, peeked.Remaining})
		}

		a.post("/v1/peek", 413, `{"limit":"points","key":"u","units":101}`)
		a.post("/v1/take", 200, `{"limit":"soft","key":"u","units":2}`)
		require.Contains(t, a.post("/v1/peek", 200, `{"limit":"soft","key":"u","units":2}`).Body.String(), `"allowed":false`)
	})
}

func TestEmptyKeySelectsCountOfGlobalRule(t *testing.T) {
	a := startTestAPI(t, "rules: [{name: all, key: global, limit: {rate: 9, per: 1h}}, {name: users, match: {path: /u}, key: user, limit: {rate: 9, per: 1h}}]")
	a.get("POST", "/v1/request", `{"path":"/u","user":"u"}`, 200, new(requestAnswer))
	for limit, want := range map[string]int64{"all": 8, "users": 9} {
		var peeked Take
		a.get("POST", "/v1/peek", fmt.Sprintf(`{"limit":%q,"key":""}`, limit), 200, &peeked)
		require.Equal(t, want, peeked.Remaining, limit)
	}
}

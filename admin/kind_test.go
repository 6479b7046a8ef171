package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// requireNoGo fails if an error contains the name of a Go function, type or field, which callers of HTTP
// cannot use. Every capitalised word outside of quotes counts as such a name, except acronyms and header fields.
func requireNoGo(t testing.TB, w *httptest.ResponseRecorder) {
	t.Helper()
	var p httplimit.Problem
	if w.Header().Get("Content-Type") != "application/problem+json" || json.Unmarshal(w.Body.Bytes(), &p) != nil {
		return
	}
	told := quotedOrHeader.ReplaceAllString(p.Detail, "")
	require.Empty(t, goName.FindString(told), p.Detail)
}

var (
	quotedOrHeader = regexp.MustCompile(`"[^"]*"|'[^']*'|X(-\w+)+|Authorization|Bearer`)
	goName         = regexp.MustCompile(`\b[A-Z][a-z]\w*`)
)

func TestRefusedKindOfLimitNamesItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		const inFlight, counted = `{"limit":"streams","key":"u"%s}`, `{"limit":"tokens","key":"u"%s}`
		const onlyHolds = `limit "tokens" is a fixed_window, and only an in_flight limit has holds: `
		for _, c := range []struct{ path, body, detail string }{
			{"/v1/take", fmt.Sprintf(inFlight, ""), `limit "streams" is in_flight: hold its units by POST /v1/hold`},
			{"/v1/take_all", `{"takes":[` + fmt.Sprintf(counted, "") + `,` + fmt.Sprintf(inFlight, "") + `]}`, `limit "streams" is in_flight: hold its units by POST /v1/hold`},
			{"/v1/debit", fmt.Sprintf(inFlight, ""), `limit "streams" is in_flight: hold its units by POST /v1/hold`},
			{"/v1/reserve", fmt.Sprintf(inFlight, ""), `limit "streams" is in_flight: hold its units by POST /v1/hold`},
			{"/v1/refund", fmt.Sprintf(inFlight, ""), `limit "streams" is in_flight: return its units by POST /v1/release`},
			{"/v1/settle", fmt.Sprintf(inFlight, `,"units":1,"reservation":"x"`), `limit "streams" is in_flight: return its units by POST /v1/release`},
			{"/v1/settle", fmt.Sprintf(counted, `,"units":1,"reservation":"x"`), `the text belongs to no reservation of this limit, key and cluster: send it as POST /v1/reserve returned it, with the same limit and key`},
			{"/v1/settle", `{"limit":"soft","key":"u","units":1,"reservation":"x"}`, `the text belongs to no reservation of this limit, key and cluster: send it as POST /v1/reserve returned it, with the same limit and key`},
			{"/v1/hold", fmt.Sprintf(counted, ""), onlyHolds + `take its units by POST /v1/take or POST /v1/reserve`},
			{"/v1/renew", fmt.Sprintf(counted, `,"hold":"x"`), onlyHolds + `its reservations end by POST /v1/settle`},
			{"/v1/release", fmt.Sprintf(counted, `,"hold":"x"`), onlyHolds + `return its units by POST /v1/refund or POST /v1/settle`},
			{"/v1/release", fmt.Sprintf(inFlight, `,"hold":"x"`), `hold: its text is of another limit, key or cluster, or was changed`},
			{"/v1/overrides", `{"limit":"streams","key":"u","rate":4,"per":"1s"}`, `per is 1s, and streams is in_flight`},
			{"/v1/request", `{"path":"/","user":"u"}`, `limit "streams" is in_flight: send the request to POST /v1/request with a ttl, and release its holds, or keep it out of the rule`},
		} {
			w := a.ask(http.MethodPost, c.path, c.body)
			requireProblem(t, w, c.detail, c.path)
		}
		requireProblem(t, a.ask(http.MethodDelete, "/v1/counts?limit=streams&key=u", ""),
			`limit "streams" is in_flight: it has no count, and its units come back by POST /v1/release, or when its holds expire`, "/v1/counts")
		requireProblem(t, a.ask(http.MethodDelete, "/v1/counts?key=u&limit=/check/"+strings.Repeat("a", 129), ""), "limit has 136 bytes: use at most 135", "/v1/counts")
	})
}

// requireProblem requires a response of status 400 whose detail contains the given text.
func requireProblem(t *testing.T, w *httptest.ResponseRecorder, detail, path string) {
	t.Helper()
	require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", path, w.Body)
	var p httplimit.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Contains(t, p.Detail, detail, path)
}

func TestInvalidOverrideNamesItsField(t *testing.T) {
	log := weir.Limit{Name: "log", Algorithm: weir.SlidingLog, Rate: 1, Per: time.Hour}
	for _, c := range []struct {
		of     weir.Limit
		o      rules.Override
		detail string
	}{
		{log, rules.Override{Rate: 100_000}, ""},
		{log, rules.Override{Rate: 100_001}, "rate is 100001: a sliding_log keeps each unit, and has a lower bound; lower the rate"},
		{log, rules.Override{Rate: 1, Per: time.Microsecond}, "per is 1us: use 1ms to 8784h"},
		{log, rules.Override{Rate: 1, Burst: 1}, "burst is 1, and log is a sliding_log: leave burst out, because only token_bucket and leaky_bucket have a burst"},
	} {
		var wrong faults
		wrong.checkNumbers(c.of, c.o)
		require.Equal(t, c.detail, strings.Join(wrong, "; "))
	}
}

func TestEveryPathOfRemediesIsServed(t *testing.T) {
	served := make(map[string]bool)
	for _, r := range routes {
		served[r.path] = true
	}
	for path, of := range remediesByPath {
		require.True(t, served[path], path)
		for named := range strings.FieldsSeq(of.inFlight + " " + of.counted) {
			if strings.HasPrefix(named, "/v1/") {
				require.True(t, served[strings.TrimRight(named, ",")], named)
			}
		}
	}
}

package admin

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSuggestionIsListedAndAccepted(t *testing.T) {
	d, a := readAPI(t), startTestAPI(t, "rules: [{name: api, key: user, raise: {}, limit: {rate: 2, per: 1m}}]")
	for range 8 {
		var took Take
		a.get("POST", "/v1/take", `{"limit":"api","key":"123"}`, 200, &took)
	}
	s := a.book.Current()
	raw := s.Limiter(&s.Rules()[0].Limits[0], "", "123").ID("123")
	id, since := hex.EncodeToString(raw[:]), time.Now().Add(-time.Hour).Truncate(time.Second)
	value := fmt.Sprintf(`{"denied":0.75,"since":%q,"rate":4,"at":%q,"until":%q}`, since.Format(time.RFC3339), since.Format(time.RFC3339), time.Now().Add(time.Minute).Format(time.RFC3339))
	require.NoError(t, a.node.Publish("hot/api/"+id, 0, []byte(value)))
	require.Eventually(t, func() bool { return len(a.book.Suggestions()) == 1 }, 10*time.Second, 5*time.Millisecond)

	var list Suggestions
	a.get("GET", "/v1/suggestions", "", 200, &list)
	key := "123"
	require.Equal(t, []Suggestion{{Limit: "api", ID: id, Key: &key, Denied: 0.75, Since: since.UTC(), Policy: "2 per 1m, sliding_window, majority_share", Rate: 4}}, list.Suggestions)
	d.exchange(a, "GET", "/v1/suggestions", "", "/v1/suggestions", http.StatusOK)

	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		id, until, detail string
		status            int
	}{
		{"5f", until, `id is "5f": use the 32 hexadecimal digits from the list`, 400},
		{strings.Repeat("0", 32), until, `there is no suggestion for this key of "api": list the suggestions again`, 404},
		{id, "2020-01-01T00:00:00Z", "until is 2020-01-01T00:00:00Z, which is past: use a later time", 400},
	} {
		w := a.ask("POST", "/v1/suggestions", `{"limit":"api","id":"`+c.id+`","until":"`+c.until+`","reason":"a launch"}`)
		require.Equal(t, c.status, w.Code)
		require.Contains(t, w.Body.String(), strings.ReplaceAll(c.detail, `"`, `\"`))
	}
	d.exchange(a, "POST", "/v1/suggestions", `{"limit":"api","id":"`+id+`","until":"`+until+`","reason":"a launch"}`, "/v1/suggestions", http.StatusOK)
	w := a.ask("POST", "/v1/suggestions", `{"limit":"api","id":"`+id+`","until":"`+until+`","reason":"again"}`)
	require.Equal(t, http.StatusNotFound, w.Code, "a suggestion is accepted once")
	o, ok := a.book.OverrideOf("api", "123")
	require.True(t, ok)
	require.Equal(t, []any{int64(4), "token 1", "a launch"}, []any{o.Rate, o.By, o.Reason})
	require.Contains(t, a.log.String(), `msg="an operator set an override" limit=api id=`+id+" rate=4")
}

func TestGarbageTimesDoNotBreakAnswers(t *testing.T) {
	a := startTestAPI(t, "rules: [{name: api, key: user, adapt: {latency: 200ms}, raise: {}, limit: {rate: 200, per: 1m}}]")
	for _, at := range []string{`"9999-12-31T23:59:59.999999999Z"`, `"0000-01-01T00:00:00Z"`} {
		require.NoError(t, a.node.Publish("adapt/api", 0, []byte(`{"factor":0.5,"at":`+at+`}`)))
		require.NoError(t, a.node.Publish("override/api/"+strings.Repeat("0", 32), 0, []byte(`{"rate":5,"at":`+at+`,"until":"9999-12-31T23:59:59.999999999Z"}`)))
		require.NoError(t, a.node.Publish("hot/api/"+strings.Repeat("0", 32), 0, []byte(`{"rate":5,"since":"0000-01-01T00:00:00Z","at":`+at+`}`)))
		serial := a.book.Current().Serial()
		require.Eventually(t, func() bool { return a.book.Current().Serial() > serial }, 10*time.Second, 5*time.Millisecond)
		for _, path := range []string{"/v1/rules", "/v1/stats", "/v1/overrides", "/v1/suggestions"} {
			require.Equal(t, http.StatusOK, a.ask("GET", path, "").Code, "%s %s", path, at)
		}
	}
	require.Len(t, a.book.Overrides(), 1)
	require.Len(t, a.book.Suggestions(), 1)
}

func TestFactorIsShownWithRuleAndStats(t *testing.T) {
	d, a := readAPI(t), startTestAPI(t, "rules: [{name: api, key: user, adapt: {latency: 200ms}, limit: {rate: 200, per: 1m}}]")
	d.exchange(a, "GET", "/v1/rules", "", "/v1/rules", http.StatusOK)
	require.NoError(t, a.node.Publish("adapt/api", 0, []byte(`{"factor":0.5,"reason":"slow","at":"2025-11-30T08:00:00Z"}`)))
	require.Eventually(t, func() bool { return a.book.Current().Adaptations()[0].Factor == 0.5 }, 10*time.Second, 5*time.Millisecond)
	changed := time.UnixMilli(1764489600000).UTC()
	want := Factor{Rule: "api", Factor: 0.5, Reason: "slow", Changed: &changed}
	var stats Stats
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, []Factor{want}, stats.Rules.Factors)
	var answer rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &answer)
	require.Equal(t, &adaptAnswer{"200ms", 0.05, 0.05, 0.2, 1, want}, answer.Rules[0].Adapt)
	require.Equal(t, "100 per 1m, sliding_window, majority_share", answer.Rules[0].Limits[0].Policy)
	d.exchange(a, "GET", "/v1/rules", "", "/v1/rules", http.StatusOK)
	d.exchange(a, "GET", "/v1/stats", "", "/v1/stats", http.StatusOK)
}

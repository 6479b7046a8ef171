package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/strictyaml"
)

// bodyOf returns the body of PUT /v1/rules.
func bodyOf(t testing.TB, text string) string {
	body, err := json.Marshal(map[string]string{"text": text, "by": "jo", "reason": "twice the load"})
	require.NoError(t, err)
	return string(body)
}

const publishable = "version: 9\ntiers: {free: {}, gold: {multiply: 2}}\nrules:\n- {name: api, key: ip, multiply: true, limit: {rate: 70, per: 1h}}\n"

func TestTextIsPublishedAndShown(t *testing.T) {
	a := startTestAPI(t, testRules)
	var before rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &before)
	require.Nil(t, before.Published)

	var put PublishedText
	a.get("PUT", "/v1/rules", bodyOf(t, publishable), 200, &put)
	require.Equal(t, []any{uint64(9), "jo", "twice the load"}, []any{put.Version, put.By, put.Reason})
	require.Len(t, put.Warnings, 1, "tiers do not multiply a limit by address")
	require.Contains(t, a.log.String(), `msg="an operator published rules" version=9 hash=`+put.Hash+` until=forever by=jo reason="twice the load" client="token 1" addr=`)
	require.NotContains(t, a.log.String(), "rate: 70")

	var now rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &now)
	put.Warnings = nil
	require.Equal(t, &put, now.Published)
	require.Equal(t, []any{uint64(9), put.Hash, "70 per 1h, sliding_window, majority_share"}, []any{now.Version, now.Hash, now.Rules[0].Limits[0].Policy})
	var stats Stats
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, &put, stats.Rules.Published)
	require.Nil(t, stats.Rules.RefusedText)
}

func TestInvalidTextIsRefused(t *testing.T) {
	a := startTestAPI(t, strings.Replace(publishable, "9", "8", 1))
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{bodyOf(t, "version: 9\n"), 400, "text:1:1: rules is missing"},
		{bodyOf(t, strings.ReplaceAll(publishable, "rate", "rte")), 400, `text:4:48: unknown field \"rte\": did you mean \"rate\"?`},
		{bodyOf(t, strings.Replace(publishable, "9", "8", 1)), 409, "version is 8: raise it above 8, which is in force"},
		{bodyOf(t, strings.Replace(publishable, "9", "7", 1)), 409, "version is 7: raise it above 8"},
		{`{"text":""}`, 400, "text is empty"},
		{`{"text":"rules: []","until":"2030-01-01T00:00:00Z"}`, 400, `unknown field \"until\"`},
		{bodyOf(t, publishable+strings.Repeat("#", strictyaml.MaxBytes)), 400, "at most 1048576 are read"},
		{bodyOf(t, strings.Repeat("#", maxTextBytes)), 413, "the body is larger than 4194304 bytes"},
	} {
		w := a.ask("PUT", "/v1/rules", c.body)
		require.Equal(t, c.status, w.Code, w.Body)
		require.Contains(t, w.Body.String(), c.want)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, a.ask("PUT", "/v1/switches", `{"rule":"`+strings.Repeat("x", maxBodyBytes)+`"}`).Code, "other bodies stay small")
	require.EqualValues(t, 8, a.book.Current().Version())
}

func TestMembersAdoptPublishedText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := startMembers(t, 1)
		members[0].get("PUT", "/v1/rules", bodyOf(t, publishable), 200, new(PublishedText))
		time.Sleep(time.Second)
		for _, m := range members {
			var now rulesAnswer
			m.get("GET", "/v1/rules", "", 200, &now)
			require.Equal(t, []any{uint64(9), "jo"}, []any{now.Version, now.Published.By}, m.name)
		}
	})
}

package admin

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBlockIsSetListedAndDeleted(t *testing.T) {
	a := startTestAPI(t, "rules:\n- {name: api, key: user, limits: [{rate: 5, per: 1h}, {rate: 9, per: 1h}]}\n- {name: trial, key: user, shadow: true, limit: {rate: 1, per: 1h}}")
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	statusOf := func(request string) int {
		var d requestAnswer
		a.get("POST", "/v1/request", `{"path":"/",`+request+`}`, 200, &d)
		return d.Status
	}
	for _, c := range []struct{ block, query, id, request string }{
		{`"ip":"192.0.2.0/24"`, "?ip=192.0.2.0%2F24", `^ip/192\.0\.2\.0/24$`, `"ip":"192.0.2.9"`},
		{`"ip":"2001:db8::1"`, "?ip=2001:db8::1", `^ip/2001:db8::1/128$`, `"ip":"2001:db8::1"`},
		{`"user":"mallory"`, "?user=mallory", "^user/[0-9a-f]{32}$", `"user":"mallory"`},
		{`"api_key":"sk-secret"`, "?api_key=sk-secret", "^api_key/[0-9a-f]{32}$", `"api_key":"sk-secret"`},
		{`"rule":"api","key":"a\\|b"`, `?rule=api&key=a%5C%7Cb`, "^key/api/[0-9a-f]{32}$", `"user":"a|b"`},
	} {
		require.Equal(t, 200, statusOf(c.request))
		var set blockAnswer
		body := `{` + c.block + `,"until":"` + until.Format(time.RFC3339) + `","reason":"scanner"}`
		a.get("PUT", "/v1/blocks", body, 200, &set)
		require.Regexp(t, c.id, set.ID)
		require.Equal(t, controlAnswer{Until: &until, By: "token 1", Reason: "scanner", At: set.At}, set.controlAnswer)
		require.Contains(t, a.log.String(), `msg="an operator set a block" id=`+set.ID+` until=`+until.Format(time.RFC3339)+` by="token 1" reason=scanner client="token 1" `)
		require.Equal(t, 403, statusOf(c.request), c.block)
		require.Equal(t, 200, statusOf(`"user":"ada"`))

		a.get("PUT", "/v1/blocks", `{`+c.block+`,"by":"jo"}`, 200, &set)
		var all blocksAnswer
		a.get("GET", "/v1/blocks", "", 200, &all)
		require.Len(t, all.Blocks, 1, "the last writer wins")
		require.Equal(t, []any{set.ID, "jo"}, []any{all.Blocks[0].ID, all.Blocks[0].By})

		for _, query := range []string{"?id=" + set.ID, c.query} {
			require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/blocks"+query, "").Code)
			require.Contains(t, a.log.String(), `msg="an operator removed a block" id=`+set.ID+` client="token 1" `)
			require.Equal(t, 200, statusOf(c.request), c.query)
			a.get("PUT", "/v1/blocks", body, 200, new(any))
		}
		require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/blocks"+c.query, "").Code)
	}
	require.NotContains(t, a.log.String(), "sk-secret")

	a.get("PUT", "/v1/blocks", `{"user":"u"}`, 200, new(any))
	for limit, allowed := range map[string]bool{"trial": true, "api/1": false} {
		var take Take
		a.get("POST", "/v1/take", `{"limit":"`+limit+`","key":"u"}`, 200, &take)
		require.Equal(t, allowed, take.Allowed, "a shadow denies nothing")
	}
}

func TestFullStoreRefusesControls(t *testing.T) {
	a := startTestAPI(t, "rules: [{name: api, key: user, limit: {rate: 5, per: 1h}}]")
	a.get("PUT", "/v1/blocks", `{"user":"first"}`, 200, new(any))
	for i := range 16384 - a.node.Stats().Published.Values {
		require.NoError(t, a.node.Publish(fmt.Sprint("other/", i), 0, []byte("x")))
	}
	document := readAPI(t)
	for _, c := range [][3]string{
		{"PUT", "/v1/blocks", `{"user":"second"}`},
		{"PUT", "/v1/switches", `{"rule":"api","mode":"off"}`},
		{"POST", "/v1/overrides", `{"limit":"api","key":"second","rate":1}`},
		{"PUT", "/v1/clients/overrides", `{"user":"second","multiply":2}`},
	} {
		document.exchange(a, c[0], c[1], c[2], c[1], http.StatusInsufficientStorage)
		w := a.ask(c[0], c[1], c[2])
		require.Contains(t, w.Body.String(), "beside 16384 values")
		require.NotContains(t, w.Body.String(), "second")
	}
	var d requestAnswer
	a.get("POST", "/v1/request", `{"path":"/","user":"first"}`, 200, &d)
	require.Equal(t, 403, d.Status, "nothing is evicted")
	require.NoError(t, a.node.Publish("other/1", 0, nil))
	a.get("PUT", "/v1/blocks", `{"user":"second"}`, 200, new(any))
}

func TestOverrideOfZeroBlocksKey(t *testing.T) {
	a := startTestAPI(t, "rules: [{name: api, key: user, limits: [{rate: 5, per: 1h}, {name: b, rate: 9, per: 1h}]}]")
	a.get("POST", "/v1/overrides", `{"limit":"api/b","key":"u","rate":0,"until":"2999-01-01T00:00:00Z"}`, 200, new(any))
	var d requestAnswer
	a.get("POST", "/v1/request", `{"path":"/","user":"u"}`, 200, &d)
	require.Equal(t, 403, d.Status)
	require.Positive(t, d.RetryAfterS)
	var take Take
	a.get("POST", "/v1/take", `{"limit":"api/b","key":"u"}`, 200, &take)
	require.False(t, take.Allowed)
	a.get("POST", "/v1/take", `{"limit":"api/1","key":"u"}`, 200, &take)
	require.True(t, take.Allowed, "the other limit is not overridden")
}

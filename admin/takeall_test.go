package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTakeAllSpendsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAPI(t)
		left := func(limit, key string) int64 {
			var took Take
			a.get("POST", "/v1/take", fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, key), 200, &took)
			return took.Remaining + 1
		}
		both := `{"takes":[{"limit":"api/hourly","key":"u","units":3},{"limit":"api/burst","key":"u","units":15}]}`
		var first, second takeAllAnswer
		w := a.get("POST", "/v1/take_all", both, 200, &first)
		require.True(t, first.Allowed)
		require.Zero(t, first.RetryAfterS)
		require.Equal(t, "api/hourly", first.Takes[0].Name)
		require.Equal(t, "api/burst", first.Takes[1].Name)
		require.Regexp(t, `^"api/hourly";q=\d+;w=\d+, "api/burst";q=20;w=\d+$`, w.Get("RateLimit-Policy"))
		require.Regexp(t, `^"api/hourly";r=\d+;t=\d+, "api/burst";r=[0-6];t=\d+$`, w.Get("RateLimit"))
		require.Empty(t, w.Get("Retry-After"))

		w = a.get("POST", "/v1/take_all", both, 200, &second)
		require.False(t, second.Allowed)
		require.True(t, second.Takes[0].Allowed, "it says what it would answer for itself")
		require.False(t, second.Takes[1].Allowed)
		require.Equal(t, second.Takes[1].RetryAfterS, second.RetryAfterS)
		require.Regexp(t, `^[1-9]\d*$`, w.Get("Retry-After"))
		require.Equal(t, first.Takes[0].Remaining, left("api/hourly", "u"), "what the other denied cost it nothing")
	})
}

func TestInvalidTakeRefusesTakeAll(t *testing.T) {
	a := newTestAPI(t)
	good := `{"limit":"address","key":"w"}`
	for _, c := range []struct {
		takes, says string
		status      int
	}{
		{`[]`, "takes is []: use a list of 1 to 64 objects", 400},
		{`{}`, "takes is {}: use a list of 1 to 64 objects", 400},
		{`"a"`, "use a list of 1 to 64 objects", 400},
		{`[` + strings.Repeat(good+",", 64) + good + `]`, "use a list of 1 to 64 objects", 400},
		{`[` + good + `,1]`, "takes[1] is not a JSON object", 400},
		{`[` + good + `,null]`, "takes[1] is not a JSON object", 400},
		{`[` + good + `,{"limit":"address"}]`, `takes[1]: field \"key\" is missing`, 400},
		{`[` + good + `,{"limit":"address","key":"a","unit":1}]`, `takes[1]: unknown field \"unit\": did you mean`, 400},
		{`[` + good + `,{"limit":"address","key":"a","key":"b"}]`, `field \"key\" is set twice: remove one`, 400},
		{`[` + good + `,{"limit":"address","key":"a","units":"1"}]`, "takes[1]: units is", 400},
		{`[` + good + `,{"limit":"address","key":"a","units":0}]`, "takes[1]: units is 0: use 1 to", 400},
		{`[` + good + `,{"limit":"address","key":"a","tier":"none"}]`, "takes[1]: there is no tier", 400},
		{`[` + good + `,{"limit":"addres","key":"a"}]`, `there is no limit \"addres\"`, 404},
		{`[` + good + `,{"limit":"api/burst","key":"a","units":1000000}]`, "more than the 20 that api/burst can ever grant", 413},
	} {
		w := a.ask("POST", "/v1/take_all", `{"takes":`+c.takes+`}`)
		require.Equal(t, c.status, w.Code, "%s: %s", c.takes, w.Body)
		require.Contains(t, w.Body.String(), c.says, c.takes)
	}
	var one Take
	a.get("POST", "/v1/take", good, http.StatusOK, &one)
	require.Equal(t, one.Limit-1, one.Remaining, "nothing was spent by what was refused")
}

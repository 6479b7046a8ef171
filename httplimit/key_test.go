package httplimit

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestKeysOfClaimsAndParametersCount(t *testing.T) {
	const file = `rules:
- {name: org, key: [claim:org, query:t], limit: {rate: 2, per: 1h}}
- {name: tried, key: query:u, shadow: true, limit: {rate: 1, per: 1h}}
`
	limit := newLimiter(t, file, Options{Claim: func(r *http.Request, name string) string { return name + r.Header.Get("X-Org") }}, weir.Config{})
	handler := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		path, org string
		status    int
	}{
		{"/?t=1", "a", 200},
		{"/?t=1", "a", 200},
		{"/?t=%31", "a", 429},
		{"/?t=2", "a", 200},
		{"/?t=1", "b", 200},
		{"/?t=1&t=3", "b", 400},
		{"/?t=3&u=1&u=2", "b", 200}, // only the key of a shadow is ambiguous
	} {
		w := answer(handler, get(c.path, "192.0.2.1:1", "X-Org", c.org, "Accept", "application/json"))
		require.Equal(t, c.status, w.Code, c.path)
		if c.status == 400 {
			require.JSONEq(t, `{"error": "ambiguous_key", "message": "the request has query:t in a form that servers interpret differently: send it once, and without special characters"}`, w.Body.String())
		}
	}
	require.EqualValues(t, 1, remaining(t, limit, "org", "orgb|1"), "a refused request spends nothing")
	r := limit.Request(get("/", "192.0.2.1:1", "X-Org", "c"))
	require.Equal(t, "orgc", r.Claims.Claim("org"))
}

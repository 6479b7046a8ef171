package admin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageAcceptsTokensAndPasswords(t *testing.T) {
	a := newTestAPI(t)
	shown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("page " + r.URL.Path)) })
	api, err := Handler(a.node, a.book, Options{Tokens: [][]byte{[]byte(testToken)}, Page: shown, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	basic := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("anybody", password) }
	}
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken) }
	for _, c := range []struct {
		about, method, path string
		with                func(*http.Request)
		status              int
		body, challenge     string
	}{
		{"no credentials", "GET", "/page/", func(*http.Request) {}, 401, "", "Basic "},
		{"a password", "GET", "/page/", basic(testToken), 200, "page /", ""},
		{"beside the page", "GET", "/page/events", basic(testToken), 200, "page /events", ""},
		{"a wrong password", "GET", "/page/", basic(testToken + "x"), 401, "", "Basic "},
		{"no password", "GET", "/page/", basic(""), 401, "", "Basic "},
		{"a token", "GET", "/page/", bearer, 200, "page /", ""},
		{"a wrong token", "GET", "/page/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401, "", "Basic "},
		{"two", "GET", "/page/", func(r *http.Request) { basic(testToken)(r); r.Header.Add("Authorization", "Bearer x") }, 401, "", "Basic "},
		{"without the slash", "GET", "/page", basic(testToken), 308, "", ""},
		{"another path", "GET", "/pages", basic(testToken), 401, "", "Bearer "},
		{"a password to the API", "GET", "/v1/stats", basic(testToken), 401, "", "Bearer "},
		{"a token to the API", "GET", "/v1/stats", bearer, 200, "", ""},
		{"another origin", "POST", "/page/act", func(r *http.Request) { bearer(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "", ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			r, w := httptest.NewRequest(c.method, c.path, nil), httptest.NewRecorder()
			c.with(r)
			api.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, w.Body.String())
			if c.body != "" {
				require.Equal(t, c.body, w.Body.String())
			}
			require.Equal(t, c.challenge != "", w.Header().Get("WWW-Authenticate") != "")
			require.True(t, strings.HasPrefix(w.Header().Get("WWW-Authenticate"), c.challenge))
		})
	}
}

func TestPageIsOptional(t *testing.T) {
	a := newTestAPI(t)
	require.Equal(t, http.StatusNotFound, a.ask("GET", "/page/", "").Code)
}

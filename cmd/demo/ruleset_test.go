package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

func TestDemoRulesLimitEachRequest(t *testing.T) {
	t.Parallel()
	quietly := slog.New(slog.NewTextHandler(io.Discard, nil))
	file := rulesFile{name: "rules.yaml", limit: 2, per: time.Minute}
	require.NoError(t, file.write(1, hourly))
	t.Cleanup(file.remove)
	node := testnode.Start(t, weir.Config{})
	book, err := rules.Open(t.Context(), node, file.path, rules.BookOptions{Logger: quietly})
	require.NoError(t, err)
	defer book.Close()
	h, err := newLimitedHandler("gateway-1", node, book)
	require.NoError(t, err)
	send := func(method, path, body string, fields ...string) *http.Response {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	ask := func(path string, fields ...string) *http.Response { return send(http.MethodGet, path, "", fields...) }
	const address = `"address";q=200;w=10`
	for name, c := range map[string]struct {
		path   string
		fields []string
		policy string
	}{
		"a client":               {"/", []string{clientHeader, "a"}, `"client";q=2;w=60`},
		"without a name":         {"/", nil, `"client";q=2;w=60`},
		"an address":             {"/v1/orders", nil, address},
		"a user":                 {"/v1/orders", []string{userHeader, "u"}, address + `, "user/burst";q=20;w=2, "user/hour";q=1000;w=3600`},
		"a user's tier":          {"/v1/orders", []string{userHeader, "u", tierHeader, "premium"}, address + `, "user/burst";q=200;w=2, "user/hour";q=100000;w=3600`},
		"an unknown tier":        {"/v1/orders", []string{userHeader, "u", tierHeader, "gold"}, address + `, "user/burst";q=20;w=2, "user/hour";q=1000;w=3600`},
		"an endpoint":            {"/v1/search", nil, address + `, "search";q=3;w=10`},
		"a path without a limit": {"/health", []string{userHeader, "u"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.policy, ask(c.path, c.fields...).Header.Get("RateLimit-Policy"))
		})
	}

	var got []string
	for range 4 {
		w := send(http.MethodPut, "/v1/files/a", strings.Repeat("0", 40<<10), userHeader, "alice")
		got = append(got, fmt.Sprint(w.StatusCode, " ", w.Header.Get("X-RateLimit-Soft")))
	}
	require.Equal(t, []string{"200 ", "200 ", "200 true", "429 "}, got)
	begun := time.Now()
	for range 2 {
		require.Equal(t, http.StatusOK, send(http.MethodPost, "/v1/exports", "", userHeader, "alice").StatusCode)
	}
	require.Greater(t, time.Since(begun), 1900*time.Millisecond, "the second waited for its turn")
	require.Empty(t, ask("/v1/search", userHeader, "monitoring").Header.Get("RateLimit"))

	var a answer
	begun = time.Now()
	ask("/", clientHeader, "b")
	first := ask("/", clientHeader, "b")
	require.NoError(t, a.read(first))
	require.True(t, a.allowed)
	require.Equal(t, own, a.at)
	require.Equal(t, node.Members()[0].Name, a.owner)
	require.LessOrEqual(t, a.check.From, a.check.To)
	denied := ask("/", clientHeader, "b", "Accept", "application/json")
	a = answer{}
	require.NoError(t, a.read(denied))
	require.False(t, a.allowed)
	after, err := strconv.Atoi(denied.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.LessOrEqual(t, after, 60)
	require.GreaterOrEqual(t, after, 60-int(time.Since(begun)/time.Second))
	require.Equal(t, "0", denied.Header.Get("X-RateLimit-Remaining"))
	require.Equal(t, "application/json", denied.Header.Get("Content-Type"))

	require.NoError(t, file.write(2, hourlyReloaded))
	wait(t, func() bool { return book.Current().Version() == 2 })
	reloaded := ask("/v1/orders", userHeader, "u").Header
	require.Contains(t, reloaded.Get("RateLimit-Policy"), fmt.Sprintf(`"user/hour";q=%d`, hourlyReloaded))
	require.Contains(t, reloaded.Get("RateLimit"), fmt.Sprintf(`"user/hour";r=%d`, hourlyReloaded-4), "used units stay used")
	require.Equal(t, clients, owned(book.Current()), "a single node owns all keys")
	file.remove()
	_, err = os.Stat(file.dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

func TestGatewayForwardsOnlyRequestsWithinRules(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "999999")
		fmt.Fprint(w, r.URL.Path, " for ", r.Header.Get("X-Forwarded-For"))
	}))
	defer service.Close()
	to, err := url.Parse(service.URL)
	require.NoError(t, err)
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte("k1 paid\n\nk2 free\n"), 0o600))
	const secret, before = "a token that nobody guesses", "a token that is rotated out"
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(before+"\n\n"+secret+"\n"), 0o600))
	o := options{listen: lab.FreeAddr(t), admin: lab.FreeAddr(t), token: token, to: to, rules: "rules.yaml", keys: keys, proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + o.admin + "/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)

	ask := func(path, from, key string) (status int, policy, body string) {
		r, err := http.NewRequest(http.MethodGet, "http://"+o.listen+path, nil)
		require.NoError(t, err)
		r.Header.Set("X-Forwarded-For", "198.51.100.7, "+from)
		r.Header.Set("X-Api-Key", key)
		var answer *http.Response
		require.Eventually(t, func() bool { answer, err = http.DefaultClient.Do(r); return err == nil }, time.Minute, 10*time.Millisecond)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Len(t, answer.Header.Values("X-RateLimit-Limit"), 1, "the gateway's alone")
		require.NotEqual(t, "999999", answer.Header.Get("X-RateLimit-Limit"))
		return answer.StatusCode, answer.Header.Get("RateLimit-Policy"), string(text)
	}
	const address = `"address";q=100;w=1`
	status, policy, body := ask("/v1/items", "192.0.2.1", "k1")
	require.Equal(t, 200, status)
	require.Equal(t, address+`, "caller/burst";q=200;w=2, "caller/daily";q=20000;w=86400`, policy)
	require.Equal(t, "/v1/items for 198.51.100.7, 192.0.2.1, 127.0.0.1", body)
	_, policy, _ = ask("/v1/items", "192.0.2.1", "k2")
	require.Equal(t, address+`, "caller/burst";q=10;w=2, "caller/daily";q=1000;w=86400`, policy)
	_, policy, _ = ask("/", "192.0.2.1", "k1")
	require.Equal(t, address, policy)
	// The bucket of callers has 10 units, and regains 5 a second: on a slow machine more
	// requests are needed until one is denied.
	for i, begun := 0, time.Now(); ; i++ {
		if status, _, _ := ask("/v1/items", "192.0.2.9", fmt.Sprint("guess", i)); status == http.StatusTooManyRequests {
			break
		}
		require.LessOrEqual(t, float64(i), 10+5*time.Since(begun).Seconds(), "keys that are made up have one count, the address's")
	}

	for given, want := range map[string]int{"": http.StatusUnauthorized, secret: http.StatusOK, before: http.StatusOK} {
		r, err := http.NewRequest(http.MethodGet, "http://"+o.admin+"/v1/status?api_key=k1&ip=192.0.2.1&tier=paid", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+given)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode)
	}

	end()
	require.NoError(t, <-ended)
}

func TestInvalidKeyFileIsRefused(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte("k1 paid\nk2\n"), 0o600))
	_, err := readCallers(keys)
	require.EqualError(t, err, keys+":2: the line must have two words: write a key and its tier")
	_, err = readCallers(keys + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)
	none, err := readCallers("")
	require.NoError(t, err)
	require.Empty(t, none)
}

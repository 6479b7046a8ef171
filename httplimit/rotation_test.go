package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// docs/rotation.md describes how to replace a cluster: at first the old cluster decides, and the
// new cluster counts the requests that are admitted. Later both clusters must admit a request.
func TestRequestIsCountedByTwoClusters(t *testing.T) {
	const file = `rules: [{name: per address, key: ip, limit: {algorithm: sliding_log, rate: 5, per: 1h}}]`
	old := newLimiter(t, file, Options{}, weir.Config{})
	next := newLimiter(t, file, Options{NoXHeaders: true, NoIETFHeaders: true}, weir.Config{})
	oldFirst := old.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := next.Request(r)
		next.Check(r.Context(), &request)
		hello.ServeHTTP(w, r)
	}))
	both := old.Handler(next.Handler(hello))
	const first, second, third = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	admits := func(h http.Handler, from string, admitted int) (last *httptest.ResponseRecorder) {
		t.Helper()
		passed := 0
		for range 8 {
			if last = answer(h, get("/", from)); last.Code == http.StatusOK {
				passed++
			} else {
				require.Equal(t, http.StatusTooManyRequests, last.Code)
				require.NotEmpty(t, last.Header().Get(retryAfterField))
			}
		}
		require.Equal(t, admitted, passed)
		return last
	}
	for i, h := range []http.Handler{oldFirst, both} {
		from := []string{first, second}[i]
		admits(h, from, 5)
		require.Zero(t, remaining(t, old, "per address", from))
		require.Zero(t, remaining(t, next, "per address", from))
	}
	admits(next.Handler(hello), third, 5)
	require.Equal(t, http.StatusOK, answer(oldFirst, get("/", third)).Code, "the next one denies nothing yet")
	last := answer(both, get("/", third))
	require.Equal(t, http.StatusTooManyRequests, last.Code)
	require.Equal(t, []string{"3"}, last.Header()[remainingField], "the fields are the old one's")
}

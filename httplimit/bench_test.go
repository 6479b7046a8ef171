package httplimit

import (
	"net/http"
	"testing"

	"github.com/weir-go/weir"
)

// BenchmarkHandler measures a request that the node decides alone.
func BenchmarkHandler(b *testing.B) {
	for _, c := range []struct{ about, file string }{
		{"one limit", "rules: [{name: r, key: user, limit: {rate: 1000000000, per: 1h}}]"},
		{"three limits", threeLimits},
		{"one limit that adapts", "rules: [{name: r, key: user, limit: {algorithm: token_bucket, rate: 1000000000, per: 1s}, adapt: {latency: 1s}}]"},
	} {
		b.Run(c.about, func(b *testing.B) {
			h := newLimiter(b, c.file, byUser, weir.Config{}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			w, r := &room{make(http.Header)}, get("/v1/items", "192.0.2.1", "X-User", "ada")
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

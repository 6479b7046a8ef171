package conformance

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/rules"
)

// file has a limit of every kind that is reported in a header field.
const file = `
tiers: {free: {}, paid: {multiply: 10}}
default_tier: free
rules:
- {name: "a b._-:c 0", key: ip, limit: {rate: 40, per: 1h}}
- {name: log, match: {path: /log/}, key: ip, limit: {algorithm: sliding_log, rate: 20, per: 90m}}
- {name: bucket, match: {path: /bucket/}, key: ip, limit: {algorithm: token_bucket, rate: 1, per: 500ms, burst: 3}}
- {name: queue, match: {path: /queue/}, key: ip, queue: 1ms, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 2}}
- {name: most, match: {path: /most/}, key: ip, limit: {algorithm: token_bucket, rate: 100000000000, per: 8784h}}
- name: days
  match: {path: /days/}
  key: user
  missing_key: ip
  limits:
  - {name: day, rate: 3, calendar: day, zone: Europe/Berlin}
  - {name: week, rate: 8, calendar: week}
  - {name: month, algorithm: fixed_window, rate: 12, calendar: month}
- {name: bytes, match: {method: POST}, key: ip, cost: {from: content_length, unit: 1}, limit: {rate: 1000, per: 1h}}
- {name: cost, match: {header: {X-Cost: "*"}}, key: ip, cost: header:X-Cost, limit: {rate: 30, per: 1h}}
- {name: soft, match: {path: /soft/}, key: ip, limit: {rate: 2, per: 1h}, soft: {over: 50%, for: 10m}}
- {name: shadow, key: ip, shadow: true, limit: {rate: 1, per: 1h}}
- {name: closed, match: {path: /closed/}, key: ip, partition: fail_closed, limit: {rate: 30, per: 1h}}
`

// TestFieldsAreStructuredFields checks header fields with a third-party parser against
// the draft that defines them, for random requests, in good health and in an outage.
func TestFieldsAreStructuredFields(t *testing.T) {
	seen := map[int]int{}
	for name, expect := range map[string]int{"all are here": 0, "two of three are missing": 3} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				begun := time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)
				var passed atomic.Int64
				now := func() time.Time { return begun.Add(time.Duration(passed.Load())) }
				node, err := weir.Start(t.Context(), weir.Config{Expect: expect, Now: now, Logger: quiet})
				require.NoError(rt, err)
				defer node.Close()
				set, err := rules.Parse("rules.yaml", []byte(file))
				require.NoError(rt, err)
				book, err := rules.Static(node, set)
				require.NoError(rt, err)
				defer book.Close()
				limit, err := httplimit.New(node, book, httplimit.Options{User: httplimit.HeaderValue("X-User"), Tier: httplimit.HeaderValue("X-Tier"), Logger: quiet})
				require.NoError(rt, err)
				h := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				for range rapid.IntRange(1, 30).Draw(rt, "requests") {
					method := rapid.SampledFrom([]string{http.MethodGet, http.MethodPost}).Draw(rt, "method")
					path := rapid.SampledFrom([]string{"/log/", "/bucket/", "/queue/", "/most/", "/days/", "/soft/", "/closed/"}).Draw(rt, "path")
					r := httptest.NewRequest(method, path, nil)
					r.Header.Set("X-User", rapid.SampledFrom([]string{"", "u", "v"}).Draw(rt, "user"))
					r.Header.Set("X-Tier", rapid.SampledFrom([]string{"", "paid"}).Draw(rt, "tier"))
					r.ContentLength = rapid.Int64Range(0, 1200).Draw(rt, "length")
					if cost := rapid.IntRange(0, 50).Draw(rt, "cost"); cost > 0 {
						r.Header.Set("X-Cost", strconv.Itoa(cost))
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					seen[w.Code]++
					requireStructured(rt, w.Header())
					passed.Add(rapid.Int64Range(0, int64(2*time.Hour)).Draw(rt, "later"))
				}
			})
		})
	}
	for _, status := range []int{200, 413, 429, 503} {
		require.NotZero(t, seen[status], "no answer was %d: %v", status, seen)
	}
}

// requireStructured requires that the fields conform to the draft.
func requireStructured(t require.TestingT, h http.Header) {
	for name, parameters := range map[string][]string{"RateLimit": {"r", "t"}, "RateLimit-Policy": {"q", "w", "qu"}} {
		if len(h.Values(name)) == 0 {
			continue
		}
		list, err := httpsfv.UnmarshalList(h.Values(name))
		require.NoError(t, err)
		require.NotEmpty(t, list)
		for _, member := range list {
			item := member.(httpsfv.Item)
			require.IsType(t, "", item.Value, "a String, not a Token")
			for i, p := range parameters {
				value, ok := item.Params.Get(p)
				require.True(t, ok || i > 0, "%s of %s", p, name)
				if n, isInt := value.(int64); ok && p != "qu" {
					require.True(t, isInt)
					require.GreaterOrEqual(t, n, int64(0))
					require.True(t, n > 0 || p != "w")
				}
			}
			for _, p := range item.Params.Names() {
				require.Contains(t, parameters, p)
			}
		}
		again, err := httpsfv.Marshal(list)
		require.NoError(t, err)
		require.Equal(t, again, h.Get(name))
	}
}

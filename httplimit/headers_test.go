package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/rules"
)

// headerFields are the header fields of a response that differ between the cases.
type headerFields struct {
	limit, remaining, reset int64 // values of X-RateLimit-*; the reset in seconds from noon; 0 if absent
	rateLimit, policy       string
	retryAfter              int64 // 0 if absent
	soft                    bool
}

// readFields reads the fields of headerFields, and requires the fields that the status implies.
func readFields(t *testing.T, w *httptest.ResponseRecorder) (s headerFields) {
	t.Helper()
	h := w.Header()
	number := func(name string) int64 {
		require.LessOrEqual(t, len(h.Values(name)), 1, name)
		if h.Get(name) == "" {
			return 0
		}
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		require.NoError(t, err, name)
		return n
	}
	s = headerFields{number("X-RateLimit-Limit"), number("X-RateLimit-Remaining"), number("X-RateLimit-Reset"), h.Get("RateLimit"), h.Get("RateLimit-Policy"), number("Retry-After"), h.Get("X-RateLimit-Soft") == "true"}
	for _, name := range []string{"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		require.Equal(t, h.Get("X-RateLimit-Limit") == "", h.Get(name) == "", name)
	}
	if s.reset != 0 {
		s.reset -= noon.Unix()
	}
	require.Equal(t, s.soft, h.Get("X-RateLimit-Soft") != "")
	media, cached := "text/plain", ""
	if w.Code != http.StatusOK {
		media, cached = "application/problem+json", "no-store"
	}
	require.Equal(t, []string{media, cached}, []string{h.Get("Content-Type"), h.Get("Cache-Control")})
	return s
}

// Each case has all header fields of the response to the last of its requests.
func TestHeaderFieldsMatchDecisions(t *testing.T) {
	const hourly = "rules:\n- {name: hourly, key: ip, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n"
	missing := weir.Config{Expect: 3} // this node expects two other nodes, and is connected to none
	for _, c := range []struct {
		about    string
		rules    string
		o        Options
		cfg      weir.Config
		fields   []string // header of the request
		length   int64    // length of the content of the request
		requests int
		status   int
		want     headerFields
	}{
		{
			about: "allowed", rules: hourly, requests: 1, status: 200,
			want: headerFields{limit: 2, remaining: 1, reset: 3600, rateLimit: `"hourly";r=1;t=3600`, policy: `"hourly";q=2;w=3600`},
		}, {
			about: "denied", rules: hourly, requests: 3, status: 429,
			want: headerFields{limit: 2, remaining: 0, reset: 3600, rateLimit: `"hourly";r=0;t=3600`, policy: `"hourly";q=2;w=3600`, retryAfter: 3600},
		}, {
			about: "denied, without the de facto fields", rules: hourly, o: Options{NoXHeaders: true}, requests: 3, status: 429,
			want: headerFields{rateLimit: `"hourly";r=0;t=3600`, policy: `"hourly";q=2;w=3600`, retryAfter: 3600},
		}, {
			about: "denied, without the IETF's fields", rules: hourly, o: Options{NoIETFHeaders: true}, requests: 3, status: 429,
			want: headerFields{limit: 2, remaining: 0, reset: 3600, retryAfter: 3600},
		}, {
			about: "denied, without either", rules: hourly, o: Options{NoXHeaders: true, NoIETFHeaders: true}, requests: 3, status: 429,
			want: headerFields{retryAfter: 3600},
		}, {
			about:    "several limits: the strictest is shown, and all are told, with parts of seconds rounded up",
			rules:    "rules:\n- name: api\n  key: ip\n  limits:\n  - {name: burst, algorithm: token_bucket, rate: 10, per: 1s, burst: 25}\n  - {name: hourly, algorithm: fixed_window, rate: 4, per: 1h}\n- {name: daily, key: global, limit: {algorithm: fixed_window, rate: 1000, calendar: day}}\n- {name: weekly, key: global, limit: {rate: 5000, calendar: week}}\n- {name: monthly, key: global, limit: {algorithm: fixed_window, rate: 10000, calendar: month}}\n",
			requests: 1, status: 200,
			want: headerFields{limit: 4, remaining: 3, reset: 3600, rateLimit: `"api/burst";r=24;t=1, "api/hourly";r=3;t=3600, "daily";r=999;t=43200, "weekly";r=4999;t=129600, "monthly";r=9999;t=820800`, policy: `"api/burst";q=25;w=3, "api/hourly";q=4;w=3600, "daily";q=1000;w=86400, "weekly";q=5000;w=604800, "monthly";q=10000`},
		}, {
			about:    "several limits, of which one denies: it is shown",
			rules:    "rules:\n- name: api\n  key: ip\n  limits:\n  - {name: burst, algorithm: token_bucket, rate: 10, per: 1m, burst: 2}\n  - {name: hourly, algorithm: fixed_window, rate: 4, per: 1h}\n",
			requests: 3, status: 429,
			want: headerFields{limit: 2, remaining: 0, reset: 12, rateLimit: `"api/burst";r=0;t=12, "api/hourly";r=2;t=3600`, policy: `"api/burst";q=2;w=12, "api/hourly";q=4;w=3600`, retryAfter: 6},
		}, {
			about:    "a shadow tells clients nothing",
			rules:    "rules:\n- {name: tried, key: ip, shadow: true, limit: {rate: 1, per: 1h}}\n",
			requests: 3, status: 200,
		}, {
			about:    "on the overrun of a soft limit",
			rules:    "rules:\n- {name: hourly, key: ip, soft: {over: 50%, for: 10m}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n",
			requests: 3, status: 200,
			want: headerFields{limit: 2, remaining: 0, reset: 3600, rateLimit: `"hourly";r=0;t=3600`, policy: `"hourly";q=2;w=3600`, soft: true},
		}, {
			about:    "on the overrun of one of several limits: the others are told as they are",
			rules:    "rules:\n- {name: hourly, key: ip, soft: {over: 50%, for: 10m}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n- {name: daily, key: ip, limit: {algorithm: fixed_window, rate: 10, calendar: day}}\n- {name: tried, key: ip, shadow: true, limit: {rate: 1, per: 1h}}\n",
			requests: 3, status: 200,
			want: headerFields{limit: 2, remaining: 0, reset: 3600, rateLimit: `"hourly";r=0;t=3600, "daily";r=7;t=43200`, policy: `"hourly";q=2;w=3600, "daily";q=10;w=86400`, soft: true},
		}, {
			about:    "on an overrun for a request that costs more than is left: what is left stays",
			rules:    "rules:\n- {name: hourly, key: ip, cost: 3, soft: {over: 100%, for: 10m}, limit: {algorithm: fixed_window, rate: 5, per: 1h}}\n",
			requests: 2, status: 200,
			want: headerFields{limit: 5, remaining: 2, reset: 3600, rateLimit: `"hourly";r=2;t=3600`, policy: `"hourly";q=5;w=3600`, soft: true},
		}, {
			about:    "on an overrun, without either kind of fields: the mark stays",
			rules:    "rules:\n- {name: hourly, key: ip, soft: {over: 50%, for: 10m}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n",
			o:        Options{NoXHeaders: true, NoIETFHeaders: true},
			requests: 3, status: 200,
			want: headerFields{soft: true},
		}, {
			about:    "by the numbers of a tier",
			rules:    "tiers: {free: {}, paid: {multiply: 2.5}}\ndefault_tier: free\nrules:\n- {name: hourly, key: ip, multiply: true, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n",
			o:        Options{Tier: HeaderValue("X-Tier")},
			fields:   []string{"X-Tier", "paid"},
			requests: 3, status: 200,
			want: headerFields{limit: 5, remaining: 2, reset: 3600, rateLimit: `"hourly";r=2;t=3600`, policy: `"hourly";q=5;w=3600`},
		}, {
			about:    "failed open: the whole limit, by this node's count alone",
			rules:    "rules:\n- {name: hourly, key: ip, partition: fail_open, limit: {algorithm: fixed_window, rate: 30, per: 1h}}\n",
			cfg:      missing,
			requests: 1, status: 200,
			want: headerFields{limit: 30, remaining: 29, reset: 3600, rateLimit: `"hourly";r=29;t=3600`, policy: `"hourly";q=30;w=3600`},
		}, {
			about:    "failed open beside failed closed in shadow: as if the shadow were not there",
			rules:    "rules:\n- {name: hourly, key: ip, partition: fail_open, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n- {name: tried, key: ip, shadow: true, partition: fail_closed, limit: {rate: 1, per: 1h}}\n",
			cfg:      missing,
			requests: 2, status: 200,
			want: headerFields{limit: 2, remaining: 0, reset: 3600, rateLimit: `"hourly";r=0;t=3600`, policy: `"hourly";q=2;w=3600`},
		}, {
			about:    "within a share: the share is the limit, and the policy is as ever",
			rules:    "rules:\n- {name: hourly, key: ip, partition: fair_share, limit: {algorithm: fixed_window, rate: 30, per: 1h}}\n",
			cfg:      missing,
			requests: 1, status: 200,
			want: headerFields{limit: 10, remaining: 9, reset: 3600, rateLimit: `"hourly";r=9;t=3600`, policy: `"hourly";q=30;w=3600`},
		}, {
			about:    "failed closed: not the client's fault, and nothing is known of its count",
			rules:    "rules:\n- {name: hourly, key: ip, partition: fail_closed, limit: {algorithm: fixed_window, rate: 30, per: 1h}}\n",
			cfg:      missing,
			requests: 1, status: 503,
			want: headerFields{policy: `"hourly";q=30;w=3600`, retryAfter: 1},
		}, {
			about:    "failed closed costs the other limits nothing",
			rules:    "rules:\n- {name: hourly, key: ip, partition: fail_closed, limit: {algorithm: fixed_window, rate: 30, per: 1h}}\n- {name: own, key: ip, match: {path: /x}, partition: fail_open, cost: {from: header:X-Cost, default: 2}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n",
			cfg:      missing,
			requests: 1, status: 503,
			want: headerFields{limit: 2, remaining: 2, reset: 0, rateLimit: `"own";r=2;t=0`, policy: `"hourly";q=30;w=3600, "own";q=2;w=3600`, retryAfter: 1},
		}, {
			about:    "a shadow that fails closed denies nothing",
			rules:    "rules:\n- {name: hourly, key: ip, shadow: true, partition: fail_closed, limit: {algorithm: fixed_window, rate: 30, per: 1h}}\n",
			cfg:      missing,
			requests: 1, status: 200,
		}, {
			about:    "more than the limit can ever grant",
			rules:    hourly + "- {name: costly, key: ip, cost: header:X-Cost, limit: {rate: 10, per: 1m}}\n",
			fields:   []string{"X-Cost", "11"},
			requests: 1, status: 413,
			want: headerFields{policy: `"hourly";q=2;w=3600, "costly";q=10;w=60`},
		}, {
			about:    "more than a shadow can ever grant",
			rules:    "rules:\n- {name: costly, key: ip, shadow: true, cost: header:X-Cost, limit: {rate: 10, per: 1m}}\n",
			fields:   []string{"X-Cost", "11"},
			requests: 1, status: 200,
		}, {
			about:    "a cost of nothing is not asked for",
			rules:    "rules:\n- {name: costly, key: ip, cost: header:X-Cost, limit: {rate: 10, per: 1m}}\n",
			fields:   []string{"X-Cost", "0"},
			requests: 30, status: 200,
		}, {
			about:    "bytes are told as such",
			rules:    "rules:\n- {name: upload, key: ip, cost: content_length, limit: {algorithm: fixed_window, rate: 1000, per: 250ms}}\n",
			length:   300,
			requests: 1, status: 200,
			want: headerFields{limit: 1000, remaining: 700, reset: 1, rateLimit: `"upload";r=700;t=1`, policy: `"upload";q=1000;w=1;qu="content-bytes"`},
		}, {
			about:    "a turn in a queue",
			rules:    "rules:\n- {name: reports, key: ip, queue: 1s, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 3}}\n",
			requests: 1, status: 200,
			want: headerFields{limit: 3, remaining: 2, reset: 60, rateLimit: `"reports";r=2;t=60`, policy: `"reports";q=3;w=180`},
		}, {
			about:    "no turn in a queue in time",
			rules:    "rules:\n- {name: reports, key: ip, queue: 1s, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 3}}\n",
			requests: 2, status: 429,
			want: headerFields{limit: 3, remaining: 2, reset: 60, rateLimit: `"reports";r=2;t=60`, policy: `"reports";q=3;w=180`, retryAfter: 59},
		}, {
			about: "denied, although exempt", rules: "exempt: {ip: 192.0.2.0/24}\ndeny: {ip: 192.0.2.0/24}\n" + hourly, requests: 5, status: 403,
		}, {
			about: "a denied key of a shadow", rules: "deny: {key: {tried: 192.0.2.1}}\nrules:\n- {name: tried, key: ip, shadow: true, limit: {rate: 1, per: 1h}}\n", requests: 5, status: 200,
		}, {
			about: "denied and switched off", rules: "enabled: false\ndeny: {ip: 192.0.2.0/24}\n" + hourly, requests: 5, status: 200,
		}, {
			about: "exempt", rules: "exempt: {ip: 192.0.2.0/24}\n" + hourly, requests: 5, status: 200,
		}, {
			about: "switched off", rules: "enabled: false\n" + hourly, requests: 5, status: 200,
		}, {
			about: "skipped", rules: hourly, o: Options{Skip: func(*http.Request) bool { return true }}, requests: 5, status: 200,
		}, {
			about:    "no rule",
			rules:    "rules:\n- {name: other, match: {path: /y}, key: ip, limit: {rate: 1, per: 1h}}\n",
			requests: 5, status: 200,
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			c.cfg.Now = func() time.Time { return noon }
			m := newLimiter(t, c.rules, c.o, c.cfg)
			m.now = c.cfg.Now
			h := m.Handler(hello)
			for range c.requests - 1 {
				answer(h, get("/x", "192.0.2.1", c.fields...))
			}
			last := get("/x", "192.0.2.1", c.fields...)
			last.ContentLength = c.length
			w := answer(h, last)
			require.Equal(t, c.status, w.Code, w.Body)
			require.Equal(t, c.want, readFields(t, w))
		})
	}
}

// A client that was denied, or has no units left, waits for the time in one of the three fields. Its next
// request is admitted. After the time of X-RateLimit-Reset, and after the t of RateLimit, the client has the
// whole limit. These two times differ by less than a second, and t is not less than Retry-After.
func TestEachHeaderFieldTellsWhenToRetry(t *testing.T) {
	fields := map[string]func(h http.Header, now time.Time) time.Duration{
		"X-RateLimit-Reset": func(h http.Header, now time.Time) time.Duration {
			at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
			require.NoError(t, err)
			return time.Unix(at, 0).Sub(now)
		},
		"RateLimit": func(h http.Header, _ time.Time) time.Duration {
			_, text, _ := strings.Cut(h.Get("RateLimit"), ";t=")
			s, err := strconv.Atoi(text)
			require.NoError(t, err)
			return time.Duration(s) * time.Second
		},
		"Retry-After": func(h http.Header, _ time.Time) time.Duration {
			s, err := strconv.Atoi(h.Get("Retry-After"))
			require.NoError(t, err)
			return time.Duration(s) * time.Second
		},
	}
	rates := []int{1, 3, 40, 2, 5}
	rates = rates[:testenv.PickFull(t, 3, len(rates))]
	heeded, turn := testenv.PickFull(t, 1, 3), 0 // turn modulo 3 is the index of the field that a client uses
	for _, numbers := range []string{
		"algorithm: sliding_window, rate: %d, per: 97s", "algorithm: sliding_log, rate: %d, per: 97s", "algorithm: fixed_window, rate: %d, per: 97s",
		"algorithm: token_bucket, rate: %d, per: 97s", "algorithm: leaky_bucket, rate: 7, burst: %d, per: 97s",
	} {
		for _, rate := range rates {
			for _, expect := range []int{0, 3} {
				for range heeded {
					ahead := []string{"X-RateLimit-Reset", "RateLimit", "Retry-After"}[turn%3]
					turn++
					var passed atomic.Int64 // time since noon; goroutines of the node read it too
					now := func() time.Time { return noon.Add(time.Duration(passed.Load())) }
					sleep := func(d time.Duration) { passed.Add(int64(d)) }
					slept := 0
					cfg := weir.Config{Now: now, Expect: expect}
					m := newLimiter(t, "rules:\n- {name: x, key: ip, partition: fair_share, limit: {"+fmt.Sprintf(numbers, rate)+"}}\n", Options{}, cfg)
					m.now = cfg.Now
					h := m.Handler(hello)
					must := false
					for i := range 40 {
						if !must {
							sleep(time.Duration(i*i%7) * 333 * time.Millisecond)
						}
						w := answer(h, get("/x", "192.0.2.1"))
						if w.Header().Get("X-RateLimit-Limit") == "0" {
							break // the share is 0
						}
						about := fmt.Sprintf("%s, %d, %s, request %d: %s", numbers, rate, ahead, i, w.Header())
						if must {
							require.Equal(t, http.StatusOK, w.Code, about)
							if ahead != "Retry-After" {
								most, err := strconv.Atoi(w.Header().Get("X-RateLimit-Limit"))
								require.NoError(t, err)
								require.Equal(t, strconv.Itoa(most-1), w.Header().Get("X-RateLimit-Remaining"), about)
							}
						}
						denied := w.Code == http.StatusTooManyRequests
						if denied {
							require.LessOrEqual(t, fields["Retry-After"](w.Header(), now()), fields["RateLimit"](w.Header(), now()), about)
						}
						require.Less(t, (fields["RateLimit"](w.Header(), now()) - fields["X-RateLimit-Reset"](w.Header(), now())).Abs(), time.Second, about)
						// Every other time the client does not wait.
						must = (denied || ahead != "Retry-After") && w.Header().Get("X-RateLimit-Remaining") == "0" && i%2 == 0
						if must {
							slept++
							sleep(fields[ahead](w.Header(), now()))
						}
					}
					require.True(t, slept > 0 || expect > 0 || rate == 40, "%s, %d", numbers, rate)
				}
			}
		}
	}
}

func TestBodyFormMatchesAccept(t *testing.T) {
	exhausted := "rules:\n- name: api\n  key: ip\n  limits:\n  - {name: a, algorithm: fixed_window, rate: 1, per: 1h}\n  - {name: b, algorithm: fixed_window, rate: 1, per: 30m}\n"
	closed := "rules:\n- {name: api, key: ip, partition: fail_closed, limit: {rate: 30, per: 1h}}\n"
	large := "rules:\n- {name: api, key: ip, cost: {from: header:X-Cost, default: 20}, limit: {rate: 10, per: 1h}}\n"
	for _, c := range []struct {
		about, rules, accept string
		cfg                  weir.Config
		status               int
		contentType, body    string
	}{
		{"a problem", exhausted, "application/problem+json", weir.Config{}, 429, "application/problem+json",
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"rate limit exceeded (\"api/a\", \"api/b\"): try again in 3600 s","violated-policies":["api/a","api/b"]}`},
		{"JSON", exhausted, "application/json", weir.Config{}, 429, "application/json",
			`{"error":"rate_limit_exceeded","message":"rate limit exceeded (\"api/a\", \"api/b\"): try again in 3600 s","retry_after":3600}`},
		{"text", exhausted, "text/plain", weir.Config{}, 429, "text/plain; charset=utf-8",
			`rate limit exceeded ("api/a", "api/b"): try again in 3600 s`},
		{"a problem, failed closed", closed, "", weir.Config{Expect: 3}, 503, "application/problem+json",
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,"detail":"requests cannot be counted at the moment: try again in 1 s","violated-policies":["api"]}`},
		{"JSON, failed closed", closed, "application/json", weir.Config{Expect: 3}, 503, "application/json",
			`{"error":"temporarily_unavailable","message":"requests cannot be counted at the moment: try again in 1 s","retry_after":1}`},
		{"a problem, too large", large, "", weir.Config{}, 413, "application/problem+json",
			`{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"the request costs more than its limit can ever grant (\"api\")","violated-policies":["api"]}`},
		{"JSON, too large", large, "application/json", weir.Config{}, 413, "application/json",
			`{"error":"request_too_large","message":"the request costs more than its limit can ever grant (\"api\")"}`},
	} {
		t.Run(c.about, func(t *testing.T) {
			c.cfg.Now = func() time.Time { return noon }
			h := newLimiter(t, c.rules, Options{}, c.cfg).Handler(hello)
			answer(h, get("/", "192.0.2.1"))
			r := get("/", "192.0.2.1", "Accept", c.accept)
			w := answer(h, r)
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.contentType, w.Header().Get("Content-Type"))
			require.Equal(t, c.body+"\n", w.Body.String())
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			if strings.HasSuffix(c.contentType, "json") {
				require.True(t, json.Valid(w.Body.Bytes()))
			}
			r.Method = http.MethodHead
			require.Empty(t, answer(h, r).Body.String())
		})
	}
}

func TestAcceptFollowsRFC9110(t *testing.T) {
	for accept, want := range map[string]form{
		"":                                  asProblem,
		"*/*":                               asProblem,
		"application/*":                     asProblem,
		"application/json":                  asJSON,
		"Application/JSON ; charset=utf-8":  asJSON,
		"text/plain":                        asText,
		"text/*;q=0.5, application/json":    asJSON,
		"application/json, text/plain, */*": asJSON,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": asHTML,
		"application/json;q=0.2, application/problem+json;q=0.1":          asJSON,
		"application/json;q=0, */*":                                       asProblem,
		"text/plain;q=0.1, text/html;q=0.9, application/json;q=0.5":       asHTML,
		"application/problem+json;q=0, */*":                               asJSON,
		"application/problem+json;q=-1":                                   asProblem,
		"application/problem+json;q=0, application/json;q=0, */*":         asText,
		"image/png":                                 asProblem,
		"application/json;q=2":                      asProblem,
		"application/json;q=x":                      asProblem,
		"text/plain;q=NaN":                          asProblem,
		",,;;q=,=,/":                                asProblem,
		strings.Repeat("text/plain,", 1):            asText,
		strings.Repeat("a/b,", 1000) + "text/plain": asProblem, // the end of a long value is ignored
	} {
		require.Equal(t, want, formFor([]string{accept}), accept)
	}
	require.Equal(t, asText, formFor([]string{"image/png", "text/plain"}), "many lines are one list")
	require.Equal(t, asProblem, formFor(nil))
}

// The texts of a denial come from the file, the rule and the tier, and describe the limit with the longest wait.
func TestDenialHasTextsOfRuleAndTier(t *testing.T) {
	const file = `
tiers: {free: {}, "a b": {multiply: 2}}
denied: {title: "Too <much>", headers: {X-Plan: "{tier}, {limit} per {window}"}}
rules:
- name: api
  match: {path: /api}
  key: ip
  multiply: true
  denied:
    detail: 'You exceeded your "hourly" limit of {limit} & {units} more. {rule} {name} {remaining} {retry_after} {reset} {'
    upgrade_url: "https://example.com/up?a=1&tier={tier}"
    tiers: {free: {html: "<style>p{color:red}</style>{title}|{detail}|{upgrade_url}|{tier}"}}
  limits:
  - {name: s, algorithm: fixed_window, rate: 1, per: 1m}
  - {name: h, algorithm: fixed_window, rate: 1, per: 1h}
- {name: other, match: {path: /other}, key: ip, denied: {title: Other, headers: {}}, limit: {algorithm: fixed_window, rate: 1, calendar: day}}
- {name: failed, match: {path: /failed}, key: ip, partition: fail_closed, limit: {rate: 1, per: 1h}}
`
	m := newLimiter(t, file, Options{Tier: HeaderValue("X-Tier"), Client: RemoteAddr()}, weir.Config{Now: func() time.Time { return noon }})
	m.now = func() time.Time { return noon }
	h := m.Handler(hello)
	reset := noon.Add(time.Hour).Format(time.RFC3339)
	detail := "You exceeded your \"hourly\" limit of %d & 1 more. api api/h 0 3600 " + reset + " {"
	escaped := strings.NewReplacer(`"`, "&#34;", "&", "&amp;").Replace(detail)
	for _, c := range []struct{ path, tier, accept, contentType, plan, body string }{
		{"/api", "a b", "application/problem+json", "application/problem+json", "a b, 2 per 1h",
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too \u003cmuch\u003e","status":429,"detail":` + mustJSON(t, fmt.Sprintf(detail, 2)) + `,"violated-policies":["api/s","api/h"],"upgrade_url":"https://example.com/up?a=1\u0026tier=a%20b"}`},
		{"/api", "", "application/json", "application/json", ", 1 per 1h", `{"error":"rate_limit_exceeded","message":` + mustJSON(t, fmt.Sprintf(detail, 1)) + `,"retry_after":3600,"upgrade_url":"https://example.com/up?a=1\u0026tier="}`},
		{"/api", "", "text/plain", "text/plain; charset=utf-8", ", 1 per 1h", fmt.Sprintf(detail, 1) + "\nhttps://example.com/up?a=1&tier="},
		{"/api", "", "text/html", "text/html; charset=utf-8", ", 1 per 1h", `<!DOCTYPE html><meta charset="utf-8"><title>Too &lt;much&gt;</title><h1>Too &lt;much&gt;</h1><p>` + fmt.Sprintf(escaped, 1) + `</p><p><a href="https://example.com/up?a=1&amp;tier=">https://example.com/up?a=1&amp;tier=</a></p>`},
		{"/api", "free", "text/html", "text/html; charset=utf-8", "free, 1 per 1h", `<style>p{color:red}</style>Too &lt;much&gt;|` + fmt.Sprintf(escaped, 1) + `|https://example.com/up?a=1&amp;tier=free|free`},
		{"/other", "free", "application/json", "application/json", "free, 1 per day", `{"error":"rate_limit_exceeded","message":"rate limit exceeded (\"other\"): try again in 43200 s","retry_after":43200}`},
		{"/other", "free", "text/html", "text/html; charset=utf-8", "free, 1 per day", `<!DOCTYPE html><meta charset="utf-8"><title>Other</title><h1>Other</h1><p>rate limit exceeded (&#34;other&#34;): try again in 43200 s</p>`},
	} {
		client := "192.0.2." + strconv.Itoa(1+len(c.tier)) // each tier has counts of its own
		for range 3 {
			answer(h, get(c.path, client, "X-Tier", c.tier))
		}
		w := answer(h, get(c.path, client, "X-Tier", c.tier, "Accept", c.accept))
		require.Equal(t, []string{c.contentType, c.plan, c.body}, []string{w.Header().Get("Content-Type"), w.Header().Get("X-Plan"), strings.TrimSuffix(w.Body.String(), "\n")}, c)
	}
	closed := newLimiter(t, file, Options{}, weir.Config{Expect: 3})
	w := answer(closed.Handler(hello), get("/failed", "192.0.2.1", "Accept", "text/html"))
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "requests cannot be counted", "texts about a limit do not describe an outage")
	require.Empty(t, w.Header()["X-Plan"])
}

func mustJSON(t *testing.T, text string) string {
	b, err := json.Marshal(text)
	require.NoError(t, err)
	return string(b)
}

// SetHeader is for protocols other than HTTP.
func TestSetHeaderSetsRetryAfterIfTimeHelps(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: r, key: ip, cost: {from: header:X-Cost}, partition: fail_open, limit: {algorithm: fixed_window, rate: 2, per: 1h}}\n- {name: closed, match: {method: PUT}, key: ip, partition: fail_closed, limit: {rate: 9, per: 1h}}\n",
		Options{}, weir.Config{Expect: 3, Now: func() time.Time { return noon }})
	ask := func(method, cost string) (status int, retry string) {
		o := m.Check(t.Context(), &rules.Request{Method: method, Path: "/", Header: http.Header{"X-Cost": {cost}}})
		h := make(http.Header)
		SetHeader(h, &o)
		require.NotEmpty(t, h.Get("RateLimit-Policy"))
		return o.Status, h.Get("Retry-After")
	}
	for _, c := range []struct {
		method, cost string
		status       int
		retry        string
	}{{"PUT", "1", 503, "1"}, {"GET", "3", 413, ""}, {"GET", "2", 0, ""}, {"GET", "1", 429, "3600"}} {
		status, retry := ask(c.method, c.cost)
		require.Equal(t, []any{c.status, c.retry}, []any{status, retry}, c.method)
	}
}

// A handler can change the header fields. A line that the handler adds is only in this response.
func TestHandlersMayChangeHeaderFields(t *testing.T) {
	m := newLimiter(t, threeLimits, byUser, weir.Config{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NotEmpty(t, w.Header().Get("RateLimit"))
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Add("X-RateLimit-Remaining", "8")
		w.Header().Del("RateLimit-Policy")
	}))
	w := answer(h, get("/", "192.0.2.1", "X-User", "ada"))
	require.Equal(t, []string{"7"}, w.Header().Values("X-RateLimit-Limit"))
	require.Len(t, w.Header().Values("X-RateLimit-Remaining"), 2)
	require.Empty(t, w.Header().Values("RateLimit-Policy"))
	reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, reset, time.Now().Unix(), "what is beside it is as it was")
	require.NotEmpty(t, w.Header().Get("RateLimit"))
}

// A denial by a limit that fails closed is a 503, unless a second limit denies too.
func TestDenialTakesPrecedenceOverFailedClosed(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: own, key: ip, partition: fail_open, limit: {rate: 1, per: 1h}}
- {name: closed, match: {path: /closed}, key: ip, partition: fail_closed, limit: {rate: 30, per: 1h}}
`, Options{}, weir.Config{Expect: 3})
	h := m.Handler(hello)
	require.Equal(t, 503, answer(h, get("/closed", "192.0.2.1")).Code)
	require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code)
	w := answer(h, get("/closed", "192.0.2.1"))
	require.Equal(t, 429, w.Code)
	require.NotEqual(t, "1", w.Header().Get("Retry-After"))
}

package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// remaining returns the units that a limit of m has left for a key.
func remaining(t testing.TB, m *Middleware, limit, key string) int64 {
	t.Helper()
	s := m.book.Current()
	l, _, ok := s.Limit(limit)
	require.True(t, ok)
	d, err := s.Limiter(l, "", key).Peek(t.Context(), key)
	require.NoError(t, err)
	return d.Remaining
}

func TestDeniedRequestSpendsNothing(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: address, key: ip, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
- {name: everyone, key: global, limit: {algorithm: fixed_window, rate: 100, per: 1h}}
- {name: tried, key: global, shadow: true, limit: {algorithm: fixed_window, rate: 100, per: 1h}}
- {name: large, match: {path: /large}, key: ip, cost: 20, limit: {rate: 10, per: 1h}}
`, Options{}, weir.Config{})
	h := m.Handler(hello)
	for range 10 {
		answer(h, get("/", "192.0.2.1"))
	}
	require.EqualValues(t, 98, remaining(t, m, "everyone", ""))
	require.EqualValues(t, 98, remaining(t, m, "tried", ""))
	require.Equal(t, 413, answer(h, get("/large", "192.0.2.2")).Code)
	require.EqualValues(t, 98, remaining(t, m, "everyone", ""))
}

func TestBlockedRequestMeetsNoRule(t *testing.T) {
	for about, deny := range map[string]string{"address": "ip: 192.0.2.1", "user": "user: mallory", "API key": "api_key: k1", "key of a rule": "key: {user: mallory}"} {
		for _, end := range []time.Duration{0, time.Hour} {
			until := ""
			if end > 0 {
				until = ", until: " + time.Now().Add(end).Format(time.RFC3339)
			}
			var outcomes []Outcome
			o := byUser
			o.APIKey = HeaderValue("X-Key")
			o.OnDecision = func(_ *http.Request, o *Outcome) { outcomes = append(outcomes, *o) }
			m := newLimiter(t, "deny: {"+deny+", reason: private"+until+`}
rules:
- {name: user, match: {path: /x}, key: user, limit: {rate: 5, per: 1h}}
- {name: everyone, key: global, limit: {algorithm: fixed_window, rate: 5, per: 1h}}
`, o, weir.Config{})
			h := m.Handler(hello)
			for range 9 {
				r := get("/x", "192.0.2.1", "X-User", "mallory", "X-Key", "k1")
				w := answer(h, r)
				require.Equal(t, 403, w.Code, about)
				require.Equal(t, end > 0, w.Header().Get("Retry-After") != "", about)
				require.Empty(t, w.Header().Get("RateLimit")+w.Header().Get("RateLimit-Policy")+w.Header().Get("X-RateLimit-Limit"))
				require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				require.Contains(t, w.Body.String(), "requests of this client are denied")
				require.NotContains(t, w.Body.String(), "private")
				r.Header.Set("Accept", "application/json")
				require.Contains(t, answer(h, r).Body.String(), `"error":"blocked"`)
			}
			require.EqualValues(t, 5, remaining(t, m, "everyone", ""))
			require.EqualValues(t, 18, m.book.Stats().Blocked[outcomes[0].Block.Kind.String()])
			require.Len(t, outcomes, 18)
			require.Empty(t, outcomes[0].Verdicts)
			require.InDelta(t, end, outcomes[0].RetryAfter(), float64(10*time.Minute))
			require.Equal(t, 200, answer(h, get("/x", "192.0.2.2", "X-User", "ada")).Code)
		}
	}
}

func TestOnDecisionReceivesEveryOutcome(t *testing.T) {
	var told []string
	o := byUser
	o.Tier = HeaderValue("X-Tier")
	o.Client = Header("X-Real-IP")
	o.OnDecision = func(r *http.Request, o *Outcome) {
		text := fmt.Sprintf("%s %d %v %v", r.URL.Path, o.Status, o.Soft(), o.Violated(nil))
		for _, v := range o.Verdicts {
			text += fmt.Sprintf("; %s %s %d/%d %v %v %v", v.Decision.Name, v.Key, v.Units, v.Decision.Limit, v.Decision.Allowed, v.Decision.Shadow, v.Soft)
		}
		told = append(told, text)
	}
	m := newLimiter(t, `
tiers: {free: {}, paid: {multiply: 2}}
default_tier: free
rules:
- {name: user, key: user, soft: {over: 50%, for: 1h}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
- {name: tried, key: ip, multiply: true, cost: 2, shadow: true, limit: {algorithm: fixed_window, rate: 3, per: 1h}}
`, o, weir.Config{})
	h := m.Handler(hello)
	for range 4 {
		answer(h, get("/a", "192.0.2.1", "X-User", "ada"))
	}
	answer(h, get("/b", "192.0.2.1", "X-User", "bob", "X-Tier", "paid", "X-Real-IP", "192.0.2.9"))
	require.Equal(t, []string{
		"/a 0 false []; user ada 1/2 true false false; tried 192.0.2.1 2/3 true true false",
		"/a 0 false []; user ada 1/2 true false false; tried 192.0.2.1 2/3 false true false",
		"/a 0 true []; user ada 1/2 true false true; tried 192.0.2.1 2/3 false true false",
		"/a 429 false [user]; user ada 1/2 false false false; tried 192.0.2.1 2/3 false true false",
		"/b 0 false []; user bob 1/4 true false false; tried 192.0.2.9 2/6 true true false",
	}, told)
}

// An overrun admits a request only if all other limits do, and is spent only then.
func TestOverrunIsDecidedWithOtherLimits(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: soft, key: ip, soft: {over: 100%, for: 1h}, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
- {name: hard, match: {path: /hard}, key: ip, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
`, Options{}, weir.Config{})
	h := m.Handler(hello)
	ask := func(path string) (int, bool) {
		w := answer(h, get(path, "192.0.2.1"))
		return w.Code, w.Header().Get("X-RateLimit-Soft") != ""
	}
	for i, c := range []struct {
		path   string
		status int
		soft   bool
	}{
		{"/hard", 200, false},
		{"/hard", 200, false},
		{"/hard", 429, false}, // both limits are exhausted, and one has no overrun
		{"/hard", 429, false},
		{"/", 200, true},
		{"/", 200, true},
		{"/", 429, false},
	} {
		status, soft := ask(c.path)
		require.Equal(t, []any{c.status, c.soft}, []any{status, soft}, i)
	}
}

// Requests wait for their turns in order of arrival.
func TestQueueServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu     sync.Mutex
			served []int64
			waited []time.Duration
		)
		m := newLimiter(t, "rules:\n- {name: reports, key: ip, queue: 2s, limit: {algorithm: leaky_bucket, rate: 20, per: 1s, burst: 10}}\n",
			Options{OnDecision: func(r *http.Request, o *Outcome) {
				mu.Lock()
				defer mu.Unlock()
				served, waited = append(served, r.ContentLength), append(waited, o.Waited)
			}}, weir.Config{})
		h := m.Handler(hello)
		var clients sync.WaitGroup
		for i := range 8 {
			r := get("/", "192.0.2.1")
			r.ContentLength = int64(i)
			clients.Go(func() { answer(h, r) })
			time.Sleep(time.Millisecond)
		}
		clients.Wait()
		require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7}, served)
		for i := range waited {
			require.Equal(t, time.Duration(i)*49*time.Millisecond, waited[i])
		}
	})
}

// If the queue is full, or the turn of a request would be too late, the request is denied at once, and
// its units at other limits are refunded.
func TestRequestWithoutTurnIsRefunded(t *testing.T) {
	for _, c := range []struct{ about, rules string }{
		{"full", "{name: q, key: ip, cost: 2, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 2}}"},
		{"a queue for one unit", "{name: q, key: ip, queue: 59s, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 1}}"},
		{"too late", "{name: q, key: ip, queue: 1s, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 5}}"},
	} {
		t.Run(c.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newLimiter(t, "rules:\n- "+c.rules+"\n- {name: everyone, key: global, limit: {algorithm: fixed_window, rate: 1000, per: 1h}}\n", Options{}, weir.Config{})
				h := m.Handler(hello)
				require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code)
				for range 5 {
					begun := time.Now()
					w := answer(h, get("/", "192.0.2.1"))
					require.Equal(t, 429, w.Code)
					require.Zero(t, time.Since(begun))
					require.NotEmpty(t, w.Header().Get("Retry-After"))
					require.NotEqual(t, "1", w.Header().Get("Retry-After"))
				}
				require.EqualValues(t, 999, remaining(t, m, "everyone", ""))
			})
		})
	}
}

// The units of an overrun are refunded to the overrun, and the response does not report an
// overrun.
func TestRequestWithoutTurnRefundsOverrun(t *testing.T) {
	var told []bool
	m := newLimiter(t, `
rules:
- {name: q, key: ip, cost: 2, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 2}}
- {name: soft, key: ip, soft: {over: 100%, for: 1h}, limit: {algorithm: fixed_window, rate: 1, per: 1h}}
`, Options{OnDecision: func(_ *http.Request, o *Outcome) { told = append(told, o.Soft()) }}, weir.Config{})
	h := m.Handler(hello)
	s := m.book.Current()
	l, _, _ := s.Limit("soft")
	count := s.Count(l, "", "192.0.2.1")
	require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code)
	for range 3 {
		w := answer(h, get("/", "192.0.2.1"))
		require.Equal(t, 429, w.Code)
		require.Empty(t, w.Header().Get("X-RateLimit-Soft"))
		require.Equal(t, `"q"`, w.Header().Get("RateLimit")[:3])
		overrun, err := count.Soft.Peek(t.Context(), "192.0.2.1")
		require.NoError(t, err)
		require.EqualValues(t, 1, overrun.Remaining)
		require.EqualValues(t, 0, remaining(t, m, "soft", "192.0.2.1"))
	}
	require.Equal(t, []bool{false, false, false, false}, told)
}

// asked counts the checks that returned an error.
type asked struct{ wrong atomic.Int64 }

func (a *asked) Decided(_ context.Context, e weir.DecisionEvent) {
	if e.Err != nil {
		a.wrong.Add(1)
	}
}
func (*asked) Hopped(context.Context, weir.HopEvent) {}

// An overrun is only for an exhausted limit. It is not used for a limit that cannot count, or
// for a request with more units than the overrun has.
func TestOverrunIsOnlyForExhaustedLimits(t *testing.T) {
	var seen asked
	m := newLimiter(t, `
rules:
- {name: soft, key: ip, cost: {from: header:X-Cost}, soft: {over: 10%, for: 1h}, limit: {algorithm: fixed_window, rate: 20, per: 1h}}
`, Options{}, weir.Config{Observer: &seen})
	h := m.Handler(hello)
	for _, c := range []struct {
		cost   string
		status int
	}{{"19", 200}, {"3", 429}, {"2", 200}, {"1", 200}} {
		require.Equal(t, c.status, answer(h, get("/", "192.0.2.1", "X-Cost", c.cost)).Code, c.cost)
	}
	require.Zero(t, seen.wrong.Load())

	s := new(scratch)
	m.read(&s.request, get("/", "192.0.2.2"))
	m.decide(t.Context(), s)
	v := &s.outcome.Verdicts[0]
	v.Decision.Allowed, v.Decision.Source = false, weir.FailedClosed
	require.False(t, m.overrun(t.Context(), s))
	v.Decision.Source = weir.Owner
	require.True(t, m.overrun(t.Context(), s))
}

func TestDeniedRequestDoesNotJoinQueue(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: q, key: ip, queue: 1s, limit: {algorithm: leaky_bucket, rate: 1, per: 1m, burst: 5}}\n- {name: other, key: ip, limit: {rate: 1, per: 1h}}\n", Options{}, weir.Config{})
	h := m.Handler(hello)
	for range 5 {
		answer(h, get("/", "192.0.2.1"))
	}
	require.EqualValues(t, 4, remaining(t, m, "q", "192.0.2.1"))
}

// allFree reports whether no request waits in the queue of a rule. No request may arrive at the
// same time, because allFree takes all places for a moment.
func (m *Middleware) allFree(rule string) bool {
	waiting, ok := m.waiting.Load(rule)
	if !ok {
		return true
	}
	places, all := waiting.(*semaphore.Weighted), int64(m.o.MaxWaiting)
	free := places.TryAcquire(all)
	if free {
		places.Release(all)
	}
	return free
}

func TestWaitingRequestsAreBounded(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 5}}\n", Options{MaxWaiting: 3}, weir.Config{})
	h := m.Handler(hello)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 3 { // three addresses
		from := fmt.Sprintf("192.0.2.%d", i)
		require.Equal(t, 200, answer(h, get("/", from)).Code)
		all.Go(func() { answer(h, get("/", from).WithContext(ctx)) })
	}
	for i := range 3 {
		require.Eventually(t, func() bool { return remaining(t, m, "q", fmt.Sprintf("192.0.2.%d", i)) == 3 }, 5*time.Second, time.Millisecond)
	}
	require.Equal(t, 429, answer(h, get("/", "192.0.2.9")).Code)
	cancel()
	all.Wait()
	require.True(t, m.allFree("q"))
	require.Equal(t, 200, answer(h, get("/", "192.0.2.9")).Code)
}

// looks is an Observer that calls a function at the next check of a key.
type looks map[string]func()

func (l looks) Hopped(context.Context, weir.HopEvent) {}

func (l looks) Decided(_ context.Context, e weir.DecisionEvent) {
	if do := l[e.Key]; do != nil {
		delete(l, e.Key)
		do()
	}
}

// A request that is refused because too many requests wait does not occupy a place while its
// response is made.
func TestRefusedRequestOccupiesNoPlace(t *testing.T) {
	const waits, refused, next = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	seen := make(looks)
	m := newLimiter(t, "rules:\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 5}}\n",
		Options{MaxWaiting: 1}, weir.Config{Observer: seen})
	h := m.Handler(hello)
	require.Equal(t, 200, answer(h, get("/", waits)).Code)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { answer(h, get("/", waits).WithContext(ctx)) })
	require.Eventually(t, func() bool { return remaining(t, m, "q", waits) == 3 }, 5*time.Second, time.Millisecond)

	status := 0
	seen[refused] = func() {
		cancel()
		waiting.Wait()
		status = answer(h, get("/", next)).Code
	}
	require.Equal(t, 429, answer(h, get("/", refused)).Code)
	require.Equal(t, 200, status, "no request waits any more")
}

// On a real connection, a client that disconnects frees its place for the next request, even if
// it has sent a body that the handler has not read.
func TestDisconnectedClientFreesItsPlace(t *testing.T) {
	for _, c := range []struct {
		about string
		body  int
		http2 bool
	}{{"without a body", 0, false}, {"with a body", maxAhead, false}, {"HTTP/2", 0, true}, {"HTTP/2, with a large body", 1 << 20, true}} {
		t.Run(c.about, func(t *testing.T) {
			m := newLimiter(t, "rules:\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 2}}\n- {name: everyone, key: global, limit: {algorithm: fixed_window, rate: 1000, per: 1h}}\n", Options{}, weir.Config{})
			server := httptest.NewUnstartedServer(m.Handler(hello))
			server.EnableHTTP2 = c.http2
			server.StartTLS()
			defer server.Close()
			ask := func(ctx context.Context) (int, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(make([]byte, c.body)))
				require.NoError(t, err)
				a, err := server.Client().Do(r)
				if err != nil {
					return 0, err
				}
				a.Body.Close()
				require.Equal(t, c.http2, a.ProtoMajor == 2)
				return a.StatusCode, nil
			}
			status, err := ask(t.Context())
			require.NoError(t, err)
			require.Equal(t, 200, status)

			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() {
				_, err := ask(ctx)
				gone <- err
			}()
			full := func() bool { return remaining(t, m, "q", "127.0.0.1") == 0 }
			require.Eventually(t, full, 5*time.Second, time.Millisecond)
			status, err = ask(t.Context())
			require.NoError(t, err)
			require.Equal(t, 429, status, "both places are taken")
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
			require.Eventually(t, func() bool { return !full() && m.allFree("q") }, 5*time.Second, time.Millisecond)
			require.Eventually(t, func() bool { return remaining(t, m, "everyone", "") == 999 }, 5*time.Second, time.Millisecond)
		})
	}
}

// A queue must not store long bodies of clients, and must not block a stream.
func TestOnlyShortBodiesAreReadAhead(t *testing.T) {
	for _, c := range []struct {
		about  string
		length int64
		major  int
		expect []string
		ahead  bool
	}{
		{"short", 5, 1, nil, true},
		{"as long as may be", maxAhead, 1, nil, true},
		{"longer", maxAhead + 1, 1, nil, false},
		{"of unknown length", -1, 1, nil, false},
		{"over HTTP/2, which needs no help", 5, 2, nil, false},
		{"not sent yet", 5, 1, []string{"100-continue"}, false},
	} {
		body := io.NopCloser(strings.NewReader(strings.Repeat("x", maxAhead+1)))
		r := &http.Request{Body: body, ContentLength: c.length, ProtoMajor: c.major, Header: http.Header{"Expect": c.expect}}
		if c.expect == nil {
			delete(r.Header, "Expect")
		}
		require.NoError(t, readAhead(r), c.about)
		require.Equal(t, c.ahead, r.Body != body, c.about)
	}
	require.NoError(t, readAhead(nil))
	require.NoError(t, readAhead(&http.Request{ContentLength: 5, ProtoMajor: 1}))
}

// brokenBody is a body that ends too early.
type brokenBody struct{ err error }

func (b brokenBody) Read(p []byte) (int, error) { return copy(p, "ab"), b.err }
func (brokenBody) Close() error                 { return nil }

func TestHandlerReadsBodyAfterWaiting(t *testing.T) {
	const rule = "rules:\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1000, per: 1s}}\n"
	for _, c := range []struct {
		about  string
		r      *http.Request
		expect string
		want   string // the body that the handler read
		status int
	}{
		{"short", httptest.NewRequest("POST", "/", strings.NewReader("hello")), "", "hello", 200},
		{"none", httptest.NewRequest("POST", "/", nil), "", "", 200},
		{"long", httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", maxAhead+1))), "", strings.Repeat("x", maxAhead+1), 200},
		{"one that is asked for", httptest.NewRequest("POST", "/", strings.NewReader("hello")), "100-continue", "hello", 200},
		{"of unknown length", httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("hello"))), "", "hello", 200},
		{"above the maximum of the body", httptest.NewRequest("POST", "/", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("hello")), 4)), "", "hell, http: request body too large", 200},
		{"broken off", httptest.NewRequest("POST", "/", brokenBody{io.ErrUnexpectedEOF}), "", "", StatusClientGone},
	} {
		t.Run(c.about, func(t *testing.T) {
			var told *Outcome
			m := newLimiter(t, rule, Options{OnDecision: func(_ *http.Request, o *Outcome) { told = o }}, weir.Config{})
			got := ""
			h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				if got = string(text); err != nil {
					got += ", " + err.Error()
				}
			}))
			if c.expect != "" {
				c.r.Header.Set("Expect", c.expect)
			}
			if c.about == "above the maximum of the body" || c.about == "broken off" {
				c.r.ContentLength = 5
			}
			require.Equal(t, c.status, answer(h, c.r).Code)
			require.Equal(t, c.want, got)
			require.NotNil(t, told)
		})
	}
}

// A request whose queue cannot count is answered with 503, and its units at other limits are refunded.
func TestFailedClosedQueueIsUnavailable(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: q, key: ip, queue: 50ms, partition: fail_closed, limit: {algorithm: leaky_bucket, rate: 10, per: 1s}}
- {name: own, key: ip, partition: fail_open, limit: {algorithm: fixed_window, rate: 10, per: 1h}}
`, Options{}, weir.Config{Expect: 3})
	w := answer(m.Handler(hello), get("/", "192.0.2.1"))
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, `"own";r=10;t=3600`, w.Header().Get("RateLimit"))
	require.EqualValues(t, 10, remaining(t, m, "own", "192.0.2.1"))
}

// No file lets an ordinary request meet more limits than a node can decide together. A request with many
// values of one field can meet more limits. It is refused, and spends no units.
func TestRequestWithTooManyLimitsIsRefused(t *testing.T) {
	file := "rules:\n"
	for i := range 300 {
		file += fmt.Sprintf("- {name: t%d, match: {header: {X-Tenant: t%d}}, key: user, missing_key: skip, limit: {algorithm: fixed_window, rate: 9, per: 1h}}\n", i, i)
	}
	var told error
	o := byUser
	o.OnDecision = func(_ *http.Request, o *Outcome) { told = o.Err }
	m := newLimiter(t, file, o, weir.Config{})
	h := m.Handler(hello)
	tenants := func(n int, fields ...string) *http.Request {
		r := get("/", "192.0.2.1", fields...)
		for i := range n {
			r.Header.Add("X-Tenant", fmt.Sprint("t", i))
		}
		return r
	}
	require.Equal(t, 200, answer(h, tenants(rules.MaxMet, "X-User", "ada")).Code)
	require.NoError(t, told)
	for _, r := range []*http.Request{tenants(rules.MaxMet+1, "X-User", "ada"), tenants(300, "X-User", "ada"), tenants(300)} {
		told = nil
		w := answer(h, r)
		require.Equal(t, 503, w.Code)
		require.Empty(t, w.Header().Get("RateLimit-Policy"))
		require.EqualError(t, told, "httplimit: a request meets more than 255 limits because of repeated header lines or an escaped path")
	}
	require.EqualValues(t, 8, remaining(t, m, "t0", "ada"))

	twice := strings.ReplaceAll(file, "limit: {algorithm: fixed_window, rate: 9, per: 1h}", "limits: [{rate: 9, per: 1h}, {rate: 1, per: 1s}]")
	h = newLimiter(t, twice, o, weir.Config{}).Handler(hello)
	require.Equal(t, 200, answer(h, tenants(rules.MaxMet/2, "X-User", "ada")).Code)
	require.Equal(t, 503, answer(h, tenants(rules.MaxMet/2+1, "X-User", "ada")).Code)
	require.ErrorIs(t, told, errCrowd, "many limits of few rules")
}

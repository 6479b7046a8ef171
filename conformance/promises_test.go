package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// netHTTP is package httplimit, whose own tests cover the promises of a single middleware.
var netHTTP = onNetHTTP("net/http", newMux)

// frameworks contains the frameworks that keep the same promises.
var frameworks = []*framework{onEcho(echo.RouterConfig{}, nil), onGin(nil, nil), onFiber(fiber.Config{}, nil)}

func TestFrameworksKeepSamePromises(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *framework){
		"a denial has its fields":             testDenial,
		"the client has one address":          testClient,
		"options get the context":             testOptions,
		"rules read the same lines":           testLines,
		"a request holds until its end":       testHold,
		"statuses count":                      testStatuses,
		"a response settles the estimate":     testSettle,
		"functions decide on costs":           testFunctions,
		"a connection outlives its handler":   testHijack,
		"a gone client is not answered":       testGone,
		"responses are measured":              testMeasured,
		"critical requests spend kept units":  testCritical,
		"a closed node denies":                testClosed,
		"fields of two are of the strictest":  testStrictest,
		"a limit that is asked twice is once": testTwice,
		"options without effect are refused":  testRefused,
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range frameworks {
				t.Run(f.name, func(t *testing.T) { test(t, f) })
			}
		})
	}
	t.Run("two middlewares of net/http", func(t *testing.T) {
		testStrictest(t, netHTTP)
		testTwice(t, netHTTP)
	})
}

// limiter returns a Limiter of a fixed window of an hour on a separate node.
func limiter(t testing.TB, rate int64) *weir.Limiter {
	return limiterOf(t, weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: rate, Per: time.Hour})
}

// limiterOf returns a Limiter on a separate node.
func limiterOf(t testing.TB, l weir.Limit) *weir.Limiter {
	return testnode.Limiter(t, testnode.Start(t, weir.Config{}), l)
}

// ruled returns a layer by rules, and the Limiter of the rule r.
func ruled(t testing.TB, file string, o options) (layer, *weir.Limiter) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, file)
	limit, _, _ := book.Current().Limit("r")
	return layer{node: node, book: book, options: o}, book.Current().Limiter(limit, "", "192.0.2.1")
}

type handlers = map[string]func(call) error

// mustServe serves handlers behind layers.
func (f *framework) mustServe(t testing.TB, h handlers, layers ...layer) *app {
	a, err := f.serve(t, &site{layers, h})
	require.NoError(t, err)
	return a
}

func hello(c call) error { return c.Answer(http.StatusOK, "text/plain", "hello") }

// requireSpent waits until the client has spent the given units of 100.
func requireSpent(t *testing.T, l *weir.Limiter, units int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := l.Peek(t.Context(), "192.0.2.1")
		return err == nil && d.Remaining == 100-units
	}, 10*time.Second, time.Millisecond, "%d are spent", units)
}

const (
	oneAtOnce = "rules: [{name: r, key: ip, limit: {algorithm: in_flight, rate: 1}}]"
	failures  = "rules: [{name: r, key: ip, count: {status: [4xx, 5xx]}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
	tokens    = "rules: [{name: r, key: ip, reserve: {from: 'json:max', default: 9}, settle: {json: usage.total, header: X-Total}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
)

func testDenial(t *testing.T, f *framework) {
	reached, kept := 0, new(httplimit.Outcome)
	a := f.mustServe(t, handlers{"/": func(c call) error {
		reached, kept = reached+1, httplimit.OutcomeOf(c.Context())
		return hello(c)
	}}, layer{limiter: limiter(t, 2)})
	for range 2 {
		r := a.get("/")
		require.Nil(t, kept, "without KeepOutcome")
		require.Equal(t, 200, r.status)
		require.Equal(t, "hello", r.body)
		require.Equal(t, `"r";q=2;w=3600`, r.header.Get("RateLimit-Policy"))
	}
	r := a.get("/")
	require.Equal(t, 429, r.status)
	require.Equal(t, 2, reached)
	require.Contains(t, r.body, "try again in ")
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	require.Equal(t, "0", r.header.Get("X-RateLimit-Remaining"))
}

func testClient(t *testing.T, f *framework) {
	for about, c := range map[string]struct {
		client            *httplimit.ClientAddress
		from, field, want string
	}{
		"of the connection": {nil, "192.0.2.1", "203.0.113.9", "192.0.2.1"},
		"Options.Client":    {behindTens(), "10.1.2.3", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		"IPv6":              {nil, "2001:db8::1", "", "2001:db8::/64"},
	} {
		require.Equal(t, c.want, keyOf(t, f, options{Client: c.client}, c.from, "X-Forwarded-For", c.field), about)
	}
}

// behindTens returns a ClientAddress that trusts proxies of 10.0.0.0/8.
func behindTens() *httplimit.ClientAddress {
	return new(httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")))
}

// keyOf sends a request twice, and returns the key of its checks.
func keyOf(t *testing.T, f *framework, o options, from string, fields ...string) (key string) {
	o.OnDecision = func(_ call, o *httplimit.Outcome) { key = o.Verdicts[0].Key }
	a := f.mustServe(t, handlers{"/": hello}, layer{limiter: limiter(t, 9), options: o})
	require.Equal(t, 200, a.ask(t.Context(), from, http.MethodGet, "/", "", fields...).status)
	first := key
	require.Equal(t, 200, a.ask(t.Context(), from, http.MethodGet, "/", "", fields...).status)
	require.Equal(t, first, key)
	return key
}

func testOptions(t *testing.T, f *framework) {
	const file = `
rules:
- {name: r, match: {path: "/v1/{item}", host: example.com, header: {X-Plan: gold}, tier: paid}, key: [user, api_key, "header:X-Shop"], cost: {from: "header:X-Cost"}, limit: {algorithm: fixed_window, rate: 5, per: 1h}}
tiers: {free: {}, paid: {}}
default_tier: free
`
	var key string
	var kept []*httplimit.Outcome
	by, _ := ruled(t, file, options{
		User:        func(c call) string { return c.Field("X-User") },
		APIKey:      func(c call) string { return c.Field("X-Key") },
		Tier:        func(call) string { return "paid" },
		Skip:        func(c call) bool { return c.Field("X-Skip") != "" },
		OnDecision:  func(_ call, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
		Denied:      func(c call, o *httplimit.Outcome) error { return c.Answer(418, "text/plain", o.Problem().Title) },
		KeepOutcome: true,
	})
	a := f.mustServe(t, handlers{"/v1/{item}": func(c call) error {
		kept = append(kept, httplimit.OutcomeOf(c.Context()))
		return c.Answer(200, "text/plain", c.Param("item"))
	}}, by)
	fields := []string{"X-User", "ada", "X-Plan", "silver", "X-Plan", "gold", "X-Shop", "one", "X-Cost", "3", "X-Key", "a"}
	r := a.get("/v1/x", fields...)
	require.Equal(t, "x", r.body)
	require.Equal(t, "ada|a|one", key)
	r = a.get("/v1/x", fields...)
	require.Equal(t, 418, r.status)
	require.Equal(t, "Too Many Requests", r.body)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	require.Equal(t, 200, a.get("/v1/x", append(fields, "X-Skip", "yes")...).status)
	fields[len(fields)-1] = "b"
	require.Equal(t, 200, a.get("/v1/x", fields...).status)
	require.Len(t, kept, 3)
	require.EqualValues(t, 2, kept[0].Verdicts[0].Decision.Remaining)
	require.Equal(t, "ada|a|one", kept[0].Verdicts[0].Key, "also after other requests")
	require.Nil(t, kept[1], "of a request that is skipped")
}

func testHold(t *testing.T, f *framework) {
	l := limiterOf(t, weir.Limit{Name: "r", Algorithm: weir.InFlight, Rate: 1})
	byRules, _ := ruled(t, oneAtOnce, options{})
	for about, by := range map[string]layer{"by rules": byRules, "by a Limiter": {limiter: l}} {
		t.Run(about, func(t *testing.T) {
			arrived, leave := make(chan struct{}), make(chan struct{})
			a := f.mustServe(t, handlers{
				"/": hello, "/stay": func(c call) error { close(arrived); <-leave; return hello(c) },
				"/error": func(call) error { return errors.New("oh") }, "/panic": func(call) error { panic("oh") },
			}, by)
			ended := make(chan int)
			go func() { ended <- a.get("/stay").status }()
			select {
			case <-arrived:
			case status := <-ended:
				t.Fatalf("the server answers %d before the handler has begun", status)
			}
			require.Equal(t, 429, a.get("/").status)
			close(leave)
			require.Equal(t, 200, <-ended)
			for range 3 {
				require.PanicsWithValue(t, "oh", func() { a.get("/panic") })
				require.Equal(t, 500, a.get("/error").status)
			}
			require.Equal(t, 200, a.get("/").status)
		})
	}
}

func testStatuses(t *testing.T, f *framework) {
	by, l := ruled(t, failures, options{})
	a := f.mustServe(t, handlers{
		"/text": hello, "/status": func(c call) error { return c.Answer(403, "text/plain", "") },
		"/failure": func(call) error { return failure(401) }, "/error": func(call) error { return errors.New("oh") },
		"/panic": func(call) error { panic("oh") },
	}, by)
	requireCounted(t, a, l, map[string]int{"/text": 200, "/status": 403, "/failure": 401, "/error": 500, "/none": 404})
}

// requireCounted requests each path, and requires its status. Statuses from 400 are
// counted, and so is the request of /panic, whose handler must panic.
func requireCounted(t *testing.T, a *app, l *weir.Limiter, statuses map[string]int) {
	spent := int64(0)
	for path, status := range statuses {
		require.Equal(t, status, a.get(path).status, path)
		if status >= 400 {
			spent++
		}
		requireSpent(t, l, spent)
	}
	require.Panics(t, func() { a.get("/panic") })
	requireSpent(t, l, spent+1)
}

func testSettle(t *testing.T, f *framework) {
	for about, c := range map[string]struct {
		answer func(call) error
		want   int64
	}{
		"a field of the body": {func(c call) error { return c.Answer(200, "application/json", `{"usage":{"total":12}}`) }, 12},
		"a header":            {func(c call) error { c.SetField("X-Total", "13"); return hello(c) }, 13},
		"an error":            {func(call) error { return errors.New("oh") }, 0},
		"neither":             {hello, 40},
	} {
		t.Run(about, func(t *testing.T) {
			by, l := ruled(t, tokens, options{Logger: quiet})
			var during weir.Decision
			a := f.mustServe(t, handlers{"/": func(of call) error {
				require.Equal(t, `{"max":40}`, of.Body(), "the handler reads the body, too")
				during, _ = l.Peek(t.Context(), "192.0.2.1")
				return c.answer(of)
			}}, by)
			a.ask(t.Context(), "192.0.2.1", http.MethodPost, "/", `{"max":40}`, "Content-Type", "application/json")
			require.EqualValues(t, 60, during.Remaining)
			requireSpent(t, l, c.want)
		})
	}
}

// The functions of the options can use the framework's context, even after the handlers
// have returned or panicked.
func testFunctions(t *testing.T, f *framework) {
	number := func(text string) (int64, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	settles := options{
		Reserve: func(c call, rule *rules.Rule) (int64, bool) {
			require.Equal(t, "r", rule.Name)
			return number(c.Field("X-Max"))
		},
		Settle: func(c call, _ *rules.Rule, e *httplimit.Ended) (int64, bool) {
			if e.Aborted {
				return 7, true
			}
			return number(c.Stored())
		},
	}
	counts := options{Count: func(c call, _ *rules.Rule, e *httplimit.Ended) bool { return e.Status == 200 && c.Stored() != "" }}
	const estimated = "rules: [{name: r, key: ip, reserve: {from: content_length, default: 9}, settle: {header: X-Total, on_error: keep}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
	for _, c := range []struct {
		about, rules, path string // a Limiter limits the requests if rules is empty
		o                  options
		during, after      int64
	}{
		{"by rules, the cost that the handler found", estimated, "/cost", settles, 30, 12},
		{"by rules, a panic", estimated, "/panic", settles, 30, 7}, // on_error: keep
		{"by a Limiter, the cost that the handler found", "", "/cost", settles, 30, 12},
		{"by a Limiter, a panic", "", "/panic", settles, 30, 0},
		{"by rules, a request that counts", failures, "/cost", counts, 1, 1},
		{"by rules, a request that does not count", failures, "/none", counts, 1, 0},
		{"by a Limiter, a request that counts", "", "/cost", counts, 1, 1},
		{"by a Limiter, a request that does not count", "", "/none", counts, 1, 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			l := limiter(t, 100)
			by := layer{limiter: l, options: c.o}
			if c.rules != "" {
				by, l = ruled(t, c.rules, c.o)
			}
			requireDuring := func() {
				d, err := l.Peek(t.Context(), "192.0.2.1")
				require.NoError(t, err)
				require.Equal(t, 100-c.during, d.Remaining)
			}
			a := f.mustServe(t, handlers{
				"/cost":  func(of call) error { of.Store("12"); requireDuring(); return hello(of) },
				"/none":  func(of call) error { requireDuring(); return hello(of) },
				"/panic": func(call) error { requireDuring(); panic("oh") },
			}, by)
			func() {
				defer func() { require.Equal(t, c.path == "/panic", recover() != nil) }()
				a.get(c.path, "X-Max", "30")
			}()
			requireSpent(t, l, c.after)
		})
	}
}

// Frameworks reuse a context after its handlers have returned, but a hijacked connection
// may still be in use.
func testHijack(t *testing.T, f *framework) {
	if !f.netHTTP {
		return // fasthttp passes a connection to its hijacker after the handlers have returned
	}
	const file = `
rules:
- {name: r, key: ip, reserve: {from: content_length, default: 9}, settle: {header: X-Total}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}
- {name: one, key: ip, limit: {algorithm: in_flight, rate: 1}}
`
	by, l := ruled(t, file, options{Logger: quiet, Settle: func(c call, _ *rules.Rule, e *httplimit.Ended) (int64, bool) {
		units, err := strconv.ParseInt(c.Stored(), 10, 64)
		return units, err == nil && e.Status == http.StatusSwitchingProtocols
	}})
	taken := make(chan net.Conn, 1)
	a := f.mustServe(t, handlers{"/": hello, "/take": func(c call) error {
		c.Store("12")
		conn, _, err := http.NewResponseController(c.Writer()).Hijack()
		taken <- conn
		return err
	}}, by)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:1"
		a.handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = io.WriteString(client, "GET /take HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	conn := <-taken
	requireSpent(t, l, 12)
	require.Equal(t, 429, a.get("/").status)
	require.NoError(t, conn.Close())
	requireSpent(t, l, 12)
	require.Eventually(t, func() bool { return a.get("/").status == 200 }, 10*time.Second, time.Millisecond)
}

func testGone(t *testing.T, f *framework) {
	if !f.netHTTP {
		return // fasthttp does not notice a disconnected client
	}
	a := f.mustServe(t, handlers{"/": hello}, layer{limiter: limiter(t, 9), options: options{
		Logger: quiet, Denied: func(call, *httplimit.Outcome) error { panic("a gone client is answered") },
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, httplimit.StatusClientGone, a.ask(ctx, "192.0.2.1", http.MethodGet, "/", "").status)
}

func testMeasured(t *testing.T, f *framework) {
	by, _ := ruled(t, "rules: [{name: r, key: ip, limit: {rate: 9, per: 1m}, adapt: {latency: 1m}}]", options{Logger: quiet})
	require.NoError(t, by.book.Close()) // otherwise the Book takes the measurements out of the meter
	a := f.mustServe(t, handlers{
		"/":     hello,
		"/fail": func(c call) error { return c.Answer(http.StatusBadGateway, "text/plain", "none") },
		"/err":  func(call) error { return failure(http.StatusServiceUnavailable) },
	}, by)
	for path, failed := range map[string]int64{"/": 0, "/fail": 1, "/err": 1} {
		a.get(path)
		s := by.book.Current().Meter(by.book.Current().Rules()[0]).TakeSample(time.Now())
		require.Equal(t, []int64{1, 1, failed}, []int64{s.Started, s.Done, s.Failed}, path)
	}
}

func testCritical(t *testing.T, f *framework) {
	o := options{Logger: quiet, Critical: func(c call) bool { return c.Field("X-Internal") == "1" }}
	by, _ := ruled(t, "rules: [{name: r, key: ip, limit: {rate: 2, per: 1h, keep: 1}}]", o)
	single := layer{limiter: limiterOf(t, weir.Limit{Name: "r", Rate: 2, Per: time.Hour, Keep: 1}), options: o}
	for _, l := range []layer{by, single} {
		a := f.mustServe(t, handlers{"/": hello}, l)
		for i, want := range []int{200, 429, 200, 429} {
			require.Equal(t, want, a.get("/", "X-Internal", strconv.Itoa(i/2)).status)
		}
	}
}

func testClosed(t *testing.T, f *framework) {
	l := limiter(t, 9)
	a := f.mustServe(t, handlers{"/": hello}, layer{limiter: l, options: options{Logger: quiet}})
	require.NoError(t, l.Node().Close())
	r := a.get("/")
	require.Equal(t, 503, r.status)
	require.Equal(t, "1", r.header.Get("Retry-After"))
}

func TestErrorsUnwrapToTheirReason(t *testing.T) {
	var seen error
	for _, f := range []*framework{
		onEcho(echo.RouterConfig{}, func(e *echo.Echo) {
			e.HTTPErrorHandler = func(c *echo.Context, err error) { seen = err; echo.DefaultHTTPErrorHandler(false)(c, err) }
		}),
		onFiber(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error { seen = err; return fiber.DefaultErrorHandler(c, err) }}, nil),
	} {
		l := limiter(t, 9)
		a := f.mustServe(t, handlers{"/": hello}, layer{limiter: l, options: options{Logger: quiet}})
		require.NoError(t, l.Node().Close())
		require.Equal(t, 503, a.get("/").status, f.name)
		require.ErrorIs(t, seen, weir.ErrClosed, f.name)
		require.ErrorContains(t, seen, "requests cannot be counted at the moment", f.name)
	}
}

// Rules read the fields of a request like net/http.
func testLines(t *testing.T, f *framework) {
	names := []string{"X-Any", "Accept", "User-Agent", "Content-Type", "Cookie", "Trailer", "Content-Length"}
	file := "rules:\n- {name: r, match: {path: /none/}, key: ip, limit: {rate: 1, per: 1h}}\n"
	for i, name := range names {
		file += fmt.Sprintf("- {name: r%d, match: {header: {%s: \"*\"}}, key: ip, limit: {rate: 1000, per: 1h}}\n", i, name)
	}
	met := func(f *framework, lines string) (names []string) {
		by, _ := ruled(t, file, options{OnDecision: func(_ call, o *httplimit.Outcome) {
			for i := range o.Verdicts {
				names = append(names, o.Verdicts[i].Rule.Name)
			}
		}})
		_, err := f.mustServe(t, handlers{"/": hello}, by).send(t.Context(), "192.0.2.1", "GET / HTTP/1.1\r\nHost: h\r\n"+lines+"\r\n")
		require.NoError(t, err)
		return names
	}
	require.Empty(t, met(f, ""))
	for _, name := range names[:2] { // fasthttp does not report the other fields if they are empty
		for _, lines := range []string{"%s: \r\n", "%s: a\r\n", "%[1]s: a\r\n%[1]s: b\r\n"} {
			lines = fmt.Sprintf(lines, name)
			require.Equal(t, met(netHTTP, lines), met(f, lines), "%q", lines)
		}
	}
}

// askBehind serves a handler behind limits, and returns a function that sends requests.
func (f *framework) askBehind(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
	var layers []layer
	for _, l := range limits {
		layers = append(layers, layer{limiter: l})
	}
	a := f.mustServe(t, handlers{"/": hello}, layers...)
	return func() (bool, http.Header) {
		r := a.get("/")
		require.Contains(t, []int{200, 429}, r.status)
		return r.status == 200, r.header
	}
}

// A client that reads the fields behind two middlewares gets the strictest numbers.
func testStrictest(t *testing.T, f *framework) {
	n := testnode.Start(t, weir.Config{})
	for _, order := range [][]string{{"wide", "narrow"}, {"narrow", "wide"}} {
		var limits []*weir.Limiter
		for _, name := range order {
			l := weir.Limit{Name: name + " of " + order[0], Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour}
			if name == "narrow" {
				l.Rate, l.Per = 3, time.Minute
			}
			limits = append(limits, testnode.Limiter(t, n, l))
		}
		ask := f.askBehind(t, limits...)
		for i, remaining := range []string{"2", "1", "0", "0"} {
			admitted, h := ask()
			require.Equal(t, i < 3, admitted)
			require.Equal(t, []string{"3"}, h["X-Ratelimit-Limit"], "request %d, %v", i, order)
			require.Equal(t, []string{remaining}, h["X-Ratelimit-Remaining"], "request %d, %v", i, order)
			require.Len(t, h["X-Ratelimit-Reset"], 1)
			require.Equal(t, !admitted, h.Get("Retry-After") != "")
			if !admitted && order[0] == "narrow" {
				continue // the narrow limit denied the request, so the wide limit was not checked
			}
			for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
				require.Len(t, h[name], 1)
				items := strings.Split(h[name][0], ", ")
				require.Len(t, items, 2, h[name])
				for j, l := range limits {
					require.True(t, strings.HasPrefix(items[j], `"`+l.Limit().Name+`";`), items[j])
				}
			}
		}
	}
}

// A limit that two middlewares check has a single item in each header field, with the units that are
// left after the second check.
func testTwice(t *testing.T, f *framework) {
	l := limiterOf(t, weir.Limit{Name: "a, b", Algorithm: weir.FixedWindow, Rate: 10, Per: time.Hour})
	_, h := f.askBehind(t, l, l)()
	require.Equal(t, []string{"8"}, h["X-Ratelimit-Remaining"])
	require.Len(t, h["Ratelimit"], 1)
	require.True(t, strings.HasPrefix(h.Get("Ratelimit"), `"a, b";r=8;t=`), h.Get("Ratelimit"))
	require.Equal(t, []string{`"a, b";q=10;w=3600`}, h["Ratelimit-Policy"])
}

func testRefused(t *testing.T, f *framework) {
	who := func(call) string { return "" }
	l := limiter(t, 9)
	byRules, _ := ruled(t, failures, options{Key: who})
	if f.name == "fiber" {
		unread, _ := ruled(t, failures, options{MaxBody: 1})
		_, err := f.serve(t, &site{layers: []layer{unread}})
		require.ErrorIs(t, err, weir.ErrInvalid, "fiber has read the body")
	}
	for name, by := range map[string]layer{
		"User": {limiter: l, options: options{User: who}}, "APIKey": {limiter: l, options: options{APIKey: who}},
		"Tier": {limiter: l, options: options{Tier: who}}, "MaxWaiting": {limiter: l, options: options{MaxWaiting: 1}},
		"MaxBody": {limiter: l, options: options{MaxBody: 1}}, "Key": byRules,
		"Client":  {limiter: l, options: options{Client: new(httplimit.FromRight("X-Forwarded-For", 0))}},
		"Queue":   {limiter: l, options: options{Queue: time.Second}},
		"Reserve": {limiter: l, options: options{Reserve: func(call, *rules.Rule) (int64, bool) { return 1, true }}},
	} {
		_, err := f.serve(t, &site{layers: []layer{by}})
		require.ErrorIs(t, err, weir.ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}
}

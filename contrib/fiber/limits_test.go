package fiberlimit

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/rules"
)

func startNode(t testing.TB) *weir.Node {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { node.Close() })
	return node
}

func limiter(t testing.TB, rate int64) *weir.Limiter {
	l, err := startNode(t).Limiter(weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: rate, Per: time.Hour})
	require.NoError(t, err)
	return l
}

// served is an application that is limited, and whose handler says hello.
func served(t testing.TB, limit fiber.Handler, err error, cfg ...fiber.Config) *fiber.App {
	require.NoError(t, err)
	app := fiber.New(cfg...)
	app.Get("/v1/:item", limit, func(c fiber.Ctx) error { return c.SendString("hello") })
	return app
}

// ask hands a request to the application, as its server would.
func ask(app *fiber.App, path, from string, fields ...string) *fasthttp.Response {
	var c fasthttp.RequestCtx
	r := httptest.NewRequest(http.MethodGet, path, nil)
	var in fasthttp.Request
	in.Header.SetMethod(r.Method)
	in.SetRequestURI(path)
	in.Header.SetHost("example.com")
	for i := 0; i < len(fields); i += 2 {
		in.Header.Add(fields[i], fields[i+1])
	}
	c.Init(&in, &net.TCPAddr{IP: net.ParseIP(from), Port: 1234}, nil)
	app.Handler()(&c)
	return &c.Response
}

func TestADenialGoesToTheErrorHandler(t *testing.T) {
	for _, c := range []struct {
		about       string
		handler     fiber.ErrorHandler // fiber's if nil
		denied      func(fiber.Ctx, *httplimit.Outcome) error
		status      int
		contentType string
		body        string
	}{
		{"fiber's", nil, nil, 429, "text/plain; charset=utf-8", `rate limit exceeded ("r"): try again in 3600 s`},
		{"the application's", func(c fiber.Ctx, err error) error {
			var denial *Error
			if errors.As(err, &denial) {
				return c.Status(denial.Problem.Status).JSON(fiber.Map{"limits": denial.Problem.Violated})
			}
			return err
		}, nil, 429, "application/json; charset=utf-8", `{"limits":["r"]}`},
		{"not asked", nil, Write, 429, "application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"rate limit exceeded (\"r\"): try again in 3600 s","violated-policies":["r"]}` + "\n"},
		{"for another error", nil, func(fiber.Ctx, *httplimit.Outcome) error { return fiber.NewError(418, "short and stout") }, 418, "text/plain; charset=utf-8", "short and stout"},
	} {
		t.Run(c.about, func(t *testing.T) {
			node, err := weir.Start(t.Context(), weir.Config{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
			require.NoError(t, err)
			defer node.Close()
			l, err := node.Limiter(weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
			require.NoError(t, err)
			limit, err := ByLimiter(l, Options{Denied: c.denied})
			app := served(t, limit, err, fiber.Config{ErrorHandler: c.handler})
			for range 2 {
				answer := ask(app, "/v1/a", "192.0.2.1")
				require.Equal(t, 200, answer.StatusCode())
				require.Equal(t, `"r";q=2;w=3600`, string(answer.Header.Peek("RateLimit-Policy")))
			}
			answer := ask(app, "/v1/a", "192.0.2.1")
			require.Equal(t, c.status, answer.StatusCode())
			require.Equal(t, c.contentType, string(answer.Header.ContentType()))
			require.Equal(t, c.body, string(answer.Body()))
			require.Equal(t, "3600", string(answer.Header.Peek("Retry-After")))
			require.Equal(t, "no-store", string(answer.Header.Peek("Cache-Control")))
			require.Equal(t, "0", string(answer.Header.Peek("X-RateLimit-Remaining")))
		})
	}
}

func TestTheClientIsThatOfTrustedProxies(t *testing.T) {
	private := netip.MustParsePrefix("10.0.0.0/8")
	trusting := fiber.Config{TrustProxy: true, ProxyHeader: "X-Forwarded-For", TrustProxyConfig: fiber.TrustProxyConfig{Proxies: []string{"10.0.0.0/8"}}}
	for _, c := range []struct {
		about  string
		cfg    fiber.Config
		client *httplimit.ClientAddress
		from   string
		field  string
		want   string
	}{
		{"the connection's", fiber.Config{}, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1"},
		{"a proxy of fiber's", trusting, nil, "10.1.2.3", "203.0.113.9", "203.0.113.9"},
		{"a list is no address", trusting, nil, "10.1.2.3", "198.51.100.1, 203.0.113.9", "10.1.2.3"},
		{"no proxy of fiber's", trusting, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1"},
		{"Options.Client", fiber.Config{}, new(httplimit.RightmostUntrusted("X-Forwarded-For", private)), "10.1.2.3", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		{"IPv6", fiber.Config{}, nil, "2001:db8::1", "", "2001:db8::/64"},
	} {
		t.Run(c.about, func(t *testing.T) {
			var key string
			limit, err := ByLimiter(limiter(t, 9), Options{
				Client: c.client, OnDecision: func(_ fiber.Ctx, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
			})
			app := served(t, limit, err, c.cfg)
			require.Equal(t, 200, ask(app, "/v1/a", c.from, "X-Forwarded-For", c.field).StatusCode())
			require.Equal(t, c.want, key)
		})
	}
}

const byFields = `
rules:
- {name: r, match: {path: "/v1/{item}", host: example.com, header: {X-Plan: gold}, tier: paid}, key: [user, api_key, "header:X-Shop"], cost: {from: "header:X-Cost"}, limit: {algorithm: fixed_window, rate: 5, per: 1h}}
tiers: {free: {}, paid: {}}
default_tier: free
`

func TestRulesFindTheFieldsOfARequest(t *testing.T) {
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(byFields))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	defer book.Close()
	var key string
	limit, err := New(node, book, Options{
		User:        func(c fiber.Ctx) string { return c.Get("X-User") },
		APIKey:      func(c fiber.Ctx) string { return c.Params("item") },
		Tier:        func(c fiber.Ctx) string { return "paid" },
		Skip:        func(c fiber.Ctx) bool { return c.Query("skip") != "" },
		OnDecision:  func(_ fiber.Ctx, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
		KeepOutcome: true,
	})
	require.NoError(t, err)
	app := fiber.New()
	var kept []*httplimit.Outcome
	app.Get("/v1/:item", limit, func(c fiber.Ctx) error {
		kept = append(kept, httplimit.OutcomeOf(c.Context()))
		return nil
	})
	fields := []string{"X-User", "ada", "X-Plan", "silver", "X-Plan", "gold", "X-Shop", "one", "X-Cost", "3"}
	require.Equal(t, 200, ask(app, "/v1/a%2Fb?x=/y", "192.0.2.1", fields...).StatusCode())
	require.Equal(t, "ada|a%2Fb|one", key)
	require.Equal(t, 429, ask(app, "/v1/a%2Fb", "192.0.2.1", fields...).StatusCode())
	require.Equal(t, 200, ask(app, "/v1/a%2Fb?skip=1", "192.0.2.1", fields...).StatusCode())
	require.Equal(t, 200, ask(app, "/v1/c", "192.0.2.1", fields...).StatusCode())
	require.EqualValues(t, 2, kept[0].Verdicts[0].Decision.Remaining)
	require.Equal(t, "ada|a%2Fb|one", kept[0].Verdicts[0].Key, "also after other requests")
	require.Nil(t, kept[1])
}

func TestAClosedNodeIsAnErrorForTheErrorHandler(t *testing.T) {
	l := limiter(t, 9)
	var seen error
	limit, err := ByLimiter(l, Options{Logger: slog.New(slog.DiscardHandler)})
	app := served(t, limit, err, fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		seen = err
		return fiber.DefaultErrorHandler(c, err)
	}})
	require.NoError(t, l.Node().Close())
	answer := ask(app, "/v1/a", "192.0.2.1")
	require.Equal(t, 503, answer.StatusCode())
	require.Equal(t, "1", string(answer.Header.Peek("Retry-After")))
	require.ErrorIs(t, seen, weir.ErrClosed)
}

func TestWhatIsWrongWithOptionsIsSaid(t *testing.T) {
	key := func(fiber.Ctx) string { return "" }
	l := limiter(t, 9)
	book, err := rules.Static(l.Node(), &rules.Set{})
	require.NoError(t, err)
	defer book.Close()
	_, err = ByLimiter(l, Options{User: key})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = New(l.Node(), book, Options{Key: key})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = ByLimiter(l, Options{Client: new(httplimit.FromRight("X-Forwarded-For", 0))})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

// What a request of fiber's costs beyond one without a limit: nothing is converted.
func TestALimitedRequestAddsFewAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, sync.Pool drops what it holds")
	}
	limit, err := ByLimiter(limiter(t, 1e12), Options{Key: func(c fiber.Ctx) string { return c.Get("X-User") }})
	require.NoError(t, err)
	app := fiber.New()
	hello := func(c fiber.Ctx) error { return c.SendString("hello") }
	app.Get("/limited", limit, hello)
	app.Get("/bare", hello)
	h := app.Handler()
	run := func(path string) float64 {
		var in fasthttp.Request
		in.SetRequestURI(path)
		in.Header.SetHost("example.com")
		in.Header.Set("X-User", "ada")
		var c fasthttp.RequestCtx
		c.Init(&in, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
		h(&c)
		require.Equal(t, 200, c.Response.StatusCode())
		return testing.AllocsPerRun(1000, func() { c.Response.Reset(); h(&c) })
	}
	bare := run("/bare")
	require.LessOrEqual(t, run("/limited")-bare, 4.0, "three of httplimit, and the text of fiber's IP")
}

func TestAServerLimitsByItsConnections(t *testing.T) {
	limit, err := ByLimiter(limiter(t, 2), Options{})
	app := served(t, limit, err)
	for i := range 3 {
		answer, err := app.Test(httptest.NewRequest(http.MethodGet, "/v1/a", nil), fiber.TestConfig{}) // without a timeout
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, i < 2, string(text) == "hello")
		require.Len(t, answer.Header["Ratelimit-Policy"], 1)
	}
}

func TestAFieldHasItsLinesAndNoOthers(t *testing.T) {
	app := fiber.New()
	values := func(name string, lines ...string) []string {
		var connection fasthttp.RequestCtx
		for _, line := range lines {
			connection.Request.Header.Add(name, line)
		}
		c := app.AcquireCtx(&connection)
		defer app.ReleaseCtx(c)
		return (&header{c: c}).Values(name)
	}
	for _, lines := range [][]string{{""}, {"a", "b"}} {
		require.Equal(t, lines, values("X-Any", lines...))
		require.Equal(t, lines, values("Accept", lines...))
	}
	for _, name := range []string{"Accept", "X-Any", "Cookie", "Trailer", "Content-Length", "User-Agent", "Content-Type"} {
		require.Empty(t, values(name), name)
	}
}

package echolimit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

func startNode(t *testing.T) *weir.Node {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { node.Close() })
	return node
}

func limiter(t *testing.T, rate int64) *weir.Limiter {
	l, err := startNode(t).Limiter(weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: rate, Per: time.Hour})
	require.NoError(t, err)
	return l
}

// served is an application that is limited, and whose handler says hello.
func served(t *testing.T, limit echo.MiddlewareFunc, err error) *echo.Echo {
	require.NoError(t, err)
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(limit)
	e.GET("/v1/:item", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	return e
}

func ask(h http.Handler, path, from string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = from + ":1234"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestADenialGoesToTheHTTPErrorHandler(t *testing.T) {
	for _, c := range []struct {
		about       string
		handler     echo.HTTPErrorHandler // echo's if nil
		denied      func(*echo.Context, *httplimit.Outcome) error
		status      int
		contentType string
		body        string
	}{
		{"echo's", nil, nil, 429, "application/json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL","violated-policies":["r"]}`},
		{"echo's for problems", echo.ProblemDetailsHTTPErrorHandler(false), nil, 429, "application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL"}`},
		{"the application's", func(c *echo.Context, err error) {
			var denial *Error
			if errors.As(err, &denial) {
				c.JSON(denial.StatusCode(), map[string]any{"code": "slow_down", "limits": denial.Problem.Violated})
			}
		}, nil, 429, "application/json", `{"code":"slow_down","limits":["r"]}`},
		{"not asked", nil, Write, 429, "application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL","violated-policies":["r"]}`},
		{"for another error", nil, func(*echo.Context, *httplimit.Outcome) error { return echo.NewHTTPError(418, "short and stout") }, 418, "application/json", `{"message":"short and stout"}`},
	} {
		t.Run(c.about, func(t *testing.T) {
			limit, err := ByLimiter(limiter(t, 2), Options{Denied: c.denied})
			e := served(t, limit, err)
			if c.handler != nil {
				e.HTTPErrorHandler = c.handler
			}
			for range 2 {
				w := ask(e, "/v1/a", "192.0.2.1")
				require.Equal(t, 200, w.Code)
				require.Equal(t, `"r";q=2;w=3600`, w.Header().Get("RateLimit-Policy"))
			}
			w := ask(e, "/v1/a", "192.0.2.1")
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.contentType, w.Header().Get("Content-Type"))
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
			var want, got map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.body), &want))
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			if want["detail"] != nil {
				require.Contains(t, got["detail"], `rate limit exceeded ("r"): try again in `)
				want["detail"] = got["detail"]
			}
			require.Equal(t, want, got)
		})
	}
}

func TestTheClientIsThatOfTrustedProxies(t *testing.T) {
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct {
		about     string
		extractor echo.IPExtractor
		client    *httplimit.ClientAddress
		from      string
		field     string
		want      string
	}{
		{"the connection's", nil, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1"},
		{"a proxy of echo's", echo.ExtractIPFromXFFHeader(), nil, "10.1.2.3", "203.0.113.9", "203.0.113.9"},
		{"no proxy of echo's", echo.ExtractIPFromXFFHeader(), nil, "192.0.2.1", "203.0.113.9", "192.0.2.1"},
		{"Options.Client", nil, new(httplimit.RightmostUntrusted("X-Forwarded-For", private)), "10.1.2.3", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		{"IPv6", nil, nil, "[2001:db8::1]", "", "2001:db8::/64"},
	} {
		t.Run(c.about, func(t *testing.T) {
			var key string
			limit, err := ByLimiter(limiter(t, 9), Options{
				Client: c.client, OnDecision: func(_ *echo.Context, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
			})
			e := served(t, limit, err)
			e.IPExtractor = c.extractor
			require.Equal(t, 200, ask(e, "/v1/a", c.from, "X-Forwarded-For", c.field).Code)
			require.Equal(t, c.want, key)
		})
	}
}

func TestOptionsAreOfTheContext(t *testing.T) {
	const file = "rules:\n- {name: r, match: {path: /v1/, tier: paid}, key: [user, api_key], limit: {algorithm: fixed_window, rate: 1, per: 1h}}\ntiers: {free: {}, paid: {}}\ndefault_tier: free\n"
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	defer book.Close()
	var key string
	limit, err := New(node, book, Options{
		User:        func(c *echo.Context) string { return c.Request().Header.Get("X-User") },
		APIKey:      func(c *echo.Context) string { return c.Param("item") },
		Tier:        func(c *echo.Context) string { return "paid" },
		Skip:        func(c *echo.Context) bool { return c.QueryParam("skip") != "" },
		OnDecision:  func(_ *echo.Context, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
		KeepOutcome: true,
	})
	e := served(t, limit, err)
	e.GET("/v1/kept/:item", func(c *echo.Context) error {
		return c.JSON(200, httplimit.OutcomeOf(c.Request().Context()).Verdicts[0].Decision.Remaining)
	})
	require.Equal(t, "0\n", ask(e, "/v1/kept/a", "192.0.2.1", "X-User", "ada").Body.String())
	require.Equal(t, "ada|a", key)
	require.Equal(t, 429, ask(e, "/v1/a", "192.0.2.1", "X-User", "ada").Code)
	require.Equal(t, 200, ask(e, "/v1/a?skip=1", "192.0.2.1", "X-User", "ada").Code)
	require.Equal(t, 200, ask(e, "/v1/b", "192.0.2.1", "X-User", "ada").Code)
}

func TestAGoneClientAndAClosedNodeAreAsInHTTPLimit(t *testing.T) {
	l := limiter(t, 9)
	var seen error
	limit, err := ByLimiter(l, Options{Logger: slog.New(slog.DiscardHandler)})
	e := served(t, limit, err)
	e.Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { seen = next(c); return seen }
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/a", nil).WithContext(ctx))
	require.Equal(t, httplimit.StatusClientGone, w.Code)
	require.ErrorIs(t, seen, context.Canceled)
	require.NoError(t, l.Node().Close())
	w = ask(e, "/v1/a", "192.0.2.1")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.ErrorIs(t, seen, weir.ErrClosed)
}

func TestWhatIsWrongWithOptionsIsSaid(t *testing.T) {
	key := func(*echo.Context) string { return "" }
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

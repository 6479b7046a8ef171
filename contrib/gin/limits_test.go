package ginlimit

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

func init() { gin.SetMode(gin.ReleaseMode) }

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

// served is an engine that is limited, and whose handler says hello.
func served(t *testing.T, limit gin.HandlerFunc, err error) *gin.Engine {
	require.NoError(t, err)
	router := gin.New()
	require.NoError(t, router.SetTrustedProxies(nil))
	router.Use(limit)
	router.GET("/v1/:item", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	return router
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

func TestADeniedRequestIsAbortedWithAProblem(t *testing.T) {
	limit, err := ByLimiter(limiter(t, 2), Options{})
	h := served(t, limit, err)
	reached := 0
	h.GET("/after", func(*gin.Context) { reached++ })
	for range 2 {
		w := ask(h, "/after", "192.0.2.1")
		require.Equal(t, 200, w.Code)
		require.Equal(t, `"r";q=2;w=3600`, w.Header().Get("RateLimit-Policy"))
	}
	w := ask(h, "/after", "192.0.2.1")
	require.Equal(t, 429, w.Code)
	require.Equal(t, 2, reached)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), `"violated-policies":["r"]`)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	require.Contains(t, ask(h, "/after", "192.0.2.1", "Accept", "application/json").Body.String(), `"error":"rate_limit_exceeded"`)
}

func TestTheClientIsThatOfTrustedProxies(t *testing.T) {
	proxies := httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8"))
	for _, c := range []struct {
		about    string
		trusts   func(*gin.Engine) error
		client   *httplimit.ClientAddress
		from     string
		field    string
		want     string
		warnings int
	}{
		{"gin trusts everyone", nil, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1", 1},
		{"gin trusts nobody", func(e *gin.Engine) error { return e.SetTrustedProxies(nil) }, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1", 0},
		{"a proxy of gin's", func(e *gin.Engine) error { return e.SetTrustedProxies([]string{"10.0.0.0/8"}) }, nil, "10.1.2.3", "203.0.113.9", "203.0.113.9", 0},
		{"no proxy of gin's", func(e *gin.Engine) error { return e.SetTrustedProxies([]string{"10.0.0.0/8"}) }, nil, "192.0.2.1", "203.0.113.9", "192.0.2.1", 0},
		{"a platform", func(e *gin.Engine) error { e.TrustedPlatform = gin.PlatformCloudflare; return nil }, nil, "192.0.2.1", "203.0.113.9", "198.51.100.7", 0},
		{"Options.Client", nil, &proxies, "10.1.2.3", "198.51.100.1, 203.0.113.9", "203.0.113.9", 0},
		{"IPv6", nil, nil, "[2001:db8::1]", "", "2001:db8::/64", 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			var key string
			var log bytes.Buffer
			limit, err := ByLimiter(limiter(t, 9), Options{
				Client: c.client, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				OnDecision: func(_ *gin.Context, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
			})
			require.NoError(t, err)
			router := gin.New()
			if c.trusts != nil {
				require.NoError(t, c.trusts(router))
			}
			router.Use(limit)
			router.GET("/", func(*gin.Context) {})
			for range 2 {
				require.Equal(t, 200, ask(router, "/", c.from, "X-Forwarded-For", c.field, "CF-Connecting-IP", "198.51.100.7").Code)
				require.Equal(t, c.want, key)
			}
			require.Equal(t, c.warnings, strings.Count(log.String(), "SetTrustedProxies"))
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
		User:        func(c *gin.Context) string { return c.GetHeader("X-User") },
		APIKey:      func(c *gin.Context) string { return c.Param("item") },
		Tier:        func(c *gin.Context) string { return "paid" },
		Skip:        func(c *gin.Context) bool { return c.Query("skip") != "" },
		OnDecision:  func(_ *gin.Context, o *httplimit.Outcome) { key = o.Verdicts[0].Key },
		Denied:      func(c *gin.Context, o *httplimit.Outcome) { c.JSON(418, gin.H{"why": o.Problem().Title}) },
		KeepOutcome: true,
	})
	h := served(t, limit, err)
	h.GET("/v1/kept/:item", func(c *gin.Context) {
		c.JSON(200, httplimit.OutcomeOf(c.Request.Context()).Verdicts[0].Decision.Remaining)
	})
	require.Equal(t, "0", ask(h, "/v1/kept/a", "192.0.2.1", "X-User", "ada").Body.String())
	require.Equal(t, "ada|a", key)
	w := ask(h, "/v1/a", "192.0.2.1", "X-User", "ada")
	require.Equal(t, 418, w.Code)
	require.Equal(t, `{"why":"Too Many Requests"}`, w.Body.String())
	require.Equal(t, 200, ask(h, "/v1/a?skip=1", "192.0.2.1", "X-User", "ada").Code)
	require.Equal(t, 200, ask(h, "/v1/b", "192.0.2.1", "X-User", "ada").Code)
}

func TestAGoneClientAndAClosedNodeAreAsInHTTPLimit(t *testing.T) {
	l := limiter(t, 9)
	var errs []string
	limit, err := ByLimiter(l, Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	router := gin.New()
	router.Use(func(c *gin.Context) { c.Next(); errs = append(errs, c.Errors.String()) }, limit)
	router.GET("/", func(*gin.Context) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	require.Equal(t, httplimit.StatusClientGone, w.Code)
	require.NoError(t, l.Node().Close())
	w = ask(router, "/", "192.0.2.1")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Len(t, errs, 2)
	require.Contains(t, errs[1], weir.ErrClosed.Error())
}

func TestWhatIsWrongWithOptionsIsSaid(t *testing.T) {
	key := func(*gin.Context) string { return "" }
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

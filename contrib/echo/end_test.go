package echolimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// byRules is an engine behind rules of one limit, and a Limiter of it.
func byRules(t *testing.T, file string) (*echo.Echo, *weir.Limiter) {
	t.Helper()
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { book.Close() })
	handler, err := New(node, book, Options{})
	require.NoError(t, err)
	router := echo.New()
	router.Use(handler)
	limit, _, _ := book.Current().Limit("r")
	return router, book.Current().Limiter(limit, "", "192.0.2.1")
}

const (
	oneAtOnce = "rules: [{name: r, key: ip, limit: {algorithm: in_flight, rate: 1}}]"
	failures  = "rules: [{name: r, key: ip, count: {status: [4xx, 5xx]}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
	tokens    = "rules: [{name: r, key: ip, reserve: {from: 'json:max', default: 9}, settle: {json: usage.total}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
)

// spends waits until the client has spent so many units of 100.
func spends(t *testing.T, l *weir.Limiter, units int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := l.Peek(t.Context(), "192.0.2.1")
		return err == nil && d.Remaining == 100-units
	}, 10*time.Second, time.Millisecond, "%d are spent", units)
}

func TestARequestHoldsUntilItsHandlerReturns(t *testing.T) {
	byOne, err := ByLimiter(inFlight(t), Options{})
	require.NoError(t, err)
	single := echo.New()
	single.Use(byOne)
	ruled, _ := byRules(t, oneAtOnce)
	for about, h := range map[string]*echo.Echo{"by rules": ruled, "by a Limiter": single} {
		t.Run(about, func(t *testing.T) {
			came, leave := make(chan struct{}), make(chan struct{})
			h.GET("/", func(*echo.Context) error { return nil })
			h.GET("/stay", func(*echo.Context) error { close(came); <-leave; return nil })
			h.GET("/error", func(*echo.Context) error { return errors.New("oh") })
			h.GET("/panic", func(*echo.Context) error { panic("oh") })
			ended := make(chan int)
			go func() { ended <- ask(h, "/stay", "192.0.2.1").Code }()
			<-came
			require.Equal(t, 429, ask(h, "/", "192.0.2.1").Code)
			close(leave)
			require.Equal(t, 200, <-ended)
			for range 3 {
				require.PanicsWithValue(t, "oh", func() { ask(h, "/panic", "192.0.2.1") })
				require.Equal(t, 500, ask(h, "/error", "192.0.2.1").Code)
			}
			require.Equal(t, 200, ask(h, "/", "192.0.2.1").Code)
		})
	}
}

func inFlight(t *testing.T) *weir.Limiter {
	l, err := startNode(t).Limiter(weir.Limit{Name: "r", Algorithm: weir.InFlight, Rate: 1})
	require.NoError(t, err)
	return l
}

func TestResponsesCountByTheirStatus(t *testing.T) {
	h, l := byRules(t, failures)
	h.GET("/text", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	h.GET("/status", func(c *echo.Context) error { return c.NoContent(http.StatusForbidden) })
	h.GET("/refused", func(c *echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "no") })
	h.GET("/error", func(c *echo.Context) error { return errors.New("oh") })
	h.GET("/flush", func(c *echo.Context) error {
		c.Response().WriteHeader(http.StatusBadGateway)
		return http.NewResponseController(c.Response()).Flush()
	})
	h.GET("/late", func(c *echo.Context) error {
		require.NoError(t, c.String(http.StatusOK, "hello"))
		return errors.New("oh")
	})
	spent := int64(0)
	for _, c := range []struct {
		path   string
		status int
		counts bool
	}{
		{"/text", 200, false}, {"/status", 403, true}, {"/refused", 401, true}, {"/error", 500, true},
		{"/flush", 502, true}, {"/late", 200, false}, {"/none", 404, true},
	} {
		require.Equal(t, c.status, ask(h, c.path, "192.0.2.1").Code, c.path)
		if c.counts {
			spent++
		}
		spends(t, l, spent)
	}
	h.GET("/panic", func(*echo.Context) error { panic("oh") })
	require.Panics(t, func() { ask(h, "/panic", "192.0.2.1") })
	spends(t, l, spent+1)
}

func TestAFieldOfTheResponseReplacesTheEstimate(t *testing.T) {
	h, l := byRules(t, tokens)
	var within weir.Decision
	h.POST("/", func(c *echo.Context) error {
		var request struct{ Max int }
		require.NoError(t, c.Bind(&request))
		require.Equal(t, 40, request.Max, "the handler reads the body, too")
		within, _ = l.Peek(c.Request().Context(), "192.0.2.1")
		return c.JSONBlob(http.StatusOK, []byte(`{"usage":{"total":12}}`))
	})
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"max":40}`))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "192.0.2.1:1234"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, `{"usage":{"total":12}}`, w.Body.String())
	require.EqualValues(t, 60, within.Remaining)
	spends(t, l, 12)
}

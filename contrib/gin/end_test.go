package ginlimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// byRules is an engine behind rules of one limit, and a Limiter of it.
func byRules(t *testing.T, file string) (*gin.Engine, *weir.Limiter) {
	t.Helper()
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { book.Close() })
	handler, err := New(node, book, Options{})
	require.NoError(t, err)
	router := gin.New()
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
	single := gin.New()
	require.NoError(t, err)
	single.Use(byOne)
	ruled, _ := byRules(t, oneAtOnce)
	for about, h := range map[string]*gin.Engine{"by rules": ruled, "by a Limiter": single} {
		t.Run(about, func(t *testing.T) {
			came, leave := make(chan struct{}), make(chan struct{})
			h.GET("/", func(*gin.Context) {})
			h.GET("/stay", func(*gin.Context) { close(came); <-leave })
			h.GET("/panic", func(*gin.Context) { panic("oh") })
			ended := make(chan int)
			go func() { ended <- ask(h, "/stay", "192.0.2.1").Code }()
			<-came
			require.Equal(t, 429, ask(h, "/", "192.0.2.1").Code)
			close(leave)
			require.Equal(t, 200, <-ended)
			for range 3 {
				require.PanicsWithValue(t, "oh", func() { ask(h, "/panic", "192.0.2.1") })
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
	h.GET("/text", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	h.GET("/status", func(c *gin.Context) { c.Status(http.StatusForbidden) })
	h.GET("/changed", func(c *gin.Context) { c.Status(http.StatusForbidden); c.String(http.StatusOK, "hello") })
	h.GET("/abort", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
	h.GET("/flush", func(c *gin.Context) {
		c.Status(http.StatusBadGateway)
		c.Writer.Flush()
		_, _ = c.Writer.WriteString("late")
		require.NoError(t, http.NewResponseController(c.Writer).Flush())
	})
	spent := int64(0)
	for _, c := range []struct {
		path   string
		status int
		counts bool
	}{
		{"/text", 200, false}, {"/status", 403, true}, {"/changed", 200, false}, {"/abort", 401, true}, {"/flush", 502, true}, {"/none", 404, true},
	} {
		require.Equal(t, c.status, ask(h, c.path, "192.0.2.1").Code, c.path)
		if c.counts {
			spent++
		}
		spends(t, l, spent)
	}
	h.GET("/panic", func(*gin.Context) { panic("oh") })
	require.Panics(t, func() { ask(h, "/panic", "192.0.2.1") })
	spends(t, l, spent+1)
}

func TestAFieldOfTheResponseReplacesTheEstimate(t *testing.T) {
	h, l := byRules(t, tokens)
	var within weir.Decision
	h.POST("/", func(c *gin.Context) {
		var request struct{ Max int }
		require.NoError(t, c.BindJSON(&request))
		require.Equal(t, 40, request.Max, "the handler reads the body, too")
		within, _ = l.Peek(c.Request.Context(), "192.0.2.1")
		c.JSON(http.StatusOK, gin.H{"usage": gin.H{"total": 12}})
	})
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"max":40}`))
	r.RemoteAddr = "192.0.2.1:1234"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, `{"usage":{"total":12}}`, w.Body.String())
	require.EqualValues(t, 60, within.Remaining)
	spends(t, l, 12)
}

package conformance

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestGinTrustsOnlyNamedProxies(t *testing.T) {
	trustTens := func(e *gin.Engine) { _ = e.SetTrustedProxies([]string{"10.0.0.0/8"}) }
	for about, c := range map[string]struct {
		before     func(*gin.Engine)
		from, want string
		warnings   int
	}{
		"all proxies, as by default": {func(*gin.Engine) {}, "192.0.2.1", "192.0.2.1", 1},
		"no proxy":                   {nil, "192.0.2.1", "192.0.2.1", 0},
		"this proxy":                 {trustTens, "10.1.2.3", "203.0.113.9", 0},
		"another proxy":              {trustTens, "192.0.2.1", "192.0.2.1", 0},
		"a platform":                 {func(e *gin.Engine) { e.TrustedPlatform = gin.PlatformCloudflare }, "192.0.2.1", "198.51.100.7", 0},
	} {
		t.Run(about, func(t *testing.T) {
			var log bytes.Buffer
			o := options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			require.Equal(t, c.want, keyOf(t, onGin(c.before, nil), o, c.from, "X-Forwarded-For", "203.0.113.9", "CF-Connecting-IP", "198.51.100.7"))
			require.Equal(t, c.warnings, strings.Count(log.String(), "SetTrustedProxies"))
		})
	}
}

// gin records a status and sends it later.
func TestGinCountsSentStatus(t *testing.T) {
	by, l := ruled(t, failures, options{})
	a := onGin(nil, func(e *gin.Engine) {
		e.GET("/status", func(c *gin.Context) { c.Status(http.StatusForbidden) })
		e.GET("/changed", func(c *gin.Context) { c.Status(http.StatusForbidden); c.String(http.StatusOK, "hello") })
		e.GET("/abort", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
		e.GET("/flush", func(c *gin.Context) {
			c.Status(http.StatusBadGateway)
			c.Writer.Flush()
			_, _ = c.Writer.WriteString("late")
			require.NoError(t, http.NewResponseController(c.Writer).Flush())
		})
	}).mustServe(t, handlers{"/panic": func(call) error { panic("oh") }}, by)
	requireCounted(t, a, l, map[string]int{"/status": 403, "/changed": 200, "/abort": 401, "/flush": 502})
}

func TestGinDeniesInAcceptedForm(t *testing.T) {
	var errs []string
	l := limiter(t, 1)
	a := onGin(func(e *gin.Engine) {
		e.Use(func(c *gin.Context) { c.Next(); errs = append(errs, c.Errors.String()) })
	}, nil).mustServe(t, handlers{"/": hello}, layer{limiter: l, options: options{Logger: quiet}})
	require.Equal(t, 200, a.get("/").status)
	r := a.get("/")
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	require.Contains(t, r.body, `"violated-policies":["r"]`)
	require.Contains(t, a.get("/", "Accept", "application/json").body, `"error":"rate_limit_exceeded"`)
	require.Empty(t, strings.Join(errs, ""))
	require.NoError(t, l.Node().Close())
	a.get("/")
	require.Contains(t, errs[3], weir.ErrClosed.Error())
}

package conformance

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	echolimit "github.com/weir-go/weir/contrib/echo"
	"github.com/weir-go/weir/httplimit"
)

func TestEchoHandlesDenialsAsErrors(t *testing.T) {
	for about, c := range map[string]struct {
		handler     echo.HTTPErrorHandler // the handler of echo if nil
		denied      func(call, *httplimit.Outcome) error
		status      int
		contentType string
		body        string // the expected body, in which DETAIL stands for a sentence
	}{
		"by echo":              {nil, nil, 429, "application/json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL","violated-policies":["r"]}`},
		"by echo, as problems": {echo.ProblemDetailsHTTPErrorHandler(false), nil, 429, "application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL"}`},
		"by the application": {func(c *echo.Context, err error) {
			var denial *echolimit.Error
			if errors.As(err, &denial) {
				_ = c.JSON(denial.StatusCode(), map[string]any{"code": "slow_down", "limits": denial.Problem.Violated})
			}
		}, nil, 429, "application/json", `{"code":"slow_down","limits":["r"]}`},
		"by Write":         {nil, func(c call, o *httplimit.Outcome) error { return echolimit.Write(c.(echoCall).c, o) }, 429, "application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"DETAIL","violated-policies":["r"]}`},
		"as another error": {nil, func(call, *httplimit.Outcome) error { return echo.NewHTTPError(418, "short and stout") }, 418, "application/json", `{"message":"short and stout"}`},
	} {
		t.Run(about, func(t *testing.T) {
			f := onEcho(echo.RouterConfig{}, func(e *echo.Echo) {
				if c.handler != nil {
					e.HTTPErrorHandler = c.handler
				}
			})
			a := f.mustServe(t, handlers{"/": hello}, layer{limiter: limiter(t, 1), options: options{Denied: c.denied}})
			require.Equal(t, 200, a.get("/").status)
			r := a.get("/")
			require.Equal(t, c.status, r.status)
			require.Equal(t, c.contentType, r.header.Get("Content-Type"))
			require.NotEmpty(t, r.header.Get("Retry-After"))
			var want, got map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.body), &want))
			require.NoError(t, json.Unmarshal([]byte(r.body), &got))
			if want["detail"] != nil {
				require.Contains(t, got["detail"], `rate limit exceeded ("r"): try again in `)
				want["detail"] = got["detail"]
			}
			require.Equal(t, want, got)
		})
	}
}

func TestEchoTrustsItsExtractor(t *testing.T) {
	f := onEcho(echo.RouterConfig{}, func(e *echo.Echo) { e.IPExtractor = echo.ExtractIPFromXFFHeader() })
	for from, want := range map[string]string{"10.1.2.3": "203.0.113.9", "192.0.2.1": "192.0.2.1"} {
		require.Equal(t, want, keyOf(t, f, options{}, from, "X-Forwarded-For", "203.0.113.9"))
	}
}

func TestEchoCountsSentStatus(t *testing.T) {
	by, l := ruled(t, failures, options{})
	a := onEcho(echo.RouterConfig{}, nil).mustServe(t, handlers{
		"/flush": func(c call) error {
			c.Writer().WriteHeader(http.StatusBadGateway)
			return http.NewResponseController(c.Writer()).Flush()
		},
		"/late":  func(c call) error { require.NoError(t, hello(c)); return errors.New("oh") },
		"/panic": func(call) error { panic("oh") },
	}, by)
	requireCounted(t, a, l, map[string]int{"/flush": 502, "/late": 200})
}

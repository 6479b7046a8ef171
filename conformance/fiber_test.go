package conformance

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	fiberlimit "github.com/weir-go/weir/contrib/fiber"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testenv"
)

func TestFiberHandlesDenialsAsErrors(t *testing.T) {
	for about, c := range map[string]struct {
		handler     fiber.ErrorHandler // the handler of fiber if nil
		denied      func(call, *httplimit.Outcome) error
		status      int
		contentType string
		body        string // a part of the body
	}{
		"by fiber": {nil, nil, 429, "text/plain; charset=utf-8", `rate limit exceeded ("r"): try again in `},
		"by the application": {func(c fiber.Ctx, err error) error {
			var denial *fiberlimit.Error
			if errors.As(err, &denial) {
				return c.Status(denial.Problem.Status).JSON(fiber.Map{"limits": denial.Problem.Violated})
			}
			return err
		}, nil, 429, "application/json; charset=utf-8", `{"limits":["r"]}`},
		"by Write":         {nil, func(c call, o *httplimit.Outcome) error { return fiberlimit.Write(c.(fiberCall).Ctx, o) }, 429, "application/problem+json", `"violated-policies":["r"]}`},
		"as another error": {nil, func(call, *httplimit.Outcome) error { return fiber.NewError(418, "short and stout") }, 418, "text/plain; charset=utf-8", "short and stout"},
	} {
		t.Run(about, func(t *testing.T) {
			a := onFiber(fiber.Config{ErrorHandler: c.handler}, nil).mustServe(t, handlers{"/": hello}, layer{limiter: limiter(t, 1), options: options{Denied: c.denied}})
			require.Equal(t, 200, a.get("/").status)
			r := a.get("/", "Accept", "application/problem+json")
			require.Equal(t, c.status, r.status)
			require.Equal(t, c.contentType, r.header.Get("Content-Type"))
			require.Contains(t, r.body, c.body)
			require.NotEmpty(t, r.header.Get("Retry-After"))
		})
	}
}

func TestFiberTrustsItsProxies(t *testing.T) {
	trusting := onFiber(fiber.Config{TrustProxy: true, ProxyHeader: "X-Forwarded-For", TrustProxyConfig: fiber.TrustProxyConfig{Proxies: []string{"10.0.0.0/8"}}}, nil)
	for about, c := range map[string]struct{ from, field, want string }{
		"this proxy":           {"10.1.2.3", "203.0.113.9", "203.0.113.9"},
		"a list is no address": {"10.1.2.3", "198.51.100.1, 203.0.113.9", "10.1.2.3"},
		"another proxy":        {"192.0.2.1", "203.0.113.9", "192.0.2.1"},
	} {
		require.Equal(t, c.want, keyOf(t, trusting, options{}, c.from, "X-Forwarded-For", c.field), about)
	}
}

// fasthttp sends a stream after the handlers have returned.
func TestFiberStreamsSettleByTheirHeader(t *testing.T) {
	for total, want := range map[string]int64{"14": 14, "": 40} {
		by, l := ruled(t, tokens, options{Logger: quiet})
		a := onFiber(fiber.Config{}, nil).mustServe(t, handlers{"/": func(c call) error {
			if total != "" {
				c.SetField("X-Total", total)
			}
			return c.(fiberCall).SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString(`{"usage":{"total":12}}`) })
		}}, by)
		a.ask(t.Context(), "192.0.2.1", http.MethodPost, "/", `{"max":40}`)
		requireSpent(t, l, want)
	}
}

// A request with an encoded body reserves only the default estimate.
func TestFiberReservesOnlyByPlainBodies(t *testing.T) {
	by, l := ruled(t, tokens, options{Logger: quiet})
	a := onFiber(fiber.Config{}, nil).mustServe(t, handlers{"/": hello}, by)
	a.ask(t.Context(), "192.0.2.1", http.MethodPost, "/", `{"max":40}`, "Content-Encoding", "gzip")
	requireSpent(t, l, 9)
}

// The adapter does not convert requests to net/http, so it adds few allocations.
func TestFiberAddsFewAllocations(t *testing.T) {
	if testenv.Race {
		t.Skip("with the race detector, sync.Pool drops its items")
	}
	limit, err := fiberlimit.ByLimiter(limiter(t, 1e12), fiberlimit.Options{Key: func(c fiber.Ctx) string { return c.Get("X-User") }})
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

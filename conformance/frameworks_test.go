package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir"
	echolimit "github.com/weir-go/weir/contrib/echo"
	fiberlimit "github.com/weir-go/weir/contrib/fiber"
	ginlimit "github.com/weir-go/weir/contrib/gin"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// framework is a web framework that is tested with its router and its adapter.
type framework struct {
	name    string
	netHTTP bool // the framework uses the requests of net/http
	serve   func(t testing.TB, s *site) (*app, error)
}

// site contains the handlers and middlewares that a framework serves.
type site struct {
	layers   []layer // the outermost first
	handlers map[string]func(call) error
}

// layer is a middleware by a Limiter, or by the rules of a Book.
type layer struct {
	limiter *weir.Limiter
	node    *weir.Node
	book    *rules.Book
	options options
}

type options = httplimit.FrameworkOptions[call]

// call represents a request for handlers and functions of options.
type call interface {
	Field(name string) string
	Param(name string) string
	Body() string
	Context() context.Context
	Writer() http.ResponseWriter // nil without net/http
	Store(value string)          // keeps a value for functions that are called later
	Stored() string
	SetField(name, value string)
	Answer(status int, contentType, body string) error
}

// failure is an error with a status for the response of the framework.
type failure int

func (f failure) Error() string { return http.StatusText(int(f)) }

type response struct {
	status int
	header http.Header
	body   string
}

// app sends requests to the handlers of a site.
type app struct {
	send    func(ctx context.Context, from, raw string) (*response, error) // returns an error if the server refuses the request
	handler http.Handler                                                   // nil without net/http
}

// ask sends a request from an address. fields contains alternating names and values.
func (a *app) ask(ctx context.Context, from, method, path, body string, fields ...string) *response {
	raw := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: example.com\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i < len(fields); i += 2 {
		raw += fields[i] + ": " + fields[i+1] + "\r\n"
	}
	r, err := a.send(ctx, from, raw+"\r\n"+body)
	if err != nil {
		panic(err)
	}
	return r
}

// get requests a path from 192.0.2.1.
func (a *app) get(path string, fields ...string) *response {
	return a.ask(context.Background(), "192.0.2.1", http.MethodGet, path, "", fields...)
}

// middleware creates the middleware of a layer with the constructors of an adapter.
func middleware[C, M any](l *layer, wrap func(C) call, byLimiter func(*weir.Limiter, httplimit.FrameworkOptions[C]) (M, error), byRules func(*weir.Node, *rules.Book, httplimit.FrameworkOptions[C]) (M, error)) (M, error) {
	from := &l.options
	to := httplimit.FrameworkOptions[C]{
		Client: from.Client, MaxBody: from.MaxBody, Queue: from.Queue, MaxWaiting: from.MaxWaiting, Logger: from.Logger,
		KeepOutcome: from.KeepOutcome, NoXHeaders: from.NoXHeaders, NoIETFHeaders: from.NoIETFHeaders, RefuseAmbiguousPaths: from.RefuseAmbiguousPaths,
	}
	text := func(f func(call) string) func(C) string {
		if f == nil {
			return nil
		}
		return func(c C) string { return f(wrap(c)) }
	}
	to.Key, to.User, to.APIKey, to.Tier = text(from.Key), text(from.User), text(from.APIKey), text(from.Tier)
	if from.Skip != nil {
		to.Skip = func(c C) bool { return from.Skip(wrap(c)) }
	}
	if from.Critical != nil {
		to.Critical = func(c C) bool { return from.Critical(wrap(c)) }
	}
	if from.Denied != nil {
		to.Denied = func(c C, o *httplimit.Outcome) error { return from.Denied(wrap(c), o) }
	}
	if from.OnDecision != nil {
		to.OnDecision = func(c C, o *httplimit.Outcome) { from.OnDecision(wrap(c), o) }
	}
	if from.Count != nil {
		to.Count = func(c C, r *rules.Rule, e *httplimit.Ended) bool { return from.Count(wrap(c), r, e) }
	}
	if from.Reserve != nil {
		to.Reserve = func(c C, r *rules.Rule) (int64, bool) { return from.Reserve(wrap(c), r) }
	}
	if from.Settle != nil {
		to.Settle = func(c C, r *rules.Rule, e *httplimit.Ended) (int64, bool) { return from.Settle(wrap(c), r, e) }
	}
	if l.limiter != nil {
		return byLimiter(l.limiter, to)
	}
	return byRules(l.node, l.book, to)
}

// overNetHTTP returns an app that sends requests to a handler, parsed as by a server of
// net/http.
func overNetHTTP(h http.Handler) *app {
	return &app{handler: h, send: func(ctx context.Context, from, raw string) (*response, error) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return nil, err
		}
		r.RemoteAddr = net.JoinHostPort(from, "1234")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		return &response{w.Code, w.Header(), w.Body.String()}, nil
	}}
}

func unescape(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		panic(err)
	}
	return plain
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// colons translates a pattern of http.ServeMux. The argument rest replaces the wildcard
// for the rest of a path.
func colons(pattern, rest string) string {
	pattern = strings.NewReplacer("{$}", "", "{rest...}", rest).Replace(pattern)
	return parameter.ReplaceAllString(pattern, ":$1")
}

// web is a call of net/http.
type web struct {
	w http.ResponseWriter
	r *http.Request
}

func (c web) Field(name string) string    { return c.r.Header.Get(name) }
func (c web) Param(name string) string    { return c.r.PathValue(name) }
func (c web) Context() context.Context    { return c.r.Context() }
func (c web) Writer() http.ResponseWriter { return c.w }
func (c web) Store(value string)          { c.r.Header.Set("Stored", value) }
func (c web) Stored() string              { return c.r.Header.Get("Stored") }
func (c web) SetField(name, value string) { c.w.Header().Set(name, value) }
func (c web) Answer(status int, contentType, body string) error {
	c.w.Header().Set("Content-Type", contentType)
	c.w.WriteHeader(status)
	_, err := io.WriteString(c.w, body)
	return err
}

func (c web) Body() string {
	text, err := io.ReadAll(c.r.Body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// webOptions translates the options that the tests use with package httplimit.
func webOptions(o httplimit.FrameworkOptions[*web]) httplimit.Options {
	to := httplimit.Options{Logger: o.Logger, RefuseAmbiguousPaths: o.RefuseAmbiguousPaths}
	if o.OnDecision != nil {
		to.OnDecision = func(r *http.Request, of *httplimit.Outcome) { o.OnDecision(&web{r: r}, of) }
	}
	return to
}

// onNetHTTP returns a framework with a router of net/http behind package httplimit.
func onNetHTTP(name string, router func(map[string]http.Handler) http.Handler) *framework {
	return &framework{name, true, func(_ testing.TB, s *site) (*app, error) {
		handlers := make(map[string]http.Handler)
		for path, handle := range s.handlers {
			handlers[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := handle(web{w, r}); err != nil {
					w.WriteHeader(statusOf(err))
				}
			})
		}
		h := router(handlers)
		for i := range s.layers {
			m, err := middleware(&s.layers[len(s.layers)-1-i], func(c *web) call { return *c },
				func(l *weir.Limiter, o httplimit.FrameworkOptions[*web]) (*httplimit.Middleware, error) {
					return httplimit.ByLimiter(l, webOptions(o))
				},
				func(n *weir.Node, b *rules.Book, o httplimit.FrameworkOptions[*web]) (*httplimit.Middleware, error) {
					return httplimit.New(n, b, webOptions(o))
				})
			if err != nil {
				return nil, err
			}
			h = m.Handler(h)
		}
		return overNetHTTP(h), nil
	}}
}

func statusOf(err error) int {
	var f failure
	if errors.As(err, &f) {
		return int(f)
	}
	return http.StatusInternalServerError
}

func newMux(handlers map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.Handle(path, h)
	}
	return mux
}

func newChi(handlers map[string]http.Handler) http.Handler {
	mux := chi.NewRouter()
	for path, h := range handlers {
		path = strings.NewReplacer("{$}", "", "{rest...}", "*").Replace(unescape(path))
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			mux.Method(method, path, h)
		}
	}
	return mux
}

// echoCall is a call of echo.
type echoCall struct {
	web
	c *echo.Context
}

func newEchoCall(c *echo.Context) call { return echoCall{web{c.Response(), c.Request()}, c} }

func (c echoCall) Param(name string) string { return c.c.Param(name) }
func (c echoCall) Store(value string)       { c.c.Set("stored", value) }
func (c echoCall) Stored() string           { value, _ := c.c.Get("stored").(string); return value }
func (c echoCall) Answer(status int, contentType, body string) error {
	return c.c.Blob(status, contentType, []byte(body))
}

// onEcho returns the framework echo. The function after may change the echo.Echo before
// it serves.
func onEcho(config echo.RouterConfig, after func(*echo.Echo)) *framework {
	return &framework{"echo", true, func(_ testing.TB, s *site) (*app, error) {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
		e.Logger = slog.New(slog.DiscardHandler)
		for i := range s.layers {
			m, err := middleware(&s.layers[i], newEchoCall, echolimit.ByLimiter, echolimit.New)
			if err != nil {
				return nil, err
			}
			e.Use(m)
		}
		for path, handle := range s.handlers {
			e.Any(unescape(colons(path, "*")), func(c *echo.Context) error {
				err := handle(newEchoCall(c))
				if f := failure(0); errors.As(err, &f) {
					return echo.NewHTTPError(int(f), "no")
				}
				return err
			})
		}
		if after != nil {
			after(e)
		}
		return overNetHTTP(e), nil
	}}
}

// ginCall is a call of gin.
type ginCall struct {
	web
	c *gin.Context
}

func newGinCall(c *gin.Context) call { return ginCall{web{c.Writer, c.Request}, c} }

func (c ginCall) Param(name string) string { return c.c.Param(name) }
func (c ginCall) Store(value string)       { c.c.Set("stored", value) }
func (c ginCall) Stored() string           { return c.c.GetString("stored") }
func (c ginCall) Answer(status int, contentType, body string) error {
	c.c.Data(status, contentType, []byte(body))
	return nil
}

// onGin returns the framework gin. The function before, if not nil, configures the
// engine. The function after, if not nil, adds handlers.
func onGin(before, after func(*gin.Engine)) *framework {
	gin.SetMode(gin.ReleaseMode)
	return &framework{"gin", true, func(t testing.TB, s *site) (*app, error) {
		e := gin.New()
		if before == nil {
			require.NoError(t, e.SetTrustedProxies(nil))
		} else {
			before(e)
		}
		for i := range s.layers {
			m, err := middleware(&s.layers[i], newGinCall, ginlimit.ByLimiter, ginlimit.New)
			if err != nil {
				return nil, err
			}
			e.Use(m)
		}
		for path, handle := range s.handlers {
			e.Any(unescape(colons(path, "*rest")), func(c *gin.Context) {
				if err := handle(newGinCall(c)); err != nil {
					c.AbortWithStatus(statusOf(err))
				}
			})
		}
		if after != nil {
			after(e)
		}
		return overNetHTTP(e), nil
	}}
}

type fiberCall struct{ fiber.Ctx }

func (c fiberCall) Field(name string) string    { return c.Get(name) }
func (c fiberCall) Param(name string) string    { return c.Params(name) }
func (c fiberCall) Body() string                { return string(c.Ctx.Body()) }
func (c fiberCall) Context() context.Context    { return c.Ctx.Context() }
func (c fiberCall) Writer() http.ResponseWriter { return nil }
func (c fiberCall) Store(value string)          { fiber.Locals(c.Ctx, "stored", value) }
func (c fiberCall) Stored() string              { return fiber.Locals[string](c.Ctx, "stored") }
func (c fiberCall) SetField(name, value string) { c.Set(name, value) }
func (c fiberCall) Answer(status int, contentType, body string) error {
	c.Set(fiber.HeaderContentType, contentType)
	return c.Status(status).SendString(body)
}

// onFiber returns the framework fiber. The function after may add handlers.
func onFiber(config fiber.Config, after func(*fiber.App)) *framework {
	return &framework{"fiber", false, func(_ testing.TB, s *site) (*app, error) {
		of := fiber.New(config)
		for i := range s.layers {
			m, err := middleware(&s.layers[i], func(c fiber.Ctx) call { return fiberCall{c} }, fiberlimit.ByLimiter, fiberlimit.New)
			if err != nil {
				return nil, err
			}
			of.Use(m)
		}
		for path, handle := range s.handlers {
			path = colons(path, "*")
			if config.UnescapePath {
				path = unescape(path)
			}
			of.All(path, func(c fiber.Ctx) error {
				err := handle(fiberCall{c})
				if f := failure(0); errors.As(err, &f) {
					return fiber.NewError(int(f), "no")
				}
				return err
			})
		}
		if after != nil {
			after(of)
		}
		return &app{send: overFasthttp(of.Handler())}, nil
	}}
}

// overFasthttp returns a function that sends requests to a handler, parsed as by a server
// of fasthttp.
func overFasthttp(h fasthttp.RequestHandler) func(context.Context, string, string) (*response, error) {
	return func(_ context.Context, from, raw string) (*response, error) {
		var r fasthttp.Request
		if err := r.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
			return nil, err
		}
		var c fasthttp.RequestCtx
		c.Init(&r, &net.TCPAddr{IP: net.ParseIP(from), Port: 1234}, nil)
		h(&c)
		header := make(http.Header)
		for name, value := range c.Response.Header.All() {
			header.Add(string(name), string(value))
		}
		return &response{c.Response.StatusCode(), header, string(c.Response.Body())}, nil
	}
}

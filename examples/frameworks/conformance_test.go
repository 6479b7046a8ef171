package main

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	echolimit "github.com/weir-go/weir/contrib/echo"
	fiberlimit "github.com/weir-go/weir/contrib/fiber"
	ginlimit "github.com/weir-go/weir/contrib/gin"
	grpclimit "github.com/weir-go/weir/contrib/grpc"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// An adapter serves a handler behind several limits, and asks the limits in the given
// order.
type adapter struct {
	// serve returns what sends a request and returns its answer's header.
	serve func(t *testing.T, limits ...*weir.Limiter) func() (admitted bool, header http.Header)
	// refuses has an error for each option of one limit that has no effect, by the option's name.
	refuses func(l *weir.Limiter) map[string]error
	// ruled is the error of rules with a Key.
	ruled func(n *weir.Node, b *rules.Book) error
}

func overHTTP(t *testing.T, h http.Handler) func() (bool, http.Header) {
	return func() (bool, http.Header) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Contains(t, []int{200, 429}, w.Code)
		return w.Code == 200, w.Header()
	}
}

var adapters = map[string]adapter{
	"net/http": {
		serve: func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
			for _, l := range slices.Backward(limits) {
				m, err := httplimit.ByLimiter(l, httplimit.Options{})
				require.NoError(t, err)
				h = m.Handler(h)
			}
			return overHTTP(t, h)
		},
		refuses: func(l *weir.Limiter) map[string]error {
			who := func(*http.Request) string { return "" }
			return refusals(func(o httplimit.Options) error { _, err := httplimit.ByLimiter(l, o); return err }, map[string]httplimit.Options{
				"User": {User: who}, "APIKey": {APIKey: who}, "Tier": {Tier: who}, "MaxWaiting": {MaxWaiting: 1}, "MaxBody": {MaxBody: 1},
			})
		},
		ruled: func(n *weir.Node, b *rules.Book) error {
			_, err := httplimit.New(n, b, httplimit.Options{Key: func(*http.Request) string { return "" }})
			return err
		},
	},
	"echo": {
		serve: func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
			e := echo.New()
			e.Logger = slog.New(slog.DiscardHandler)
			for _, l := range limits {
				m, err := echolimit.ByLimiter(l, echolimit.Options{})
				require.NoError(t, err)
				e.Use(m)
			}
			e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
			return overHTTP(t, e)
		},
		refuses: func(l *weir.Limiter) map[string]error {
			who := func(*echo.Context) string { return "" }
			return refusals(func(o echolimit.Options) error { _, err := echolimit.ByLimiter(l, o); return err }, map[string]echolimit.Options{
				"User": {User: who}, "APIKey": {APIKey: who}, "Tier": {Tier: who}, "MaxWaiting": {MaxWaiting: 1}, "MaxBody": {MaxBody: 1},
			})
		},
		ruled: func(n *weir.Node, b *rules.Book) error {
			_, err := echolimit.New(n, b, echolimit.Options{Key: func(*echo.Context) string { return "" }})
			return err
		},
	},
	"gin": {
		serve: func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
			e := gin.New()
			for _, l := range limits {
				m, err := ginlimit.ByLimiter(l, ginlimit.Options{})
				require.NoError(t, err)
				e.Use(m)
			}
			e.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
			return overHTTP(t, e)
		},
		refuses: func(l *weir.Limiter) map[string]error {
			who := func(*gin.Context) string { return "" }
			return refusals(func(o ginlimit.Options) error { _, err := ginlimit.ByLimiter(l, o); return err }, map[string]ginlimit.Options{
				"User": {User: who}, "APIKey": {APIKey: who}, "Tier": {Tier: who}, "MaxWaiting": {MaxWaiting: 1}, "MaxBody": {MaxBody: 1},
			})
		},
		ruled: func(n *weir.Node, b *rules.Book) error {
			_, err := ginlimit.New(n, b, ginlimit.Options{Key: func(*gin.Context) string { return "" }})
			return err
		},
	},
	"fiber": {
		serve: func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
			app := fiber.New()
			for _, l := range limits {
				m, err := fiberlimit.ByLimiter(l, fiberlimit.Options{})
				require.NoError(t, err)
				app.Use(m)
			}
			app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
			return func() (bool, http.Header) {
				answer, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Contains(t, []int{200, 429}, answer.StatusCode)
				return answer.StatusCode == 200, answer.Header
			}
		},
		refuses: func(l *weir.Limiter) map[string]error {
			who := func(fiber.Ctx) string { return "" }
			return refusals(func(o fiberlimit.Options) error { _, err := fiberlimit.ByLimiter(l, o); return err }, map[string]fiberlimit.Options{
				"User": {User: who}, "APIKey": {APIKey: who}, "Tier": {Tier: who}, "MaxWaiting": {MaxWaiting: 1},
			})
		},
		ruled: func(n *weir.Node, b *rules.Book) error {
			_, err := fiberlimit.New(n, b, fiberlimit.Options{Key: func(fiber.Ctx) string { return "" }})
			return err
		},
	},
	"grpc, unary": overGRPC(func(ctx context.Context, c grpc_health_v1.HealthClient, header *metadata.MD) error {
		_, err := c.Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Header(header))
		return err
	}),
	"grpc, stream": overGRPC(func(ctx context.Context, c grpc_health_v1.HealthClient, header *metadata.MD) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil {
			*header, err = stream.Header()
			return err
		}
		*header, _ = stream.Header()
		return err
	}),
}

func overGRPC(ask func(context.Context, grpc_health_v1.HealthClient, *metadata.MD) error) adapter {
	return adapter{
		serve: func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
			var unary []grpc.UnaryServerInterceptor
			var streams []grpc.StreamServerInterceptor
			for _, l := range limits {
				m, err := grpclimit.ByLimiter(l, grpclimit.Options{})
				require.NoError(t, err)
				unary, streams = append(unary, m.Unary()), append(streams, m.Stream())
			}
			server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
			grpc_health_v1.RegisterHealthServer(server, health.NewServer())
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close() })
			client := grpc_health_v1.NewHealthClient(conn)
			return func() (bool, http.Header) {
				var md metadata.MD
				err := ask(t.Context(), client, &md)
				require.Contains(t, []codes.Code{codes.OK, codes.ResourceExhausted}, status.Code(err))
				header := make(http.Header)
				for name, values := range md {
					header[http.CanonicalHeaderKey(name)] = values
				}
				return err == nil, header
			}
		},
		refuses: func(l *weir.Limiter) map[string]error {
			who := func(context.Context) string { return "" }
			return refusals(func(o grpclimit.Options) error { _, err := grpclimit.ByLimiter(l, o); return err }, map[string]grpclimit.Options{
				"User": {User: who}, "APIKey": {APIKey: who}, "Tier": {Tier: who},
			})
		},
		ruled: func(n *weir.Node, b *rules.Book) error {
			_, err := grpclimit.New(n, b, grpclimit.Options{Key: func(context.Context, *rules.Request) (string, bool) { return "", true }})
			return err
		},
	}
}

func refusals[O any](by func(O) error, options map[string]O) map[string]error {
	errs := make(map[string]error)
	for name, o := range options {
		errs[name] = by(o)
	}
	return errs
}

// conform runs a test for each adapter, on a node of its own.
func conform(t *testing.T, test func(t *testing.T, a adapter, n *weir.Node)) {
	gin.SetMode(gin.ReleaseMode)
	for _, name := range slices.Sorted(maps.Keys(adapters)) {
		t.Run(name, func(t *testing.T) {
			n, err := weir.Start(t.Context(), weir.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { n.Close() })
			test(t, adapters[name], n)
		})
	}
}

// A client that reads the fields behind two middlewares can rely on the strictest numbers.
func TestFieldsOfTwoMiddlewaresAreOfTheStrictestLimit(t *testing.T) {
	conform(t, func(t *testing.T, a adapter, n *weir.Node) {
		for _, order := range [][]string{{"wide", "narrow"}, {"narrow", "wide"}} {
			var limits []*weir.Limiter
			for _, name := range order {
				l := weir.Limit{Name: name + " of " + order[0], Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour}
				if name == "narrow" {
					l.Rate, l.Per = 3, time.Minute
				}
				limiter, err := n.Limiter(l)
				require.NoError(t, err)
				limits = append(limits, limiter)
			}
			send := a.serve(t, limits...)
			for i, remaining := range []string{"2", "1", "0", "0"} {
				admitted, h := send()
				require.Equal(t, i < 3, admitted)
				for name, want := range map[string][]string{"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {remaining}} {
					require.Equal(t, want, h[name], "%s of request %d, %v", name, i, order)
				}
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
	})
}

// A limit that two middlewares ask is one item, with what the second one has left.
func TestALimitAskedTwiceIsToldOnce(t *testing.T) {
	conform(t, func(t *testing.T, a adapter, n *weir.Node) {
		l, err := n.Limiter(weir.Limit{Name: "a, b", Algorithm: weir.FixedWindow, Rate: 10, Per: time.Hour})
		require.NoError(t, err)
		_, h := a.serve(t, l, l)()
		require.Equal(t, []string{"8"}, h["X-Ratelimit-Remaining"])
		require.Len(t, h["Ratelimit"], 1)
		require.True(t, strings.HasPrefix(h.Get("Ratelimit"), `"a, b";r=8;t=`), h.Get("Ratelimit"))
		require.Equal(t, []string{`"a, b";q=10;w=3600`}, h["Ratelimit-Policy"])
	})
}

func TestOptionsWithoutEffectAreRefused(t *testing.T) {
	conform(t, func(t *testing.T, a adapter, n *weir.Node) {
		l, err := n.Limiter(weir.Limit{Name: "l", Rate: 1, Per: time.Minute})
		require.NoError(t, err)
		for name, err := range a.refuses(l) {
			require.ErrorIs(t, err, weir.ErrInvalid, name)
			require.ErrorContains(t, err, name)
		}
		book, err := rules.Static(n, new(rules.Set))
		require.NoError(t, err)
		defer book.Close()
		err = a.ruled(n, book)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, "Options.Key")
	})
}

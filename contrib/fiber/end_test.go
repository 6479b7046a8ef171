package fiberlimit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// byRules is an application behind rules of one limit, and a Limiter of it.
func byRules(t *testing.T, file string, o Options) (*fiber.App, *weir.Limiter) {
	t.Helper()
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { book.Close() })
	handler, err := New(node, book, o)
	require.NoError(t, err)
	app := fiber.New()
	app.Use(handler)
	limit, _, _ := book.Current().Limit("r")
	return app, book.Current().Limiter(limit, "", "192.0.2.1")
}

const (
	oneAtOnce = "rules: [{name: r, key: ip, limit: {algorithm: in_flight, rate: 1}}]"
	failures  = "rules: [{name: r, key: ip, count: {status: [4xx, 5xx]}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
	tokens    = "rules: [{name: r, key: ip, reserve: {from: 'json:max', default: 9}, settle: {json: usage.total, header: X-Total}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
)

// spends waits until the client has spent so many units of 100.
func spends(t *testing.T, l *weir.Limiter, units int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := l.Peek(t.Context(), "192.0.2.1")
		return err == nil && d.Remaining == 100-units
	}, 10*time.Second, time.Millisecond, "%d are spent", units)
}

func TestARequestHoldsUntilItsHandlersReturn(t *testing.T) {
	l, err := startNode(t).Limiter(weir.Limit{Name: "r", Algorithm: weir.InFlight, Rate: 1})
	require.NoError(t, err)
	byOne, err := ByLimiter(l, Options{})
	require.NoError(t, err)
	single := fiber.New()
	single.Use(byOne)
	ruled, _ := byRules(t, oneAtOnce, Options{})
	for about, app := range map[string]*fiber.App{"by rules": ruled, "by a Limiter": single} {
		t.Run(about, func(t *testing.T) {
			came, leave := make(chan struct{}), make(chan struct{})
			app.Get("/", func(fiber.Ctx) error { return nil })
			app.Get("/stay", func(fiber.Ctx) error { close(came); <-leave; return nil })
			app.Get("/error", func(fiber.Ctx) error { return errors.New("oh") })
			app.Get("/panic", func(fiber.Ctx) error { panic("oh") })
			ended := make(chan int)
			go func() { ended <- ask(app, "/stay", "192.0.2.1").StatusCode() }()
			<-came
			require.Equal(t, 429, ask(app, "/", "192.0.2.1").StatusCode())
			close(leave)
			require.Equal(t, 200, <-ended)
			for range 3 {
				require.PanicsWithValue(t, "oh", func() { ask(app, "/panic", "192.0.2.1") })
				require.Equal(t, 500, ask(app, "/error", "192.0.2.1").StatusCode())
			}
			require.Equal(t, 200, ask(app, "/", "192.0.2.1").StatusCode())
		})
	}
}

func TestResponsesCountByTheirStatus(t *testing.T) {
	app, l := byRules(t, failures, Options{})
	app.Get("/text", func(c fiber.Ctx) error { return c.SendString("hello") })
	app.Get("/status", func(c fiber.Ctx) error { return c.SendStatus(http.StatusForbidden) })
	app.Get("/refused", func(fiber.Ctx) error { return fiber.NewError(http.StatusUnauthorized, "no") })
	app.Get("/error", func(fiber.Ctx) error { return errors.New("oh") })
	app.Get("/panic", func(fiber.Ctx) error { panic("oh") })
	spent := int64(0)
	for _, c := range []struct {
		path   string
		status int
		counts bool
	}{{"/text", 200, false}, {"/status", 403, true}, {"/refused", 401, true}, {"/error", 500, true}, {"/none", 404, true}} {
		require.Equal(t, c.status, ask(app, c.path, "192.0.2.1").StatusCode(), c.path)
		if c.counts {
			spent++
		}
		spends(t, l, spent)
	}
	require.Panics(t, func() { ask(app, "/panic", "192.0.2.1") })
	spends(t, l, spent+1)
}

func TestWhatAResponseSaysReplacesTheEstimate(t *testing.T) {
	for _, c := range []struct {
		about, total string
		answer       func(fiber.Ctx) error
		want         int64
	}{
		{"a field of the body", "", func(c fiber.Ctx) error { return c.JSON(fiber.Map{"usage": fiber.Map{"total": 12}}) }, 12},
		{"a header", "13", func(c fiber.Ctx) error { return c.SendString("hello") }, 13},
		{"a header of a stream", "14", func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("hello") })
		}, 14},
		{"a stream says nothing", "", func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString(`{"usage":{"total":12}}`) })
		}, 40},
		{"an error", "", func(fiber.Ctx) error { return errors.New("oh") }, 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			app, l := byRules(t, tokens, Options{})
			var within weir.Decision
			app.Post("/", func(ctx fiber.Ctx) error {
				within, _ = l.Peek(t.Context(), "192.0.2.1")
				if c.total != "" {
					ctx.Set("X-Total", c.total)
				}
				return c.answer(ctx)
			})
			var in fasthttp.Request
			in.Header.SetMethod(http.MethodPost)
			in.SetRequestURI("/")
			in.SetBodyString(`{"max":40}`)
			var connection fasthttp.RequestCtx
			connection.Init(&in, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1234}, nil)
			app.Handler()(&connection)
			require.EqualValues(t, 60, within.Remaining)
			spends(t, l, c.want)
		})
	}
}

// The functions find fiber's context, also once the handlers have returned or panicked.
func TestFunctionsEstimateCountAndSettle(t *testing.T) {
	number := func(text string) (int64, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	settles := Options{
		Reserve: func(c fiber.Ctx, rule *rules.Rule) (int64, bool) {
			require.Equal(t, "r", rule.Name)
			return number(c.Get("X-Max"))
		},
		Settle: func(c fiber.Ctx, _ *rules.Rule, e *httplimit.Ended) (int64, bool) {
			if e.Aborted {
				return 7, true
			}
			return number(fiber.Locals[string](c, "cost"))
		},
	}
	counts := Options{Count: func(c fiber.Ctx, _ *rules.Rule, e *httplimit.Ended) bool {
		return e.Status == http.StatusOK && fiber.Locals[string](c, "cost") != ""
	}}
	const estimated = "rules: [{name: r, key: ip, reserve: {from: content_length, default: 9}, settle: {header: X-Total, on_error: keep}, limit: {algorithm: fixed_window, rate: 100, per: 1h}}]"
	for _, c := range []struct {
		about, rules, path string // a limit of its own without rules
		o                  Options
		within, after      int64
	}{
		{"by rules, the cost that the handler found", estimated, "/cost", settles, 30, 12},
		{"by rules, a panic", estimated, "/panic", settles, 30, 7}, // on_error: keep
		{"by a Limiter, the cost that the handler found", "", "/cost", settles, 30, 12},
		{"by a Limiter, a panic", "", "/panic", settles, 30, 0},
		{"by rules, what counts", failures, "/cost", counts, 1, 1},
		{"by rules, what does not count", failures, "/none", counts, 1, 0},
		{"by a Limiter, what counts", "", "/cost", counts, 1, 1},
		{"by a Limiter, what does not count", "", "/none", counts, 1, 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			app, l := fiber.New(), (*weir.Limiter)(nil)
			if c.rules != "" {
				app, l = byRules(t, c.rules, c.o)
			} else {
				var err error
				l, err = startNode(t).Limiter(weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 100, Per: time.Hour})
				require.NoError(t, err)
				handler, err := ByLimiter(l, c.o)
				require.NoError(t, err)
				app.Use(handler)
			}
			within := func(f func()) fiber.Handler {
				return func(ctx fiber.Ctx) error {
					d, err := l.Peek(t.Context(), "192.0.2.1")
					require.NoError(t, err)
					require.Equal(t, 100-c.within, d.Remaining)
					f()
					return nil
				}
			}
			app.Get("/cost", func(ctx fiber.Ctx) error {
				fiber.Locals(ctx, "cost", "12")
				return within(func() {})(ctx)
			})
			app.Get("/none", within(func() {}))
			app.Get("/panic", within(func() { panic("oh") }))
			var in fasthttp.Request
			in.SetRequestURI(c.path)
			in.Header.Set("X-Max", "30")
			var connection fasthttp.RequestCtx
			connection.Init(&in, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1234}, nil)
			func() {
				defer func() { require.Equal(t, c.path == "/panic", recover() != nil) }()
				app.Handler()(&connection)
			}()
			spends(t, l, c.after)
		})
	}
}

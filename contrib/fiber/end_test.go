package fiberlimit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// byRules is an application behind rules of one limit, and a Limiter of it.
func byRules(t *testing.T, file string) (*fiber.App, *weir.Limiter) {
	t.Helper()
	node := startNode(t)
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { book.Close() })
	handler, err := New(node, book, Options{})
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
	ruled, _ := byRules(t, oneAtOnce)
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
	app, l := byRules(t, failures)
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
			app, l := byRules(t, tokens)
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

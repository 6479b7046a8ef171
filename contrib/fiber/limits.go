package fiberlimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options say how requests are read and answered. The zero Options are valid. Functions
// must not block, and may return texts of fiber's that hold until the request has ended.
type Options struct {
	// Client is which address a request comes from. Without it, it is fiber's IP: that of
	// the connection, unless Config.TrustProxy and ProxyHeader find another. Of a list fiber
	// takes the first entry, which a client may have written: for proxies that append to
	// one, use new(httplimit.RightmostUntrusted(...)).
	Client *httplimit.ClientAddress

	// Key returns the text whose count a request spends from. Where it is empty or Key is
	// nil, the request spends from the count of the client's address. It is for ByLimiter
	// alone, because rules have keys of their own.
	Key func(fiber.Ctx) string

	// User, APIKey and Tier say who asks, by means that cannot be forged; empty if it is
	// not known. They are for New alone.
	User, APIKey, Tier func(fiber.Ctx) string

	// Skip reports whether a request is not limited.
	Skip func(fiber.Ctx) bool

	// Denied answers a request that is denied, or returns an error of its own for the
	// ErrorHandler. An *Error goes there if it is nil; Write answers with the body of
	// docs/http.md. The fields are set. The Outcome must not be kept.
	Denied func(fiber.Ctx, *httplimit.Outcome) error

	// OnDecision is told what became of each request that met a limit, before it goes on or
	// is answered. The Outcome must not be kept.
	OnDecision func(fiber.Ctx, *httplimit.Outcome)

	// These are as in httplimit.Options: functions of a request's end, and of what it may cost.
	// They are called while the handlers run or as they return, so before a stream is sent.
	Count   func(fiber.Ctx, *rules.Rule, *httplimit.Ended) bool
	Reserve func(fiber.Ctx, *rules.Rule) (units int64, ok bool)
	Settle  func(fiber.Ctx, *rules.Rule, *httplimit.Ended) (units int64, ok bool)

	// These, too, are as in httplimit.Options. httplimit.OutcomeOf takes c.Context().
	KeepOutcome, NoXHeaders, NoIETFHeaders, RefuseAmbiguousPaths bool
	Queue                                                        time.Duration
	MaxWaiting                                                   int
	Logger                                                       *slog.Logger
}

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for what is wrong
// with o.
func New(node *weir.Node, book *rules.Book, o Options) (fiber.Handler, error) {
	return o.handler(httplimit.New(node, book, o.common()))
}

// ByLimiter limits requests by one limit: each costs one unit of Options.Key's count, or holds
// one until its handlers return where the limit is InFlight. The error is weir.ErrInvalid for
// what is wrong with o.
func ByLimiter(l *weir.Limiter, o Options) (fiber.Handler, error) {
	return o.handler(httplimit.ByLimiter(l, o.common()))
}

// common returns the Options of httplimit. Of what an exchange is asked for, a function there
// only shows that one is here.
func (o *Options) common() httplimit.Options {
	shown := func(f func(fiber.Ctx) string) func(*http.Request) string {
		if f == nil {
			return nil
		}
		return func(*http.Request) string { return "" }
	}
	common := httplimit.Options{
		Key: shown(o.Key), User: shown(o.User), APIKey: shown(o.APIKey), Tier: shown(o.Tier),
		NoXHeaders: o.NoXHeaders, NoIETFHeaders: o.NoIETFHeaders, RefuseAmbiguousPaths: o.RefuseAmbiguousPaths,
		Queue: o.Queue, MaxWaiting: o.MaxWaiting, Logger: o.Logger,
	}
	if o.Client != nil {
		common.Client = *o.Client
	}
	if o.Count != nil {
		common.Count = func(r *http.Request, rule *rules.Rule, e *httplimit.Ended) bool { return o.Count(ctxOf(r), rule, e) }
	}
	if o.Reserve != nil {
		common.Reserve = func(*http.Request, *rules.Rule) (int64, bool) { return 0, false }
	}
	if o.Settle != nil {
		common.Settle = func(r *http.Request, rule *rules.Rule, e *httplimit.Ended) (int64, bool) {
			return o.Settle(ctxOf(r), rule, e)
		}
	}
	return common
}

// handler makes a Handler of what httplimit returned.
func (o *Options) handler(limit *httplimit.Middleware, err error) (fiber.Handler, error) {
	if err != nil {
		return nil, err
	}
	l := *o
	exchanges := sync.Pool{New: func() any { return new(exchange) }}
	var known atomic.Pointer[routing] // of the app that was asked last
	return func(c fiber.Ctx) error {
		if l.Skip != nil && l.Skip(c) {
			return c.Next()
		}
		e := exchanges.Get().(*exchange)
		e.o, e.c, e.header.c, e.routing = &l, c, c, known.Load()
		if e.routing == nil || e.routing.app != c.App() {
			e.routing = routingOf(c.App())
			known.Store(e.routing)
		}
		a, admitted := limit.Begin(c.Context(), e)
		err := e.err
		*e = exchange{header: header{lines: e.header.forget()}}
		exchanges.Put(e)
		switch {
		case !admitted:
			return err
		case a == nil:
			return c.Next()
		}
		return end(c, a)
	}, nil
}

// clientOf is the address that a request comes from.
func (o *Options) clientOf(c fiber.Ctx, h *header) netip.Addr {
	client := o.Client
	if client == nil {
		if a, err := netip.ParseAddr(c.IP()); err == nil && !a.IsUnspecified() { // which stands for a Unix socket's
			return a.Unmap().WithZone("")
		}
		client = new(httplimit.RemoteAddr())
	}
	remote, local := c.RequestCtx().RemoteAddr(), c.RequestCtx().LocalAddr()
	return client.From(h, remote.String(), local.Network() == "unix")
}

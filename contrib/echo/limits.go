package echolimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options say how requests are read and answered. The zero Options are valid. Functions
// must not block.
type Options struct {
	// Client is which address a request comes from. Without it, it is echo's RealIP: that of
	// the connection, unless Echo.IPExtractor finds another.
	Client *httplimit.ClientAddress

	// Key returns the text whose count a request spends from. Where it is empty or Key is
	// nil, the request spends from the count of the client's address. It is for ByLimiter
	// alone, because rules have keys of their own.
	Key func(*echo.Context) string

	// User, APIKey and Tier say who asks, by means that cannot be forged; empty if it is
	// not known. They are for New alone.
	User, APIKey, Tier func(*echo.Context) string

	// Skip reports whether a request is not limited.
	Skip func(*echo.Context) bool

	// Denied answers a request that is denied, or returns an error of its own for the
	// HTTPErrorHandler. An *Error goes there if it is nil; Write answers with the body of
	// docs/http.md. The fields are set. The Outcome must not be kept.
	Denied func(*echo.Context, *httplimit.Outcome) error

	// OnDecision is told what became of each request that met a limit, before it goes on or
	// is answered. The Outcome must not be kept.
	OnDecision func(*echo.Context, *httplimit.Outcome)

	// These are as in httplimit.Options: functions of a request's end, and of what it may cost.
	Count   func(*http.Request, *rules.Rule, *httplimit.Ended) bool
	Reserve func(*http.Request, *rules.Rule) (units int64, ok bool)
	Settle  func(*http.Request, *rules.Rule, *httplimit.Ended) (units int64, ok bool)
	MaxBody int64

	// These, too, are as in httplimit.Options. httplimit.OutcomeOf takes c.Request().Context().
	KeepOutcome, NoXHeaders, NoIETFHeaders, RefuseAmbiguousPaths bool
	Queue                                                        time.Duration
	MaxWaiting                                                   int
	Logger                                                       *slog.Logger
}

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for what is wrong
// with o.
func New(node *weir.Node, book *rules.Book, o Options) (echo.MiddlewareFunc, error) {
	return o.middleware(httplimit.New(node, book, o.common()))
}

// ByLimiter limits requests by one limit: each costs one unit of Options.Key's count, or holds
// one until it ends where the limit is InFlight. The error is weir.ErrInvalid for what is
// wrong with o.
func ByLimiter(l *weir.Limiter, o Options) (echo.MiddlewareFunc, error) {
	return o.middleware(httplimit.ByLimiter(l, o.common()))
}

// common returns the Options of httplimit. A function there only shows that one is here:
// exchange.Read calls these.
func (o *Options) common() httplimit.Options {
	shown := func(f func(*echo.Context) string) func(*http.Request) string {
		if f == nil {
			return nil
		}
		return func(*http.Request) string { return "" }
	}
	common := httplimit.Options{
		Key: shown(o.Key), User: shown(o.User), APIKey: shown(o.APIKey), Tier: shown(o.Tier),
		NoXHeaders: o.NoXHeaders, NoIETFHeaders: o.NoIETFHeaders, RefuseAmbiguousPaths: o.RefuseAmbiguousPaths,
		Queue: o.Queue, MaxWaiting: o.MaxWaiting, Logger: o.Logger,
		Count: o.Count, Reserve: o.Reserve, Settle: o.Settle, MaxBody: o.MaxBody,
	}
	if o.Client != nil {
		common.Client = *o.Client
	}
	return common
}

// middleware makes a MiddlewareFunc of what httplimit returned.
func (o *Options) middleware(limit *httplimit.Middleware, err error) (echo.MiddlewareFunc, error) {
	if err != nil {
		return nil, err
	}
	l := *o
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if l.Skip != nil && l.Skip(c) {
				return next(c)
			}
			e := &exchange{o: &l, c: c}
			a, admitted := limit.Begin(c.Request().Context(), e)
			switch {
			case !admitted:
				return e.err
			case a == nil:
				return next(c)
			}
			return end(c, next, a)
		}
	}, nil
}

// end has next answer a request, which ends when next returns. The HTTPErrorHandler answers
// an error later, with the status that the error has.
func end(c *echo.Context, next echo.HandlerFunc, a *httplimit.Admission) error {
	own := c.Response()
	c.SetResponse(a.Wrap(own, c.Request()))
	e := httplimit.Ended{Status: http.StatusInternalServerError, Aborted: true} // a panic
	defer func() {
		c.SetResponse(own)
		a.End(e)
	}()
	err := next(c)
	_, status := echo.ResolveResponseStatus(own, err)
	e = httplimit.Ended{Status: status}
	return err
}

// clientOf is the address that a request comes from.
func (o *Options) clientOf(c *echo.Context) netip.Addr {
	if o.Client != nil {
		return o.Client.Of(c.Request())
	}
	if a, err := netip.ParseAddr(c.RealIP()); err == nil {
		return a.Unmap()
	}
	peer := httplimit.RemoteAddr()
	return peer.Of(c.Request())
}

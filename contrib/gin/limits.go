package ginlimit

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options say how requests are read and answered. The zero Options are valid. Functions
// must not block.
type Options struct {
	// Client is which address a request comes from. Without it, it is gin's ClientIP where
	// the engine trusts certain proxies, and else that of the connection: until
	// Engine.SetTrustedProxies is called, gin believes X-Forwarded-For of every client.
	// Where Engine.TrustedPlatform is a field that gin has no constant for, name it here:
	// new(httplimit.Header("X-Real-IP")).
	Client *httplimit.ClientAddress

	// Key returns the text whose count a request spends from. Where it is empty or Key is
	// nil, the request spends from the count of the client's address. It is for ByLimiter
	// alone, because rules have keys of their own.
	Key func(*gin.Context) string

	// User, APIKey and Tier say who asks, by means that cannot be forged; empty if it is
	// not known. They are for New alone.
	User, APIKey, Tier func(*gin.Context) string

	// Skip reports whether a request is not limited.
	Skip func(*gin.Context) bool

	// Denied answers a request that is denied, in place of the body of docs/http.md. The
	// request is aborted and the fields are set. The Outcome must not be kept.
	Denied func(*gin.Context, *httplimit.Outcome)

	// OnDecision is told what became of each request that met a limit, before it goes on or
	// is answered. The Outcome must not be kept.
	OnDecision func(*gin.Context, *httplimit.Outcome)

	// These are as in httplimit.Options: functions of a request's end, and of what it may cost.
	Count   func(*http.Request, *rules.Rule, *httplimit.Ended) bool
	Reserve func(*http.Request, *rules.Rule) (units int64, ok bool)
	Settle  func(*http.Request, *rules.Rule, *httplimit.Ended) (units int64, ok bool)
	MaxBody int64

	// These, too, are as in httplimit.Options. httplimit.OutcomeOf takes c.Request.Context().
	KeepOutcome, NoXHeaders, NoIETFHeaders, RefuseAmbiguousPaths bool
	Queue                                                        time.Duration
	MaxWaiting                                                   int
	Logger                                                       *slog.Logger
}

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for what is wrong
// with o.
func New(node *weir.Node, book *rules.Book, o Options) (gin.HandlerFunc, error) {
	return o.handler(httplimit.New(node, book, o.common()))
}

// ByLimiter limits requests by one limit: each costs one unit of Options.Key's count, or holds
// one until it ends where the limit is InFlight. The error is weir.ErrInvalid for what is
// wrong with o.
func ByLimiter(l *weir.Limiter, o Options) (gin.HandlerFunc, error) {
	return o.handler(httplimit.ByLimiter(l, o.common()))
}

// common returns the Options of httplimit. A function there only shows that one is here:
// exchange.Read calls these.
func (o *Options) common() httplimit.Options {
	shown := func(f func(*gin.Context) string) func(*http.Request) string {
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

// handler makes a HandlerFunc of what httplimit returned.
func (o *Options) handler(limit *httplimit.Middleware, err error) (gin.HandlerFunc, error) {
	if err != nil {
		return nil, err
	}
	l := &limits{Options: *o}
	l.Logger = cmp.Or(l.Logger, slog.Default())
	return func(c *gin.Context) {
		if l.Skip != nil && l.Skip(c) {
			return
		}
		if a, _ := limit.Begin(c.Request.Context(), &exchange{l, c}); a != nil {
			end(c, a)
		}
	}, nil
}

// end has the handlers that follow answer a request, which ends with them.
func end(c *gin.Context, a *httplimit.Admission) {
	own := c.Writer
	c.Writer = &writer{own, a.Wrap(own, c.Request)}
	e := httplimit.Ended{Status: http.StatusInternalServerError, Aborted: true} // a panic
	defer func() {
		c.Writer = own
		a.End(e)
	}()
	c.Next()
	e = httplimit.Ended{Status: own.Status()}
}

type limits struct {
	Options
	probe    sync.Once
	gullible bool // gin believes X-Forwarded-For of every client
	warning  sync.Once
}

// clientOf is the address that a request comes from.
func (l *limits) clientOf(c *gin.Context) netip.Addr {
	if l.Client != nil {
		return l.Client.Of(c.Request)
	}
	peer := httplimit.RemoteAddr()
	l.probe.Do(func() { l.gullible = believesEveryone(c) })
	if l.gullible {
		if c.Request.Header.Get("X-Forwarded-For") != "" {
			l.warning.Do(func() {
				l.Logger.Warn("gin trusts X-Forwarded-For of every client, so it is ignored; call Engine.SetTrustedProxies")
			})
		}
		return peer.Of(c.Request)
	}
	if a, err := netip.ParseAddr(c.ClientIP()); err == nil {
		return a.Unmap()
	}
	return peer.Of(c.Request)
}

// believesEveryone reports whether gin takes an address from a client that nobody trusts:
// one of the addresses for documentation.
func believesEveryone(c *gin.Context) bool {
	const named = "198.51.100.1"
	probe := c.Copy()
	ask := func(fields ...string) bool {
		probe.Request = &http.Request{RemoteAddr: "192.0.2.1:1", Header: make(http.Header)}
		for _, f := range fields {
			probe.Request.Header.Set(f, named)
		}
		return probe.ClientIP() == named
	}
	platform := ask(gin.PlatformGoogleAppEngine, gin.PlatformCloudflare, gin.PlatformFlyIO)
	return !platform && ask("X-Forwarded-For", "X-Real-IP")
}

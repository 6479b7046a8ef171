package ginlimit

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options configure how requests are read and answered. The zero Options are valid.
//
// Without Client, the address is gin's ClientIP if the engine trusts only certain proxies. If
// the engine trusts every client, as it does until Engine.SetTrustedProxies is called, the
// address is that of the connection. If Engine.TrustedPlatform is a field for which gin has
// no constant, set Client to new(httplimit.Header("X-Real-IP")).
//
// A denied request is aborted. Denied, if set, writes the response instead of the body of
// docs/http.md; the error of Denied is added to Context.Errors. A handler gets the Outcome by
// httplimit.OutcomeOf(c.Request.Context()).
type Options = httplimit.FrameworkOptions[*gin.Context]

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for invalid options.
func New(node *weir.Node, book *rules.Book, o Options) (gin.HandlerFunc, error) {
	return handler(framework.New(node, book, o))
}

// ByLimiter limits requests by a Limiter. A request spends a unit, or the units of
// Options.Reserve, from the count of Options.Key. With an InFlight limit, the request holds a
// unit until its handlers return. The error is weir.ErrInvalid for invalid options.
func ByLimiter(l *weir.Limiter, o Options) (gin.HandlerFunc, error) {
	return handler(framework.ByLimiter(l, o))
}

func handler(decide *framework.Limits[*gin.Context], err error) (gin.HandlerFunc, error) {
	if err != nil {
		return nil, err
	}
	l := &limits{Limits: decide}
	return func(c *gin.Context) {
		if l.Skip != nil && l.Skip(c) {
			return
		}
		e := &exchange{framework.Exchange[*gin.Context]{Limits: decide, C: c}, l}
		if a, _ := l.Begin(c.Request.Context(), e); a != nil {
			serve(c, a)
		}
	}, nil
}

// serve calls the next handlers. The request ends when they return.
func serve(c *gin.Context, a *httplimit.Admission) {
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
	*framework.Limits[*gin.Context]
	probe      sync.Once
	trustsAll  bool // gin believes X-Forwarded-For of every client
	warnedOnce sync.Once
}

// clientOf returns the client address of a request.
func (l *limits) clientOf(c *gin.Context) netip.Addr {
	if l.Client != nil {
		return l.Client.FromRequest(c.Request)
	}
	peer := httplimit.RemoteAddr()
	l.probe.Do(func() { l.trustsAll = trustsEveryClient(c) })
	if l.trustsAll {
		if c.Request.Header.Get("X-Forwarded-For") != "" {
			l.warnedOnce.Do(func() {
				l.Logger.Warn("ignored X-Forwarded-For, because gin trusts it from every client; call Engine.SetTrustedProxies")
			})
		}
		return peer.FromRequest(c.Request)
	}
	if a, err := netip.ParseAddr(c.ClientIP()); err == nil {
		return a.Unmap()
	}
	return peer.FromRequest(c.Request)
}

// trustsEveryClient reports whether gin accepts the address in X-Forwarded-For or X-Real-IP from
// every client. It returns false if gin reads the field of a platform instead
// (Engine.TrustedPlatform). It tries this with a request from an address that is reserved for
// documentation, and that no engine trusts intentionally.
func trustsEveryClient(c *gin.Context) bool {
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

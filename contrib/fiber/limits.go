package fiberlimit

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options configure how requests are read and answered. The zero Options are valid.
// Functions may return fiber's strings, which are valid until the request ends.
//
// Without Client, the address is fiber's IP: the address of the connection, unless
// Config.TrustProxy and ProxyHeader select another address. From a list fiber takes the
// first entry, which a client may have written. For proxies that append to a list, set
// Client to new(httplimit.RightmostUntrusted(...)).
//
// If Denied is nil, the ErrorHandler receives an *Error. If Denied is Write, the response has
// the body of docs/http.md. A handler gets the Outcome by httplimit.OutcomeOf(c.Context()).
// MaxBody must be zero.
type Options = httplimit.FrameworkOptions[fiber.Ctx]

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for invalid options.
func New(node *weir.Node, book *rules.Book, o Options) (fiber.Handler, error) {
	if err := validate(&o); err != nil {
		return nil, err
	}
	return handler(framework.New(node, book, o))
}

// ByLimiter limits requests by a Limiter. A request spends a unit, or the units of
// Options.Reserve, from the count of Options.Key. With an InFlight limit, the request holds a
// unit until its handlers return. The error is weir.ErrInvalid for invalid options.
func ByLimiter(l *weir.Limiter, o Options) (fiber.Handler, error) {
	if err := validate(&o); err != nil {
		return nil, err
	}
	return handler(framework.ByLimiter(l, o))
}

func validate(o *Options) error {
	if o.MaxBody != 0 {
		return fmt.Errorf("%w Options.MaxBody is %d: fiber reads the body before the middleware runs: leave MaxBody out, and set BodyLimit in fiber.Config", weir.ErrInvalid, o.MaxBody)
	}
	return nil
}

func handler(l *framework.Limits[fiber.Ctx], err error) (fiber.Handler, error) {
	if err != nil {
		return nil, err
	}
	exchanges := sync.Pool{New: func() any { return new(exchange) }}
	var known atomic.Pointer[routing] // the routing of the app that served the last request
	return func(c fiber.Ctx) error {
		if l.Skip != nil && l.Skip(c) {
			return c.Next()
		}
		e := exchanges.Get().(*exchange)
		e.Limits, e.C, e.header.c, e.routing = l, c, c, known.Load()
		if e.routing == nil || e.routing.app != c.App() {
			e.routing = routingOf(c.App())
			known.Store(e.routing)
		}
		a, admitted := l.Begin(c.Context(), e)
		if a != nil {
			defer exchanges.Put(e)
			defer e.reset() // after the Admission has ended
			return serve(c, a)
		}
		err := e.err
		e.reset()
		exchanges.Put(e)
		if !admitted {
			return err
		}
		return c.Next()
	}, nil
}

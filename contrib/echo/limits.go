package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options configure how requests are read and answered. The zero Options are valid.
//
// Without Client, the address is echo's RealIP: the address of the connection, unless
// Echo.IPExtractor returns another address.
//
// If Denied is nil, the HTTPErrorHandler receives an *Error. If Denied is Write, the response
// has the body of docs/http.md. A handler gets the Outcome by
// httplimit.OutcomeOf(c.Request().Context()).
type Options = httplimit.FrameworkOptions[*echo.Context]

// New limits requests by the rules of a Book. The error is weir.ErrInvalid for invalid options.
func New(node *weir.Node, book *rules.Book, o Options) (echo.MiddlewareFunc, error) {
	return middleware(framework.New(node, book, o))
}

// ByLimiter limits requests by a Limiter. A request spends a unit, or the units of
// Options.Reserve, from the count of Options.Key. With an InFlight limit, the request holds a
// unit until its handlers return. The error is weir.ErrInvalid for invalid options.
func ByLimiter(l *weir.Limiter, o Options) (echo.MiddlewareFunc, error) {
	return middleware(framework.ByLimiter(l, o))
}

func middleware(l *framework.Limits[*echo.Context], err error) (echo.MiddlewareFunc, error) {
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if l.Skip != nil && l.Skip(c) {
				return next(c)
			}
			e := &exchange{Exchange: framework.Exchange[*echo.Context]{Limits: l, C: c}}
			a, admitted := l.Begin(c.Request().Context(), e)
			switch {
			case !admitted:
				return e.err
			case a == nil:
				return next(c)
			}
			return serve(c, next, a)
		}
	}, nil
}

// serve calls the function next. The request ends when next returns. The HTTPErrorHandler
// responds to an error later, with the status of the error.
func serve(c *echo.Context, next echo.HandlerFunc, a *httplimit.Admission) error {
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

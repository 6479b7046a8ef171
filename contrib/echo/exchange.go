package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// exchange is a request of echo, as httplimit asks about it.
type exchange struct {
	o   *Options
	c   *echo.Context
	err error // of a denial
}

func (e *exchange) HTTP() *http.Request { return e.c.Request() }

func (e *exchange) Read(r *rules.Request) {
	in := e.c.Request()
	r.Method, r.Host, r.Path, r.Header, r.Length = in.Method, in.Host, in.URL.EscapedPath(), in.Header, in.ContentLength
	r.Client = e.o.clientOf(e.c)
	for _, who := range [...]struct {
		is   *string
		from func(*echo.Context) string
	}{{&r.User, e.o.User}, {&r.User, e.o.Key}, {&r.APIKey, e.o.APIKey}, {&r.Tier, e.o.Tier}} {
		if who.from != nil {
			*who.is = who.from(e.c)
		}
	}
}

func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.o.KeepOutcome {
		r := e.c.Request()
		e.c.SetRequest(r.WithContext(httplimit.WithOutcome(r.Context(), o)))
	}
	if e.o.OnDecision != nil {
		e.o.OnDecision(e.c, o)
	}
}

func (e *exchange) SetFields(names, values []string) {
	h := e.c.Response().Header()
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}

func (e *exchange) Deny(o *httplimit.Outcome) {
	if e.o.Denied != nil && o.Status != httplimit.StatusClientGone {
		e.err = e.o.Denied(e.c, o)
		return
	}
	e.err = &Error{Problem: o.Problem(), err: o.Err}
}

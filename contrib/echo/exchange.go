package echolimit

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/pathform"
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
	r.Method, r.Host, r.Header, r.Length = in.Method, in.Host, in.Header, in.ContentLength
	readPath(r, e.c)
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

func (e *exchange) Field(name string) string {
	return strings.Join(e.c.Response().Header()[name], ", ")
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

// readPath reads the path as echo's router does: RawPath, or else Path. A :parameter at the end
// of a route has slashes, too, where no other route has them. With Echo.Pre, no route is known
// yet, so that all readings count.
func readPath(r *rules.Request, c *echo.Context) {
	u := c.Request().URL
	r.SetURL(u)
	values := c.PathValues()
	last := len(values) - 1
	if c.Path() == "" || u.RawPath == "" && (last < 0 || strings.IndexByte(values[last].Value, '/') < 0) {
		return
	}
	texts := make([]string, len(values))
	for i := range values {
		texts[i] = values[i].Value
	}
	routed := pathform.Routed(c.Path(), texts)
	switch {
	case routed == "":
	case u.RawPath == "":
		r.Readings = []rules.Reading{{Path: r.Path}, {Path: routed, Form: rules.Segmented}}
	default:
		r.Readings = []rules.Reading{{Path: u.RawPath, Form: rules.Segmented}, {Path: routed, Form: rules.Segmented}}
	}
}

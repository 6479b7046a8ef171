package echolimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/rules"
)

// exchange represents a request of echo for httplimit.
type exchange struct {
	framework.Exchange[*echo.Context]
	err error // the error of a denial
}

// HTTP returns the request of net/http.
func (e *exchange) HTTP() *http.Request { return e.C.Request() }

// Read sets the fields of r that limits use.
func (e *exchange) Read(r *rules.Request) {
	in := e.C.Request()
	r.Method, r.Host, r.Header, r.Length = in.Method, in.Host, in.Header, in.ContentLength
	readPath(r, e.C)
	r.Client = e.client()
	e.ReadCaller(r)
}

// client returns the client address of the request.
func (e *exchange) client() netip.Addr {
	if e.Limits.Client != nil {
		return e.Limits.Client.FromRequest(e.C.Request())
	}
	if a, err := netip.ParseAddr(e.C.RealIP()); err == nil {
		return a.Unmap()
	}
	peer := httplimit.RemoteAddr()
	return peer.FromRequest(e.C.Request())
}

// Decided passes the Outcome to handlers and to OnDecision.
func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.Limits.KeepOutcome {
		r := e.C.Request()
		e.C.SetRequest(r.WithContext(httplimit.WithOutcome(r.Context(), o)))
	}
	if e.Limits.OnDecision != nil {
		e.Limits.OnDecision(e.C, o)
	}
}

// Field returns a field of the response.
func (e *exchange) Field(name string) string {
	return strings.Join(e.C.Response().Header()[name], ", ")
}

// SetFields sets fields of the response.
func (e *exchange) SetFields(names, values []string) {
	framework.SetFields(e.C.Response().Header(), names, values)
}

// Deny keeps the error of Options.Denied, or an *Error, for the HTTPErrorHandler.
func (e *exchange) Deny(o *httplimit.Outcome) {
	if e.Limits.Denied != nil && o.Status != httplimit.StatusClientGone {
		e.err = e.Limits.Denied(e.C, o)
		return
	}
	e.err = &Error{Problem: o.Problem(), err: o.Err}
}

// readPath reads the path as echo's router does: RawPath, or Path if RawPath is empty. A
// :parameter at the end of a route may contain slashes if no other route matches the path.
// Under Echo.Pre the route is not known yet, so all readings apply.
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
	routed := httpread.Routed(c.Path(), texts)
	switch {
	case routed == "":
	case u.RawPath == "":
		r.Readings = []rules.Reading{{Path: r.Path}, {Path: routed, Form: rules.Segmented}}
	default:
		r.Readings = []rules.Reading{{Path: u.RawPath, Form: rules.Segmented}, {Path: routed, Form: rules.Segmented}}
	}
}

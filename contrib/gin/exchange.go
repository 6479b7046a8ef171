package ginlimit

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/rules"
)

// exchange represents a request of gin for httplimit.
type exchange struct {
	framework.Exchange[*gin.Context]
	limits *limits
}

// HTTP returns the request of net/http.
func (e *exchange) HTTP() *http.Request { return e.C.Request }

// Read sets the fields of r that limits use.
func (e *exchange) Read(r *rules.Request) {
	in := e.C.Request
	r.Method, r.Host, r.Header, r.Length = in.Method, in.Host, in.Header, in.ContentLength
	readPath(r, e.C)
	r.Client = e.limits.clientOf(e.C)
	e.ReadCaller(r)
}

// Decided passes the Outcome to handlers and to OnDecision.
func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.limits.KeepOutcome {
		e.C.Request = e.C.Request.WithContext(httplimit.WithOutcome(e.C.Request.Context(), o))
	}
	if e.limits.OnDecision != nil {
		e.limits.OnDecision(e.C, o)
	}
}

// Field returns a field of the response.
func (e *exchange) Field(name string) string {
	return strings.Join(e.C.Writer.Header()[name], ", ")
}

// SetFields sets fields of the response.
func (e *exchange) SetFields(names, values []string) {
	framework.SetFields(e.C.Writer.Header(), names, values)
}

// Deny aborts the request and writes the response.
func (e *exchange) Deny(o *httplimit.Outcome) {
	e.C.Abort()
	err := o.Err
	switch {
	case o.Status == httplimit.StatusClientGone:
		e.C.Status(o.Status)
	case e.limits.Denied != nil:
		err = errors.Join(err, e.limits.Denied(e.C, o))
	default:
		contentType, body := o.Body(e.C.Request.Header["Accept"])
		e.C.Data(o.Status, contentType, body)
	}
	if err != nil {
		_ = e.C.Error(err) // for logging middleware
	}
}

// readPath reads the path as gin's router does. The router reads Path, or RawPath if
// Engine.UseRawPath or UseEscapedPath is set. Only the values of the route's parameters show
// whether one of them is set. Without a route, all readings apply.
func readPath(r *rules.Request, c *gin.Context) {
	u := c.Request.URL
	r.SetURL(u)
	if u.RawPath == "" {
		return
	}
	texts := make([]string, len(c.Params))
	for i := range c.Params {
		texts[i] = c.Params[i].Value
	}
	if routed := httpread.Routed(c.FullPath(), texts); routed != "" {
		r.Readings = []rules.Reading{{Path: u.Path, Form: rules.Decoded}, {Path: routed, Form: rules.Segmented}}
	}
}

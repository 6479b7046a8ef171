package ginlimit

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/pathform"
	"github.com/weir-go/weir/rules"
)

// exchange is a request of gin, as httplimit asks about it.
type exchange struct {
	l *limits
	c *gin.Context
}

func (e *exchange) HTTP() *http.Request { return e.c.Request }

func (e *exchange) Read(r *rules.Request) {
	in := e.c.Request
	r.Method, r.Host, r.Header, r.Length = in.Method, in.Host, in.Header, in.ContentLength
	readPath(r, e.c)
	r.Client = e.l.clientOf(e.c)
	for _, who := range [...]struct {
		is   *string
		from func(*gin.Context) string
	}{{&r.User, e.l.User}, {&r.User, e.l.Key}, {&r.APIKey, e.l.APIKey}, {&r.Tier, e.l.Tier}} {
		if who.from != nil {
			*who.is = who.from(e.c)
		}
	}
}

func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.l.KeepOutcome {
		e.c.Request = e.c.Request.WithContext(httplimit.WithOutcome(e.c.Request.Context(), o))
	}
	if e.l.OnDecision != nil {
		e.l.OnDecision(e.c, o)
	}
}

func (e *exchange) Field(name string) string {
	return strings.Join(e.c.Writer.Header()[name], ", ")
}

func (e *exchange) SetFields(names, values []string) {
	h := e.c.Writer.Header()
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}

func (e *exchange) Deny(o *httplimit.Outcome) {
	e.c.Abort()
	if o.Err != nil {
		_ = e.c.Error(o.Err) // for middleware that logs
	}
	switch {
	case o.Status == httplimit.StatusClientGone:
		e.c.Status(o.Status)
	case e.l.Denied != nil:
		e.l.Denied(e.c, o)
	default:
		contentType, body := o.Body(e.c.Request.Header["Accept"])
		e.c.Data(o.Status, contentType, body)
	}
}

// readPath reads the path as gin's router does: Path, unless Engine.UseRawPath or UseEscapedPath
// is set, which only the values of the route's parameters show. Without a route, the request
// meets the rules of all readings.
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
	if routed := pathform.Routed(c.FullPath(), texts); routed != "" {
		r.Readings = []rules.Reading{{Path: u.Path, Form: rules.Decoded}, {Path: routed, Form: rules.Segmented}}
	}
}

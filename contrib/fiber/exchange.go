package fiberlimit

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/utils/v2"

	"github.com/weir-go/weir/contrib/internal/framework"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// exchange represents a request of fiber for httplimit. Its strings share the memory of
// fasthttp, and are valid until the request ends.
type exchange struct {
	framework.Exchange[fiber.Ctx]
	header header
	err    error // the error of a denial

	routing  *routing
	readings [2]rules.Reading
}

// routing contains the settings of a fiber app that control how its router reads a path.
type routing struct {
	app                                *fiber.App
	ignoresCase, trimsSlash, unescapes bool
}

func routingOf(app *fiber.App) *routing {
	c := app.Config()
	return &routing{app: app, ignoresCase: !c.CaseSensitive, trimsSlash: !c.StrictRouting, unescapes: c.UnescapePath}
}

// readPath reads the path as fiber's router does. With UnescapePath fiber also decodes "+" as a
// space.
func (e *exchange) readPath(r *rules.Request) {
	r.Path, r.IgnoreCase = utils.UnsafeString(e.C.Request().URI().PathOriginal()), e.routing.ignoresCase
	of := rules.Reading{Path: r.Path, Form: rules.Segmented}
	if e.routing.unescapes {
		of = rules.Reading{Path: e.C.Path(), Form: rules.Decoded}
	}
	trimmed := of.Path
	if e.routing.trimsSlash && len(trimmed) > 1 {
		trimmed = strings.TrimRight(of.Path, "/")
	}
	if trimmed == r.Path && strings.IndexByte(r.Path, '%') < 0 {
		return // Path has no escapes and no slashes to trim, so fiber compares Path itself
	}
	e.readings = [...]rules.Reading{of, {Path: trimmed, Form: of.Form}}
	r.Readings = e.readings[:]
}

// Read sets the fields of r that limits use.
func (e *exchange) Read(r *rules.Request) {
	in := e.C.Request()
	r.Method, r.Fields, r.Content = e.C.Method(), &e.header, e
	r.Host = utils.UnsafeString(in.URI().Host())
	r.Query = utils.UnsafeString(in.URI().QueryString())
	e.readPath(r)
	r.Length = int64(max(in.Header.ContentLength(), -1)) // fasthttp uses several numbers below 0
	r.Client = e.client()
	e.ReadCaller(r)
}

// client returns the client address of the request.
func (e *exchange) client() netip.Addr {
	client := e.Limits.Client
	if client == nil {
		if a, err := netip.ParseAddr(e.C.IP()); err == nil && !a.IsUnspecified() { // fiber returns an unspecified address for a Unix socket
			return a.Unmap().WithZone("")
		}
		client = new(httplimit.RemoteAddr())
	}
	remote, local := e.C.RequestCtx().RemoteAddr(), e.C.RequestCtx().LocalAddr()
	return client.FromFields(&e.header, remote.String(), local.Network() == "unix")
}

// Head returns the body for rules that estimate a cost from the content. It returns nil if the
// body is encoded, or if the handlers read it as a stream.
func (e *exchange) Head() []byte {
	in := e.C.Request()
	if in.IsBodyStream() || len(in.Header.ContentEncoding()) > 0 {
		return nil
	}
	return in.Body()
}

// Decided passes the Outcome to handlers and to OnDecision.
func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.Limits.KeepOutcome {
		e.C.SetContext(httplimit.WithOutcome(e.C.Context(), o))
	}
	if e.Limits.OnDecision != nil {
		e.Limits.OnDecision(e.C, o)
	}
}

// Field returns a field of the response.
func (e *exchange) Field(name string) string {
	return string(bytes.Join(e.C.Response().Header.PeekAll(name), []byte(", ")))
}

// SetFields sets fields of the response.
func (e *exchange) SetFields(names, values []string) {
	h := &e.C.Response().Header
	for i, name := range names {
		h.Set(name, values[i])
	}
}

// Deny keeps the error of Options.Denied, or an *Error, for the ErrorHandler.
func (e *exchange) Deny(o *httplimit.Outcome) {
	if e.Limits.Denied != nil && o.Status != httplimit.StatusClientGone {
		e.err = e.Limits.Denied(e.C, o)
		return
	}
	e.err = &Error{Problem: o.Problem(), err: o.Err}
}

// reset clears the exchange for another request, and keeps the memory for the lines of fields.
func (e *exchange) reset() {
	clear(e.header.lines[:cap(e.header.lines)])
	*e = exchange{header: header{lines: e.header.lines[:0]}}
}

// header reads the fields of a request for rules.
type header struct {
	c     fiber.Ctx
	lines []string
}

func (h *header) Values(name string) []string {
	h.lines = h.lines[:0]
	for _, line := range h.c.Request().Header.PeekAll(name) {
		if len(line) == 0 && (name == fiber.HeaderContentLength || name == fiber.HeaderCookie || name == fiber.HeaderTrailer) {
			continue // fasthttp has an empty line for these fields if they are missing
		}
		h.lines = append(h.lines, utils.UnsafeString(line))
	}
	return h.lines
}

package fiberlimit

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/utils/v2"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// exchange is a request of fiber, as httplimit asks about it. The texts are fasthttp's own
// bytes, which hold until the request has ended.
type exchange struct {
	o      *Options
	c      fiber.Ctx
	header header
	err    error // of a denial

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

// readPath reads the path as fiber's router does.
func (e *exchange) readPath(r *rules.Request) {
	r.Path, r.IgnoreCase = utils.UnsafeString(e.c.Request().URI().PathOriginal()), e.routing.ignoresCase
	of := rules.Reading{Path: r.Path, Form: rules.Segmented}
	if e.routing.unescapes {
		of = rules.Reading{Path: e.c.Path(), Form: rules.Decoded}
	}
	trimmed := of.Path
	if e.routing.trimsSlash && len(trimmed) > 1 {
		trimmed = strings.TrimRight(of.Path, "/")
	}
	if len(trimmed) == len(of.Path) && strings.IndexByte(r.Path, '%') < 0 {
		return // Path has no other reading
	}
	e.readings = [...]rules.Reading{of, {Path: trimmed, Form: of.Form}}
	r.Readings = e.readings[:]
}

func (e *exchange) Read(r *rules.Request) {
	in := e.c.Request()
	r.Method, r.Fields, r.Content = e.c.Method(), &e.header, e
	r.Host = utils.UnsafeString(in.URI().Host())
	e.readPath(r)
	r.Length = int64(max(in.Header.ContentLength(), -1)) // fasthttp has other numbers below 0
	r.Client = e.o.clientOf(e.c, &e.header)
	for _, who := range [...]struct {
		is   *string
		from func(fiber.Ctx) string
	}{{&r.User, e.o.User}, {&r.User, e.o.Key}, {&r.APIKey, e.o.APIKey}, {&r.Tier, e.o.Tier}} {
		if who.from != nil {
			*who.is = who.from(e.c)
		}
	}
}

// Head is for rules that reserve by the content: none of a body that is encoded, or that the
// handlers read as a stream.
func (e *exchange) Head() []byte {
	in := e.c.Request()
	if in.IsBodyStream() || len(in.Header.ContentEncoding()) > 0 {
		return nil
	}
	return in.Body()
}

// Reserve is called in the place of httplimit's option, where that is set.
func (e *exchange) Reserve(rule *rules.Rule) (units int64, ok bool) {
	return e.o.Reserve(e.c, rule)
}

func (e *exchange) Decided(o *httplimit.Outcome) {
	if e.o.KeepOutcome {
		e.c.SetContext(httplimit.WithOutcome(e.c.Context(), o))
	}
	if e.o.OnDecision != nil {
		e.o.OnDecision(e.c, o)
	}
}

func (e *exchange) Field(name string) string {
	return string(bytes.Join(e.c.Response().Header.PeekAll(name), []byte(", ")))
}

func (e *exchange) SetFields(names, values []string) {
	h := &e.c.Response().Header
	for i, name := range names {
		h.Set(name, values[i])
	}
}

func (e *exchange) Deny(o *httplimit.Outcome) {
	if e.o.Denied != nil && o.Status != httplimit.StatusClientGone {
		e.err = e.o.Denied(e.c, o)
		return
	}
	e.err = &Error{Problem: o.Problem(), err: o.Err}
}

// header has the fields of a request, as rules ask for them.
type header struct {
	c     fiber.Ctx
	lines []string
}

func (h *header) Values(name string) []string {
	h.lines = h.lines[:0]
	for _, line := range h.c.Request().Header.PeekAll(name) {
		if len(line) == 0 && (name == fiber.HeaderContentLength || name == fiber.HeaderCookie || name == fiber.HeaderTrailer) {
			continue // fasthttp has a line of these where there is none
		}
		h.lines = append(h.lines, utils.UnsafeString(line))
	}
	return h.lines
}

// forget drops what belongs to a request, and returns the room.
func (h *header) forget() []string {
	clear(h.lines[:cap(h.lines)])
	return h.lines[:0]
}

package httplimit

import (
	"net/http"
	"strings"
	"time"
)

// SetHeader sets the header fields for an Outcome, and Retry-After if it is a denial that ends
// with time. If h has the fields of an earlier Outcome, such as that of an earlier Middleware, then
// RateLimit and RateLimit-Policy have the limits of both, and X-RateLimit-* describes only the
// stricter limit. The Handler of a Middleware does this itself. SetHeader is for other protocols,
// whose requests are passed to Check.
func SetHeader(h http.Header, o *Outcome) {
	m := Middleware{now: time.Now}
	names, values := m.fields(&scratch{outcome: *o}, header(h))
	setFields(h, names, values)
	o.setOwnFields(func(names, values []string) { setFields(h, names, values) })
}

// header is the header of a response, as answerFields.
type header http.Header

func (h header) Field(name string) string { return strings.Join(h[name], ", ") }

// Validate returns weir.ErrInvalid with the reason if c is invalid. New calls Validate.
func (c ClientAddress) Validate() error { return c.validate() }

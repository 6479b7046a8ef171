package httplimit

import (
	"net/http"
	"strings"
	"time"
)

// SetHeader sets the fields that tell of an Outcome, and Retry-After if it is a
// denial that time mends. The fields of an Outcome before this one may be there: then both
// are told, as of several Middlewares in a row. A Middleware's Handler does so by itself: this
// is for other protocols, whose requests come to Check.
func SetHeader(h http.Header, o *Outcome) {
	m := Middleware{now: time.Now}
	names, values := m.fields(&scratch{outcome: *o}, header(h))
	setFields(h, names, values)
}

// header is the header of an answer, as fields of it so far.
type header http.Header

func (h header) Field(name string) string { return strings.Join(h[name], ", ") }

// Validate says what is wrong with it, nil if nothing is. The error is
// weir.ErrInvalid. New does so by itself.
func (c ClientAddress) Validate() error { return c.validate() }

package httplimit

import (
	"net/http"
	"time"
)

// SetHeader sets the fields that tell of an Outcome, and Retry-After if it is a
// denial that time mends. A Middleware's Handler does so by itself: this is for
// other protocols, whose requests come to Check.
func SetHeader(h http.Header, o *Outcome) {
	m := Middleware{now: time.Now}
	names, values := m.fields(&scratch{outcome: *o})
	setFields(h, names, values)
}

// Validate says what is wrong with it, nil if nothing is. The error is
// weir.ErrInvalid. New does so by itself.
func (c ClientAddress) Validate() error { return c.validate() }

package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/ratelimit"
)

// SetHeader sets the fields that tell of an Outcome, and Retry-After if it is a
// denial that time mends. A Middleware's Handler does so by itself: this is for
// other protocols, whose requests come to Check.
func SetHeader(h http.Header, o *Outcome) {
	m := Middleware{now: time.Now}
	m.tell(h, &scratch{outcome: *o})
	if o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable {
		h.Set(retryAfterField, strconv.FormatInt(max(ratelimit.Seconds(o.RetryAfter()), outageRetryAfter), 10))
	}
}

// Validate says what is wrong with it, nil if nothing is. The error is
// weir.ErrInvalid. New does so by itself.
func (c ClientAddress) Validate() error { return c.validate() }

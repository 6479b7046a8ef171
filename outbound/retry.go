package outbound

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	firstDelay   = 100 * time.Millisecond // maximum delay before the first retry
	longestDelay = 10 * time.Second       // maximum delay before any retry
)

// jitter returns a random delay after an attempt. The maximum is firstDelay after the first attempt. It doubles
// with each further attempt, up to longestDelay. So the retries of simultaneous requests are spread over time.
func jitter(attempt int) time.Duration {
	return rand.N(min(firstDelay<<(attempt-1), longestDelay)) + 1
}

// retries reports whether a request is sent again after an attempt that had a response or an error. delay is the
// minimum time until the retry.
func (t *Turn) retries(r *http.Request, response *http.Response, err error, attempt int, delay time.Duration) bool {
	o, l := &t.gate.o, t.limit
	if o.Attempts <= 1 {
		return false
	}
	if attempt == 1 {
		l.budget.earn(o.RetryPart)
	}
	if attempt >= o.Attempts || r.Context().Err() != nil || !isRepeatable(r) || !isTransient(response, err) {
		return false
	}
	if at, ok := r.Context().Deadline(); ok && time.Until(at) < delay {
		return false // the caller gets the response instead of ErrDelayed
	}
	if !l.budget.spend() {
		l.retriesRefused.Add(1)
		return false
	}
	l.retries.Add(1)
	return true
}

// isTransient reports whether the same request may succeed later.
func isTransient(response *http.Response, err error) bool {
	if err != nil {
		var network interface{ Timeout() bool } // such as a net.OpError, in contrast to a certificate or a URL
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isRepeatable reports whether a request may be sent twice: a second execution must have no further effect, and
// the body must be readable again.
func isRepeatable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// budget bounds the retries of a process under a limit. Each request adds a part of a retry.
type budget struct{ parts atomic.Int64 }

const (
	retry      = 1_000_000_000 // parts of one retry
	mostBudget = 10 * retry
)

// earn adds the part of a retry that a request permits, up to mostBudget in total.
func (b *budget) earn(part float64) {
	if now := b.parts.Add(int64(part * retry)); now > mostBudget {
		b.parts.CompareAndSwap(now, mostBudget)
	}
}

// spend takes a retry from the budget, and reports whether the budget had one.
func (b *budget) spend() bool {
	if b.parts.Add(-retry) >= 0 {
		return true
	}
	b.parts.Add(retry)
	return false
}

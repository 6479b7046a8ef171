package outbound

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxDrained is the maximum number of bytes that discard reads of a response. The connection can be used again
// if the response was read to its end.
const maxDrained = 64 << 10

// transport implements http.RoundTripper.
type transport struct {
	gate *Gate
	base http.RoundTripper
}

// Transport returns an http.RoundTripper that sends each request with base once the request has its turn. A nil
// base stands for http.DefaultTransport. A request without a limit is sent at once. The caller gets each response
// that causes no retry, also with the status 429. The errors are those of Wait, of base and, before a retry, of
// the context and of GetBody. http.Client.CloseIdleConnections closes the idle connections of base.
func (g *Gate) Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{g, cmp.Or(base, http.DefaultTransport)}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r
	for attempt := 1; ; attempt++ {
		turn, err := t.gate.Wait(sent)
		if err != nil {
			if sent.Body != nil {
				_ = sent.Body.Close()
			}
			return nil, err
		}
		response, err := t.base.RoundTrip(sent)
		if turn == nil {
			return response, err
		}
		backoff, pause := jitter(attempt), time.Duration(0)
		if err == nil && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable) {
			pause = turn.PauseBy(r.Context(), response.Header)
		}
		if !turn.retries(r, response, err, attempt, max(backoff, pause)) {
			return response, err
		}
		discard(response)
		if err := sleep(r.Context(), backoff); err != nil {
			return nil, err
		}
		if sent, err = copyOf(r); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections closes the idle connections of the RoundTripper base.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// discard reads at most maxDrained bytes of the body of a response, and closes the body.
func discard(response *http.Response) {
	if response != nil {
		_, _ = io.CopyN(io.Discard, response.Body, maxDrained)
		_ = response.Body.Close()
	}
}

// copyOf returns a copy of a request for another attempt, with a new reader of the same body.
func copyOf(r *http.Request) (*http.Request, error) {
	next := r.WithContext(r.Context())
	if r.GetBody == nil {
		return next, nil
	}
	body, err := r.GetBody()
	if next.Body = body; err != nil {
		return nil, fmt.Errorf("outbound: the body of a request cannot be sent again: %w", err)
	}
	return next, nil
}

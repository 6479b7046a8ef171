package outbound

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// body counts the calls of Close.
type body struct {
	io.Reader
	closed *atomic.Int64
}

func (b body) Close() error {
	b.closed.Add(1)
	return nil
}

func TestOnlyRepeatableRequestsAreRetried(t *testing.T) {
	refusal := errors.New("x509: no")
	for _, c := range []struct {
		what, method, body string
		header             string
		noGetBody          bool
		status             int
		err                error
		sent               int
	}{
		{what: "GET", method: "GET", status: 429, sent: 3},
		{what: "503", method: "GET", status: 503, sent: 3},
		{what: "502", method: "HEAD", status: 502, sent: 3},
		{what: "504", method: "TRACE", status: 504, sent: 3},
		{what: "empty method", status: 429, sent: 3},
		{what: "500", method: "GET", status: 500, sent: 1},
		{what: "404", method: "GET", status: 404, sent: 1},
		{what: "PUT with a body", method: "PUT", body: "text", status: 429, sent: 3},
		{what: "PUT without GetBody", method: "PUT", body: "text", noGetBody: true, status: 429, sent: 1},
		{what: "POST", method: "POST", body: "text", status: 429, sent: 1},
		{what: "POST with a key", method: "POST", body: "text", header: "Idempotency-Key", status: 429, sent: 3},
		{what: "POST with another key", method: "POST", body: "text", header: "X-Idempotency-Key", status: 429, sent: 3},
		{what: "closed connection", method: "OPTIONS", err: io.EOF, sent: 3},
		{what: "PATCH", method: "PATCH", status: 503, sent: 1},
		{what: "broken connection", method: "DELETE", err: io.ErrUnexpectedEOF, sent: 3},
		{what: "refused connection", method: "GET", err: &net.OpError{Op: "dial", Err: errors.New("refused")}, sent: 3},
		{what: "certificate", method: "GET", err: refusal, sent: 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, Options{Attempts: 3})
				var opened, closed, discarded atomic.Int64
				sent := 0
				transport := g.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
					sent++
					if r.Body != nil {
						text, err := io.ReadAll(r.Body)
						require.NoError(t, err)
						require.Equal(t, c.body, string(text))
						require.NoError(t, r.Body.Close())
					}
					if c.err != nil {
						return nil, c.err
					}
					response := newResponse(c.status)
					response.Body = body{strings.NewReader("refused"), &discarded}
					return response, nil
				}))
				r := newRequest(t, "", "https://a")
				if r.Method = c.method; c.body != "" {
					open := func() (io.ReadCloser, error) {
						opened.Add(1)
						return body{strings.NewReader(c.body), &closed}, nil
					}
					r.Body, _ = open()
					if r.GetBody = open; c.noGetBody {
						r.GetBody = nil
					}
				}
				if c.header != "" {
					r.Header.Set(c.header, "1")
				}
				body := r.Body
				response, err := transport.RoundTrip(r)
				require.True(t, body == r.Body, "the request stays as it is")
				require.Equal(t, c.sent, sent)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, opened.Load(), closed.Load(), "all bodies of requests are closed")
				if err == nil {
					require.Equal(t, c.status, response.StatusCode)
					require.EqualValues(t, sent-1, discarded.Load(), "the last body is the caller's")
				}
				s := g.Stats()["paced"]
				require.EqualValues(t, sent-1, s.Retries)
				require.EqualValues(t, sent, s.Requests)
			})
		})
	}
}

func TestRetriesAreBoundedByRetryPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Options{Attempts: 10, RetryPart: 0.1})
		transport := g.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return newResponse(503), nil }))
		const requests = 500
		for range requests {
			response, err := transport.RoundTrip(newRequest(t, "GET", "https://a"))
			require.NoError(t, err)
			require.Equal(t, 503, response.StatusCode, "the caller gets the response")
		}
		s := g.Stats()["paced"]
		require.InDelta(t, requests/10+mostBudget/retry, s.Retries, 2)
		require.EqualValues(t, requests+s.Retries, s.Requests)
		require.Greater(t, s.RetriesRefused, uint64(400))
	})
}

func TestUnusedRetriesAreBounded(t *testing.T) {
	var b budget
	for range 100 {
		b.earn(1)
	}
	for range mostBudget / retry {
		require.True(t, b.spend())
	}
	require.False(t, b.spend())
}

func TestSmallRetryPartAddsUp(t *testing.T) {
	var b budget
	for range 2500 {
		b.earn(0.0004)
	}
	require.True(t, b.spend())
	require.False(t, b.spend())
}

func TestJitterIsUniformUpToMaximum(t *testing.T) {
	for attempt, most := range map[int]time.Duration{1: firstDelay, 2: 2 * firstDelay, 10: longestDelay} {
		var sum, longest time.Duration
		for range 2000 {
			d := jitter(attempt)
			require.Positive(t, d)
			sum, longest = sum+d, max(longest, d)
		}
		require.LessOrEqual(t, longest, most)
		require.InDelta(t, 0.5, float64(sum/2000)/float64(most), 0.05)
	}
}

func TestRetryWaitsForEndOfPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, sent := newGate(t, Options{Attempts: 2}), 0
		transport := g.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				return newResponse(429, "Retry-After", "7"), nil
			}
			return newResponse(200), nil
		}))
		begun := time.Now()
		response, err := transport.RoundTrip(newRequest(t, "GET", "https://a"))
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode)
		require.InDelta(t, 7, time.Since(begun).Seconds(), 0.03)

		sent = 0
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		response, err = transport.RoundTrip(newRequest(t, "GET", "https://a").WithContext(ctx))
		require.NoError(t, err)
		require.Equal(t, 429, response.StatusCode, "the pause ends after the deadline")
	})
}

func TestRequestWithoutBodyIsRepeatable(t *testing.T) {
	r := newRequest(t, "PUT", "https://a")
	require.True(t, isRepeatable(r))
	r.Body = http.NoBody
	require.True(t, isRepeatable(r))
}

func TestOnlyRefusalsCausePauses(t *testing.T) {
	for status, pauses := range map[int]uint64{200: 0, 404: 0, 429: 1, 502: 0, 503: 1} {
		g := newGate(t, Options{})
		transport := g.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			return newResponse(status, "Retry-After", "7"), nil
		}))
		_, err := transport.RoundTrip(newRequest(t, "GET", "https://a"))
		require.NoError(t, err)
		require.Equal(t, pauses, g.Stats()["paced"].Pauses, status)
	}
}

func TestCancelledRequestIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 1} { // before the response, and after it
			g, sent := newGate(t, Options{Attempts: 10}), 0
			ctx, cancel := context.WithCancel(t.Context())
			var begun time.Time
			transport := g.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
				begun = time.Now()
				if sent++; after == 0 {
					cancel()
				} else {
					time.AfterFunc(after, cancel)
				}
				return newResponse(503), nil
			}))
			response, err := transport.RoundTrip(newRequest(t, "GET", "https://a").WithContext(ctx))
			require.Equal(t, 1, sent)
			require.Equal(t, after, time.Since(begun))
			if after == 0 {
				require.NoError(t, err)
				require.Equal(t, 503, response.StatusCode)
				continue
			}
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// endless is a body that counts its bytes.
type endless int

func (e *endless) Read(b []byte) (int, error) {
	*e += endless(len(b))
	return len(b), nil
}

func TestLongBodyOfRefusalIsReadInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			read   endless
			closed atomic.Int64
			sent   int
		)
		transport := newGate(t, Options{Attempts: 2}).Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent > 1 {
				return newResponse(200), nil
			}
			response := newResponse(503)
			response.Body = body{io.LimitReader(&read, 2*maxDrained), &closed}
			return response, nil
		}))
		_, err := transport.RoundTrip(newRequest(t, "GET", "https://a"))
		require.NoError(t, err)
		require.EqualValues(t, maxDrained, read)
		require.EqualValues(t, 1, closed.Load())
	})
}

func TestRedirectWaitsForTurnOfNewHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Options{})
		var hosts []string
		client := &http.Client{Transport: g.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
			hosts = append(hosts, r.URL.Host)
			if r.URL.Host == "a" {
				return newResponse(302, "Location", "https://b/"), nil
			}
			return newResponse(200), nil
		}))}
		turn, err := g.Wait(newRequest(t, "GET", "https://b"))
		require.NoError(t, err)
		turn.Pause(t.Context(), 7*time.Second)
		begun := time.Now()
		_, err = client.Do(newRequest(t, "GET", "https://a"))
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, hosts)
		require.InDelta(t, 7, time.Since(begun).Seconds(), 0.03)
	})
}

func TestUnsentRequestClosesItsBody(t *testing.T) {
	g := newGate(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRequest(t, "POST", "https://a").WithContext(ctx)
	var closed atomic.Int64
	r.Body = body{strings.NewReader("text"), &closed}
	_, err := g.Transport(nil).RoundTrip(r)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, closed.Load())
}

// idle is a base that counts the calls of CloseIdleConnections.
type idle struct {
	roundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestTransportClosesIdleConnectionsOfBase(t *testing.T) {
	base := &idle{}
	(&http.Client{Transport: newGate(t, Options{}).Transport(base)}).CloseIdleConnections()
	require.Equal(t, 1, base.closed)
	(&http.Client{Transport: newGate(t, Options{}).Transport(roundTripper(nil))}).CloseIdleConnections()
}

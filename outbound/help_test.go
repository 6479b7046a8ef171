package outbound

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// roundTripper implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var quiet = slog.New(slog.DiscardHandler)

// newResponse returns a response with the given header fields: pairs of a name and a value.
func newResponse(status int, pairs ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(""))}
}

// newGate returns a Gate on a node without other nodes. If o has no Limits, the limit paced applies to all hosts.
func newGate(t testing.TB, o Options) *Gate {
	t.Helper()
	if o.Limits == nil {
		o.Limits = []Limit{{Host: "*", Limit: paced}}
	}
	if o.Logger == nil {
		o.Logger = quiet
	}
	g, err := New(testnode.Start(t, weir.Config{}), o)
	require.NoError(t, err)
	return g
}

// paced is a limit just below that of bucketServer.
var paced = weir.Limit{Name: "paced", Algorithm: weir.LeakyBucket, Rate: 99, Per: time.Second, Burst: 1000}

func newRequest(t testing.TB, method, address string, pairs ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	require.NoError(t, err)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	return r
}

const (
	serverRate  = 100 // requests that bucketServer admits in a second
	serverBurst = 10
)

// bucketServer is another service, which limits requests by a token bucket. The bucket of the zero value is full.
type bucketServer struct {
	mu       sync.Mutex
	empty    time.Time // the time at which the bucket was empty, if it has been filling since then
	admitted int
	refused  int
	until    time.Time // the server refuses all requests until then, with Retry-After
}

// admit returns the status 200, or the status 429 and the Retry-After, which is empty if the bucket is.
func (s *bucketServer) admit(now time.Time) (status int, retryAfter string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rest := s.until.Sub(now); rest > 0 {
		s.refused++
		return http.StatusTooManyRequests, strconv.Itoa(int((rest + time.Second - 1) / time.Second))
	}
	const token = time.Second / serverRate
	if full := now.Add(-serverBurst * token); s.empty.Before(full) {
		s.empty = full
	}
	if now.Sub(s.empty) < token {
		s.refused++
		return http.StatusTooManyRequests, ""
	}
	s.empty = s.empty.Add(token)
	s.admitted++
	return http.StatusOK, ""
}

// refuse refuses all requests for d, with Retry-After.
func (s *bucketServer) refuse(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

// counts returns the numbers of admitted and refused requests.
func (s *bucketServer) counts() (admitted, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitted, s.refused
}

// RoundTrip implements http.RoundTripper: a request takes between 1 and 4 ms in each direction.
func (s *bucketServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond + rand.N(3*time.Millisecond))
	status, retryAfter := s.admit(time.Now())
	time.Sleep(time.Millisecond + rand.N(3*time.Millisecond))
	if retryAfter != "" {
		return newResponse(status, "Retry-After", retryAfter), nil
	}
	return newResponse(status), nil
}

// replica is a Transport of a node, with clients that send requests without pause.
type replica struct {
	gate   *Gate
	failed atomic.Int64
}

// startReplica starts clients that end with ctx. base is the server.
func startReplica(ctx context.Context, t testing.TB, node *weir.Node, clients int, running *sync.WaitGroup, base http.RoundTripper) *replica {
	t.Helper()
	g, err := New(node, Options{Limits: []Limit{{Host: "*", Limit: paced}}, Logger: quiet})
	require.NoError(t, err)
	p := &replica{gate: g}
	for range clients {
		running.Go(func() {
			c := &http.Client{Transport: g.Transport(base)}
			for ctx.Err() == nil {
				r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "api.example.com"}, Header: http.Header{"Authorization": {"secret"}}}).WithContext(ctx)
				response, err := c.Do(r)
				if err == nil {
					_ = response.Body.Close()
				} else if ctx.Err() == nil {
					p.failed.Add(1)
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return p
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

// request is the body of a request. Used is the number of tokens in the response of the
// fake model.
type request struct {
	MaxTokens     int64 `json:"max_tokens,omitempty"`
	Used          int64 `json:"used"`
	Stream        bool  `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// estimate returns the number of units that the rules reserve.
func (q request) estimate() int64 {
	if q.MaxTokens == 0 {
		return 1000
	}
	return q.MaxTokens
}

// fakeModel streams responses, and reports usage in the last event if requested.
type fakeModel struct {
	pause func(context.Context) // between the first and the last event

	mu                       sync.Mutex
	open, most               int   // concurrent streams
	served, reported, excess int64 // excess is the sum of the units that were used in addition to the estimates
}

func (m *fakeModel) opened(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += by
	m.most = max(m.most, m.open)
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Header.Get("Authorization") != "Bearer of the model" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	m.opened(1)
	defer m.opened(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"Hello"}}],"usage":null}`+"\n\n")
	w.(http.Flusher).Flush()
	m.pause(r.Context())
	if r.Context().Err() != nil {
		return
	}
	m.mu.Lock()
	m.served++
	m.reported += q.Used
	m.excess += max(0, q.Used-q.estimate())
	m.mu.Unlock()
	if q.StreamOptions.IncludeUsage {
		fmt.Fprintf(w, `data: {"choices":[],"usage":{"total_tokens":%d}}`+"\n\n", q.Used)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// serve returns a transport to a handler, until the end of the test.
func serve(t *testing.T, h http.Handler) http.RoundTripper {
	p := lab.ListenPipe() // so that connections are in virtual time, too
	server := &http.Server{Handler: h}
	go server.Serve(p)
	way := &http.Transport{DialContext: p.DialContext}
	t.Cleanup(func() { server.Close(); way.CloseIdleConnections() })
	return way
}

// fleet is a set of three replicas of the gateway in front of a fake model.
type fleet struct {
	replicas [3]http.RoundTripper
	book     *rules.Book
}

// start starts a fleet with a changed rules.yaml. The argument numbers has pairs of a text in
// the file and its replacement.
func start(t *testing.T, m *fakeModel, numbers ...string) *fleet {
	text, err := os.ReadFile("rules.yaml")
	require.NoError(t, err)
	for i := 0; i < len(numbers); i += 2 {
		require.Contains(t, string(text), numbers[i])
	}
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	to := model{&url.URL{Scheme: "http", Host: "model"}, "of the model", serve(t, m)}
	f := new(fleet)
	for i, name := range c.Names() {
		node := c.Node(name)
		f.book = testnode.Book(t, node, strings.NewReplacer(numbers...).Replace(string(text)))
		h, err := gateway(node, f.book, []string{"ada"}, to)
		require.NoError(t, err)
		f.replicas[i] = serve(t, h)
	}
	return f
}

// post sends a body to a replica. The caller reads the response.
func (f *fleet) post(ctx context.Context, t *testing.T, replica int, key, body string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := f.replicas[replica%3].RoundTrip(r)
	require.NoError(t, err)
	return response
}

// stream requests a stream from a replica.
func (f *fleet) stream(ctx context.Context, t *testing.T, replica int, q request) *http.Response {
	q.Stream = true
	body, err := json.Marshal(q)
	require.NoError(t, err)
	return f.post(ctx, t, replica, "ada", string(body))
}

// read reads a response to its end.
func read(t *testing.T, response *http.Response) string {
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

// remaining returns the remaining units of a limit for the key ada.
func (f *fleet) remaining(t *testing.T, limit string) int64 {
	s := f.book.Current()
	l, _, ok := s.Limit(limit)
	require.True(t, ok)
	d, err := s.Limiter(l, "", "ada").Peek(t.Context(), "ada")
	require.NoError(t, err)
	return d.Remaining
}

func TestSpentTokensEqualReportedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeModel{pause: func(context.Context) { time.Sleep(time.Duration(1+rand.IntN(50)) * time.Millisecond) }}
		f := start(t, m, "per: 1m", "per: 24h")
		const clients, each = 64, 3
		var all sync.WaitGroup
		begun := time.Now()
		for i := range clients {
			all.Go(func() {
				for j := 0; j < each && time.Since(begun) < time.Minute; {
					// The number of tokens is at most 400. The estimate is 200 or 400, or
					// is missing.
					q := request{Used: rand.Int64N(401), MaxTokens: int64((i + j) % 3 * 200)}
					response := f.stream(t.Context(), t, i+j, q)
					text := read(t, response)
					if response.StatusCode == http.StatusTooManyRequests {
						time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
						continue
					}
					assert.Equal(t, http.StatusOK, response.StatusCode)
					assert.Contains(t, text, "[DONE]")
					j++
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, int64(clients*each), m.served)
		require.Equal(t, 20, m.most, "streams at once")
		require.Positive(t, m.excess)
		require.Equal(t, 100_000-m.reported, f.remaining(t, "model/tokens"))
		require.Equal(t, int64(20), f.remaining(t, "model/streams"))
	})
}

func TestDisconnectedClientReleasesStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeModel{pause: func(ctx context.Context) { <-ctx.Done() }}
		f := start(t, m, "per: 1m", "per: 24h", "rate: 20", "rate: 2")
		ctx, disconnect := context.WithCancel(t.Context())
		first, second := f.stream(ctx, t, 0, request{MaxTokens: 50}), f.stream(t.Context(), t, 1, request{MaxTokens: 50})
		third := f.stream(t.Context(), t, 2, request{MaxTokens: 50})
		require.Equal(t, []int{200, 200, 429}, []int{first.StatusCode, second.StatusCode, third.StatusCode})
		require.Equal(t, "1", third.Header.Get("Retry-After"))
		read(t, third)

		disconnect()
		time.Sleep(time.Second)
		require.Equal(t, int64(1), f.remaining(t, "model/streams"))
		require.Equal(t, int64(100_000-100), f.remaining(t, "model/tokens"), "the estimate stays spent")
		fourth := f.stream(t.Context(), t, 2, request{MaxTokens: 50})
		require.Equal(t, http.StatusOK, fourth.StatusCode)
		for _, open := range []*http.Response{first, second, fourth} {
			open.Body.Close()
		}
	})
}

func TestRefusedRequestsSpendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, new(fakeModel), "per: 1m", "per: 24h")
		for _, c := range []struct {
			about, key, body string
			want             int
		}{
			{"an unknown key", "bob", `{}`, http.StatusUnauthorized},
			{"no JSON", "ada", `max_tokens=5`, http.StatusBadRequest},
			{"null", "ada", `null`, http.StatusBadRequest},
			{"an error of the model", "ada", `{"used":"many"}`, http.StatusBadRequest},
			{"a large body", "ada", `{"text":"` + strings.Repeat("a", maxBody) + `"}`, http.StatusBadRequest},
		} {
			response := f.post(t.Context(), t, 0, c.key, c.body)
			require.Equal(t, c.want, response.StatusCode, c.about)
			read(t, response)
		}
		time.Sleep(time.Second)
		require.Equal(t, int64(100_000), f.remaining(t, "model/tokens"))
		require.Equal(t, int64(20), f.remaining(t, "model/streams"))
	})
}

package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// tokens returns rules with a limit of 1,000 units.
func tokens(fields string) string {
	return "rules:\n- name: r\n  key: ip\n  limit: {algorithm: fixed_window, rate: 1000, per: 1h}\n  " + strings.ReplaceAll(fields, "\n", "\n  ") + "\n"
}

// post returns a request with a body.
func post(body string, fields ...string) *http.Request {
	r := get("/", "192.0.2.1", fields...)
	r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader(body)), int64(len(body))
	return r
}

func TestEstimateComesFromRequest(t *testing.T) {
	const models = "reserve: {from: [json:max_completion_tokens, json:max_tokens, header:X-Max], default: 7}\nsettle: {json: n}"
	for _, c := range []struct {
		about, fields string
		r             *http.Request
		want          int64
	}{
		{"a field", models, post(`{"max_tokens":40}`), 40},
		{"the first that is there", models, post(`{"max_tokens":40,"max_completion_tokens":50}`), 50},
		{"a field of another type", models, post(`{"max_tokens":"40"}`), 7},
		{"no JSON", models, post(`max_tokens=40`), 7},
		{"no body", models, get("/", "192.0.2.1"), 7},
		{"a header", models, post(`{}`, "X-Max", "30"), 30},
		{"an encoded body", models, post(`{"max_tokens":40}`, "Content-Encoding", "gzip"), 7},
		{"a field beyond the bound", models, post(`{"text":"` + strings.Repeat("a", 2000) + `","max_tokens":40}`), 7},
		{"zero", models, post(`{"max_tokens":0}`), 1},
		{"a length", "reserve: {from: content_length, unit: 10}\nsettle: {json: n}", post(strings.Repeat("a", 95)), 10},
		{"a number", "reserve: 12\nsettle: {json: n}", post(""), 12},
		{"the cost", "cost: 5\nsettle: {json: n}", post(""), 5},
		{"nothing", "settle: {json: n}", post(""), 1},
	} {
		t.Run(c.about, func(t *testing.T) {
			m := newLimiter(t, tokens(c.fields), Options{MaxBody: 1000}, weir.Config{})
			sent, err := io.ReadAll(c.r.Body)
			require.NoError(t, err)
			c.r.Body = io.NopCloser(bytes.NewReader(sent))
			var seen []byte
			w := answer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				require.Equal(t, 1000-c.want, remaining(t, m, "r", "192.0.2.1"))
				var err error
				seen, err = io.ReadAll(r.Body)
				require.NoError(t, err)
				w.Write([]byte(`{"n":3}`))
			})), c.r)
			require.Equal(t, 200, w.Code)
			require.Equal(t, string(sent), string(seen))
			require.Equal(t, int64(997), remaining(t, m, "r", "192.0.2.1"))
			require.Zero(t, m.Unsettled())
		})
	}
}

func TestEstimateAboveLimitIsRefused(t *testing.T) {
	m := newLimiter(t, tokens("reserve: json:max_tokens\nsettle: {json: n}"), Options{}, weir.Config{})
	require.Equal(t, http.StatusRequestEntityTooLarge, answer(m.Handler(hello), post(`{"max_tokens":1001}`)).Code)
	require.Equal(t, int64(1000), remaining(t, m, "r", "192.0.2.1"))
}

// broken is a body that ends too early.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
func (b broken) Close() error             { return nil }

func TestTruncatedBodyIsDisconnection(t *testing.T) {
	m := newLimiter(t, tokens("reserve: json:max_tokens\nsettle: {json: n}"), Options{}, weir.Config{})
	r := post(`{"max_tokens":40}`)
	r.Body = broken{io.ErrUnexpectedEOF}
	require.Equal(t, StatusClientGone, answer(m.Handler(hello), r).Code)
	require.Equal(t, int64(1000), remaining(t, m, "r", "192.0.2.1"))
	r.Body = broken{&http.MaxBytesError{Limit: 1}} // the handler may answer in any way
	w := answer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		var tooLarge *http.MaxBytesError
		require.True(t, errors.As(err, &tooLarge))
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})), r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

// reply returns a handler that sends a body in parts.
func reply(status int, fields []string, parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		if status != 200 {
			w.WriteHeader(status)
		}
		for i, part := range parts {
			switch i % 3 {
			case 0:
				io.WriteString(w, part)
			case 1:
				w.Write([]byte(part))
			default:
				w.(io.ReaderFrom).ReadFrom(strings.NewReader(part))
			}
			http.NewResponseController(w).Flush()
		}
	}
}

func TestResponseSettlesEstimate(t *testing.T) {
	stream := []string{"Content-Type", "text/event-stream; charset=utf-8"}
	const both = "reserve: 100\nsettle: {json: usage.total_tokens, sse: usage.total_tokens}"
	const anthropic = "reserve: 100\nsettle: {sse: [message.usage.input_tokens, usage.output_tokens]}"
	started := `data: {"message":{"usage":{"input_tokens":25,"output_tokens":1}}}` + "\n\n"
	for _, c := range []struct {
		about, fields string
		h             http.HandlerFunc
		want          int64 // units spent
		unsettled     uint64
	}{
		{"JSON", both, reply(200, nil, `{"usage":{"total_`, `tokens":4`, `2}}`), 42, 0},
		{"more than reserved", both, reply(200, nil, `{"usage":{"total_tokens":420}}`), 420, 0},
		{"as much", both, reply(200, nil, `{"usage":{"total_tokens":100}}`), 100, 0},
		{"nothing", both, reply(200, nil, `{"usage":{"total_tokens":0}}`), 0, 0},
		{"lines of JSON", "reserve: 100\nsettle: {json: [prompt_eval_count, eval_count]}", reply(200, nil, "{\"n\":1}\n", "{\"prompt_eval_count\":8,\"eval_count\":9}\n"), 17, 0},
		{"events of OpenAI", both, reply(200, stream, "data: {\"usage\":null}\n\n", "data: {\"choices\":[],\"usage\":{\"total_", "tokens\":21}}\n\ndata: [DONE]\n\n"), 21, 0},
		{"events of Anthropic", anthropic, reply(200, stream, started, "data: {\"usage\":{\"output_tokens\":9}}\n\n", "data: {\"usage\":{\"output_tokens\":15}}\n\n"), 40, 0},
		{"events that do not report it", both, reply(200, stream, "data: {\"usage\":null}\n\n", "data: [DONE]\n\n"), 100, 1},
		{"JSON that does not report it", both, reply(200, nil, `{"usage":{"tokens":1}}`), 100, 1},
		{"a body that is compressed", both, reply(200, []string{"Content-Encoding", "gzip"}, `{"usage":{"total_tokens":1}}`), 100, 1},
		{"a body that is not encoded", both, reply(200, []string{"Content-Encoding", "identity"}, `{"usage":{"total_tokens":1}}`), 1, 0},
		{"JSON where events are expected", anthropic, reply(200, nil, `{"usage":{"output_tokens":1}}`), 100, 1},
		{"a header", "reserve: 100\nsettle: {header: X-Tokens}", reply(200, []string{"X-Tokens", "33"}, "text"), 33, 0},
		{"a header in kilobytes", "reserve: 100\nsettle: {header: X-Bytes, unit: 1024}", reply(200, []string{"X-Bytes", "1025"}), 2, 0},
		{"a header that is no number", "reserve: 100\nsettle: {header: X-Tokens}", reply(200, []string{"X-Tokens", "many"}, "text"), 100, 1},
		{"no content", both, reply(204, nil), 100, 1},
		{"an error", both, reply(500, nil, `{"usage":{"total_tokens":1}}`), 0, 0},
		{"an error that is kept", both[:len(both)-1] + ", on_error: keep}", reply(500, nil, `{"error":"x"}`), 100, 0},
		{"an error that is settled", both[:len(both)-1] + ", on_error: keep}", reply(500, nil, `{"usage":{"total_tokens":5}}`), 5, 0},
		{"an error that counts", both + "\ncount: {status: 2xx}", reply(200, nil, `{"usage":{"total_tokens":5}}`), 5, 0},
		{"an error that does not count", both[:len(both)-1] + ", on_error: keep}\nrefund_on: {status: 500}", reply(500, nil, `{"usage":{"total_tokens":5}}`), 0, 0},
		{"a panic before the response", both, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 0},
		{"a stream that breaks off with all it named", anthropic, aborting(reply(200, stream, started, "data: {\"usage\":{\"output_tokens\":9}}\n\n")), 34, 0},
		{"a stream that breaks off", anthropic, aborting(reply(200, stream, started)), 100, 0},
		{"a stream that breaks off above the estimate", strings.Replace(anthropic, "100", "20", 1), aborting(reply(200, stream, started)), 25, 0},
		{"two limits", strings.Replace(tokens(both)[strings.Index(tokens(both), "reserve"):], "  settle", "settle", 1), reply(200, nil, "{}"), 100, 1},
	} {
		t.Run(c.about, func(t *testing.T) {
			m := newLimiter(t, tokens(c.fields), Options{}, weir.Config{})
			log := new(bytes.Buffer)
			m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			func() {
				defer func() { _ = recover() }()
				answer(m.Handler(c.h), get("/", "192.0.2.1"))
			}()
			require.Equal(t, 1000-c.want, remaining(t, m, "r", "192.0.2.1"))
			require.Equal(t, c.unsettled, m.Unsettled())
			require.Equal(t, int(c.unsettled), strings.Count(log.String(), "units that a request did not use stay spent"), log)
		})
	}
}

// aborting returns a handler that answers and panics.
func aborting(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		panic(http.ErrAbortHandler)
	}
}

func TestDisconnectedClientIsSettledBySentResponse(t *testing.T) {
	for _, c := range []struct {
		about, path string
		want        int64
	}{
		{"before the response", "/gone", 100},
		{"and its proxy answers", "/gone and 502", 100},
	} {
		t.Run(c.about, func(t *testing.T) {
			m := newLimiter(t, tokens("reserve: 100\nsettle: {sse: n}"), Options{}, weir.Config{})
			statusOf(t, m.Handler(byPath), c.path)
			require.Equal(t, 1000-c.want, remaining(t, m, "r", "192.0.2.1"))
			require.Zero(t, m.Unsettled())
		})
	}
	m := newLimiter(t, tokens("reserve: 100\nsettle: {sse: n}"), Options{}, weir.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	answer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply(200, []string{"Content-Type", "text/event-stream"}, "data: {\"n\":12}\n\n")(w, nil)
		cancel()
	})), get("/", "192.0.2.1").WithContext(ctx))
	require.Equal(t, int64(988), remaining(t, m, "r", "192.0.2.1"))
}

// With HTTP/1 and HTTP/2, a handler whose request is settled can stream, and a trailer has the cost.
func TestTrailerSettlesStream(t *testing.T) {
	for _, field := range []string{"X-Tokens", http.TrailerPrefix + "X-Tokens"} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint(field, http2), func(t *testing.T) {
				m := newLimiter(t, tokens("reserve: 100\nsettle: {trailer: X-Tokens, sse: n}"), Options{}, weir.Config{})
				next := make(chan struct{})
				ended := make(chan struct{})
				limited := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if field == "X-Tokens" {
						w.Header().Set("Trailer", field)
					}
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, "data: first\n\n")
					w.(http.Flusher).Flush()
					<-next
					io.Copy(w, strings.NewReader("data: second\n\n"))
					w.Header().Set(field, "64")
				}))
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					limited.ServeHTTP(w, r)
					close(ended)
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				response, err := server.Client().Get(server.URL)
				require.NoError(t, err)
				first := make([]byte, len("data: first\n\n"))
				_, err = io.ReadFull(response.Body, first)
				require.NoError(t, err)
				close(next)
				rest, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, "data: second\n\n", string(rest))
				require.Equal(t, "64", response.Trailer.Get("X-Tokens"))
				<-ended
				require.Equal(t, int64(936), remaining(t, m, "r", "127.0.0.1"))
			})
		}
	}
}

func TestFunctionsReserveAndSettle(t *testing.T) {
	o := Options{
		Reserve: func(r *http.Request, rule *rules.Rule) (int64, bool) {
			require.Equal(t, "r", rule.Name)
			return 50, r.URL.Path == "/known"
		},
		Settle: func(r *http.Request, _ *rules.Rule, e *Ended) (int64, bool) {
			return int64(len(e.Header.Get("X-Text"))), e.Status == 200 && r.URL.Path == "/known"
		},
	}
	perHour := weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour}
	for about, m := range map[string]*Middleware{
		"by a rule":    newLimiter(t, tokens("reserve: 100\nsettle: {json: n}"), o, weir.Config{}),
		"by a Limiter": byLimiter(t, perHour, o, weir.Config{}),
	} {
		t.Run(about, func(t *testing.T) {
			h := m.Handler(reply(200, []string{"X-Text", "seven b"}, `{"n":30}`))
			w := answer(h, get("/known", "192.0.2.1"))
			require.Equal(t, "950", w.Header().Get("X-RateLimit-Remaining"))
			spent := map[string]int64{"by a rule": 7 + 30, "by a Limiter": 7 + 1}[about]
			log := new(bytes.Buffer)
			m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			answer(h, get("/unknown", "192.0.2.1"))
			require.Equal(t, about == "by a Limiter", strings.Contains(log.String(), errNoCost.Error()), log)
			w = answer(h, get("/known", "192.0.2.1"))
			require.Equal(t, fmt.Sprint(1000-spent-50), w.Header().Get("X-RateLimit-Remaining"))
		})
	}
}

func TestSettlingOptionsAreValidated(t *testing.T) {
	n := testnode.Start(t, weir.Config{})
	reserve := func(*http.Request, *rules.Rule) (int64, bool) { return 1, true }
	settle := func(*http.Request, *rules.Rule, *Ended) (int64, bool) { return 1, true }
	for _, c := range []struct {
		limit weir.Limit
		o     Options
		want  string
	}{
		{perMinute, Options{Reserve: reserve}, "Options.Reserve without Settle"},
		{perMinute, Options{MaxBody: -1}, "Options.MaxBody: -1"},
		{weir.Limit{Name: "q", Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Second}, Options{Queue: time.Second, Settle: settle}, "Options.Queue with Count"},
		{weir.Limit{Name: "f", Algorithm: weir.InFlight, Rate: 1}, Options{Settle: settle}, "in_flight"},
	} {
		l, err := n.Limiter(c.limit)
		require.NoError(t, err)
		_, err = ByLimiter(l, c.o)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, c.want)
	}
}

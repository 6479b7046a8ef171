package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

const twoAtOnce = "rules:\n- {name: r, key: ip, limit: {algorithm: in_flight, rate: 2}}\n"

// inside is a handler whose requests to /stay stay until the test releases them.
type inside struct {
	came, leave chan struct{}
}

func newInside() *inside { return &inside{make(chan struct{}), make(chan struct{})} }

func (h *inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stay" {
		h.came <- struct{}{}
		<-h.leave
	}
}

// stay sends n requests that stay in the handler.
func (h *inside) stay(limited http.Handler, n int) {
	for range n {
		go answer(limited, get("/stay", "192.0.2.1"))
		<-h.came
	}
}

// waitUntilFree waits until a request is admitted.
func waitUntilFree(t *testing.T, h http.Handler) {
	t.Helper()
	require.Eventually(t, func() bool { return answer(h, get("/", "192.0.2.1")).Code == 200 }, 10*time.Second, time.Millisecond)
}

func TestRequestsAboveInFlightRateAreDenied(t *testing.T) {
	next := newInside()
	h := newLimiter(t, twoAtOnce, Options{}, weir.Config{}).Handler(next)
	next.stay(h, 2)
	w := answer(h, get("/", "192.0.2.1"))
	require.Equal(t, 429, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, []string{"2", "0"}, []string{w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining")})
	require.Equal(t, `"r";q=2;qu="concurrent-requests"`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"r";r=0;t=1`, w.Header().Get("RateLimit"))
	other := answer(h, get("/", "192.0.2.2"))
	require.Equal(t, 200, other.Code)
	require.Equal(t, `"r";r=1`, other.Header().Get("RateLimit"))
	next.leave <- struct{}{}
	waitUntilFree(t, h)
	close(next.leave)
}

func TestHoldLastsUntilHandlerReturns(t *testing.T) {
	m := newLimiter(t, strings.Replace(twoAtOnce, "rate: 2", "rate: 1", 1), Options{}, weir.Config{})
	here, gone, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stay" {
			close(here)
			<-r.Context().Done()
			close(gone)
			<-leave
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go answer(h, get("/stay", "192.0.2.1").WithContext(ctx))
	<-here
	require.Equal(t, 429, answer(h, get("/", "192.0.2.1")).Code)
	cancel()
	<-gone
	require.Equal(t, 429, answer(h, get("/", "192.0.2.1")).Code)
	close(leave)
	waitUntilFree(t, h)
}

// hijack sends a request to h, which hijacks the connection, and returns the client's end of the connection.
func hijack(t *testing.T, h http.Handler) (client net.Conn) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	_, err = fmt.Fprint(client, "GET /take HTTP/1.1\r\nHost: a\r\nX-Who: 192.0.2.1\r\n\r\n")
	require.NoError(t, err)
	return client
}

const oneConnection = "rules:\n- {name: r, key: 'header:X-Who', limit: {algorithm: in_flight, rate: 1}}\n"

func TestHoldLastsUntilHijackedConnectionCloses(t *testing.T) {
	for _, c := range []struct {
		about string
		close func(net.Conn) // nil if the handler does not close the connection
	}{{"closed", func(c net.Conn) { c.Close() }}, {"closed twice", func(c net.Conn) { c.Close(); c.Close() }}, {"forgotten", nil}} {
		t.Run(c.about, func(t *testing.T) {
			m := newLimiter(t, oneConnection, Options{}, weir.Config{})
			conns := make(chan net.Conn, 1)
			h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/take" {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				require.NoError(t, err)
				_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				require.NoError(t, err)
				conns <- conn
			}))
			client := hijack(t, h)
			line, err := bufio.NewReader(client).ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, "101")
			again := get("/", "192.0.2.1", "X-Who", "192.0.2.1")
			conn := <-conns
			require.Implements(t, (*io.ReaderFrom)(nil), conn)
			require.Implements(t, (*closeWriter)(nil), conn)
			require.IsType(t, &net.TCPConn{}, conn.(interface{ NetConn() net.Conn }).NetConn())
			require.Equal(t, 429, answer(h, again).Code)
			if c.close != nil {
				c.close(conn)
				require.Equal(t, 200, answer(h, again).Code)
				return
			}
			conn = nil
			require.Eventually(t, func() bool { runtime.GC(); return answer(h, again).Code == 200 }, 30*time.Second, 10*time.Millisecond)
		})
	}
}

// If a limit denies, the request holds nothing and spends nothing at other limits.
func TestHoldsAndUnitsAreAllOrNothing(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: minute, match: {header: {X-Counted: "*"}}, key: ip, limit: {algorithm: fixed_window, rate: 1, per: 1h}}
- {name: held, key: ip, limit: {algorithm: in_flight, rate: 1}}
`, Options{}, weir.Config{})
	next := newInside()
	h := m.Handler(next)
	counted := []string{"X-Counted", "yes"}
	next.stay(h, 1)
	for range 3 {
		require.Equal(t, 429, answer(h, get("/", "192.0.2.1", counted...)).Code, "held denies")
	}
	close(next.leave)
	waitUntilFree(t, h)
	require.Equal(t, 200, answer(h, get("/", "192.0.2.1", counted...)).Code, "nothing was spent")
	for range 3 {
		require.Equal(t, 429, answer(h, get("/", "192.0.2.1", counted...)).Code, "minute denies")
	}
	require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code, "nothing is held")
}

func TestShadowHoldDeniesNothing(t *testing.T) {
	var told []bool
	m := newLimiter(t, "rules:\n- {name: r, key: ip, cost: header:X-Cost, shadow: true, limit: {algorithm: in_flight, rate: 1}}\n",
		Options{OnDecision: func(_ *http.Request, o *Outcome) {
			d := o.Verdicts[0].Decision
			require.True(t, d.Shadow)
			told = append(told, d.Allowed)
		}}, weir.Config{})
	next := newInside()
	h := m.Handler(next)
	next.stay(h, 2)
	w := answer(h, get("/", "192.0.2.1", "X-Cost", "7"))
	require.Equal(t, 200, w.Code)
	require.Empty(t, w.Header().Get("RateLimit"))
	close(next.leave)
	require.Equal(t, []bool{true, false, false}, told)
	require.Equal(t, weir.Outcomes{Allowed: 1, Denied: 1}, m.node.Stats().ShadowLimits["r"], "the third asks for more than there ever is")
	require.Empty(t, m.node.Stats().Limits["r"])
}

// The ResponseWriter of an admitted request has each of Flush, Hijack and Push exactly if the server's
// ResponseWriter has it.
func TestAdmittedRequestKeepsResponseWriterMethods(t *testing.T) {
	m := newLimiter(t, twoAtOnce, Options{}, weir.Config{})
	offered := func(w http.ResponseWriter) string {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, pushes := w.(http.Pusher)
		return fmt.Sprint(flushes, hijacks, pushes, http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil)
	}
	var bare, held string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bare = offered(w)
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held = offered(w)
			w.Header().Set("Trailer", "X-End")
			w.Header().Set("Content-Type", "text/plain")
			n, err := io.Copy(w, strings.NewReader("one "))
			require.NoError(t, err)
			require.Equal(t, int64(4), n)
			_ = http.NewResponseController(w).Flush()
			_, err = io.WriteString(w, "two")
			require.NoError(t, err)
			w.Header().Set("X-End", "yes")
		})).ServeHTTP(w, r)
	})
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = http2
		server.StartTLS()
		response, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, "one two", string(text))
		require.Equal(t, "yes", response.Trailer.Get("X-End"))
		require.Equal(t, http2, response.ProtoMajor == 2)
		require.Equal(t, bare, held)
		server.Close()
	}
	w := &room{header: make(http.Header)}
	h.ServeHTTP(w, get("/", "192.0.2.1"))
	require.Equal(t, "false false false false", held)
}

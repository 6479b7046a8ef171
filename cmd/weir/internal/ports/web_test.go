package ports

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// serveWeb serves at a port with room for minProbes connections if few is set, and for
// many connections otherwise.
func serveWeb(t *testing.T, few bool) (*lab.PipeListener, *Port) {
	l, p, _ := serveWebOf(t, few)
	return l, p
}

func serveWebOf(t *testing.T, few bool) (*lab.PipeListener, *Port, *http.Server) {
	l := lab.ListenPipe()
	b := NewBudget(8, quiet)
	p := b.Probes(l, "test")
	if !few {
		b = NewBudget(1024, quiet)
		p = b.Clients(l, "test")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/open", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, "half a body", http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/closed", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no token", http.StatusUnauthorized)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(readWithin + 5*time.Second):
			io.WriteString(w, "at last")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	server := NewWeb(mux, log.New(io.Discard, "", 0))
	go server.Serve(p)
	t.Cleanup(func() {
		server.Close()
		time.Sleep(time.Second) // net/http keeps a refused connection for half of that
	})
	return l, p, server
}

// post returns a request whose header announces a body of length bytes.
func post(path, body string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: weir\r\nContent-Length: %d\r\n\r\n%s", path, length, body)
}

func TestStalledConnectionsEndInTime(t *testing.T) {
	for _, c := range []struct {
		name, first string
		within      time.Duration
		goOn        string // sent once a second
		read        bool   // whether the client reads the response
	}{
		{"silent", "", headerWithin, "", false},
		{"half a header", "GET /open HTTP/1.1\r\nHo", headerWithin, "", true},
		{"a header that goes on and on", "GET /open HTTP/1.1\r\nA: ", headerWithin, "a", false},
		{"half a body", post("/open", "a", 99), readWithin, "", true},
		{"a body that goes on and on", post("/open", "a", 99), readWithin, "a", true},
		{"half a chunk", "POST /open HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n9\r\na", readWithin, "", true},
		{"half a body that is refused", post("/closed", "a", 99), lingerWithin, "", true},
		{"an unread answer", "GET /big HTTP/1.1\r\nHost: weir\r\n\r\n", answerWithin, "", false},
		{"unread answers of a pipeline", strings.Repeat("GET /open HTTP/1.1\r\nHost: weir\r\n\r\n", 9), answerWithin, "", false},
		{"kept", "GET /open HTTP/1.1\r\nHost: weir\r\n\r\n", idleWithin, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := serveWeb(t, false)
				conn := dial(t, l, "192.0.2.1", c.first)
				if c.read {
					go io.Copy(io.Discard, conn)
				}
				if c.goOn != "" {
					go func() {
						for range time.Tick(time.Second) {
							if _, err := io.WriteString(conn, c.goOn); err != nil {
								return
							}
						}
					}()
				}
				time.Sleep(c.within - 100*time.Millisecond)
				require.Equal(t, 1, opened(p))
				time.Sleep(time.Second + 200*time.Millisecond)
				require.Zero(t, opened(p))
				conn.Close()
			})
		})
	}
}

func TestHandlerMayOutlastReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := serveWeb(t, false)
		for _, request := range []string{"GET /long HTTP/1.1\r\nHost: weir\r\n\r\n", post("/long", "a", 1)} {
			conn := dial(t, l, "192.0.2.1", request)
			a, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(a.Body)
			require.NoError(t, err)
			require.Equal(t, "at last", string(text))
		}
	})
}

// A refusal is answered before the rest of the request has arrived.
func TestRefusalNamesReasonAndEndsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := serveWeb(t, false)
		begun := time.Now()
		a, err := http.ReadResponse(bufio.NewReader(dial(t, l, "192.0.2.1", post("/closed", "a", 99))), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, a.StatusCode)
		require.True(t, a.Close)
		require.Zero(t, time.Since(begun))

		a, err = http.ReadResponse(bufio.NewReader(dial(t, l, "192.0.2.1", "GET /closed HTTP/1.1\r\nHost: weir\r\n\r\n")), nil)
		require.NoError(t, err)
		require.False(t, a.Close, "a request that was read leaves its connection open")
	})
}

// A full port closes no connection whose request is being answered. The next connection waits until
// one of these requests has its response, and takes the place of that connection.
func TestBusyConnectionsAreNotClosedForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveWeb(t, true)
		const long = "GET /long HTTP/1.1\r\nHost: weir\r\n\r\n"
		answer := func(in *bufio.Reader) *http.Response {
			a, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, a.StatusCode)
			_, err = io.Copy(io.Discard, a.Body)
			require.NoError(t, err)
			return a
		}
		var works []*bufio.Reader
		for range minProbes {
			works = append(works, bufio.NewReader(dial(t, l, "192.0.2.1", long)))
		}
		late := bufio.NewReader(dial(t, l, "192.0.2.2", long))
		time.Sleep(time.Second)
		require.Equal(t, minProbes, opened(p))
		require.EqualValues(t, 1, p.pool.waits.Load())
		closed := 0
		for _, w := range works {
			if answer(w).Close {
				closed++
			}
		}
		require.NotZero(t, closed, "it makes room after its answer")
		require.False(t, answer(late).Close)
	})
}

func TestClosedPortHasNoWaitingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveWeb(t, true)
		for range minProbes {
			dial(t, l, "192.0.2.1", "GET /long HTTP/1.1\r\nHost: weir\r\n\r\n")
		}
		waits := dial(t, l, "192.0.2.2", "")
		require.NoError(t, p.Close())
		_, err := waits.Read(make([]byte, 1))
		require.Error(t, err)
		require.Zero(t, p.pool.waits.Load())
		time.Sleep(time.Minute)
	})
}

func TestDrainWaitsForNextRequestsOfClients(t *testing.T) {
	const ms = time.Millisecond
	kept, again := post("/open", "a", 1), "GET /open HTTP/1.1\r\nHost: weir\r\n\r\n"
	for _, c := range []struct {
		name            string
		used            []time.Duration // times since the last use of each connection
		again, patience time.Duration   // times at which the first client sends its next request (0 for never), and at which ctx is done
		want            time.Duration   // how long DrainConnections waits
	}{
		{"nobody has connected", nil, 0, time.Minute, 0},
		{"none was used within a second", []time.Duration{1001 * ms, time.Minute / 2}, 0, time.Minute, 2 * restTick},
		{"nobody asks again", []time.Duration{0, 500 * ms}, 0, time.Minute, time.Second},
		{"the one that was used ends with its next answer", []time.Duration{500 * ms, 2 * time.Second}, 295 * ms, time.Minute, 300 * ms},
		{"another one is still open", []time.Duration{500 * ms, 900 * ms}, 295 * ms, time.Minute, time.Second},
		{"the time is over", []time.Duration{0}, 0, 200 * ms, 200 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := serveWeb(t, false)
				begun, conns := time.Now(), make([]net.Conn, len(c.used))
				for i := len(c.used) - 1; i >= 0; i-- { // the oldest connection is the last
					time.Sleep(time.Until(begun.Add(time.Minute/2 - c.used[i])))
					conns[i] = dial(t, l, "192.0.2.1", kept)
					a, err := http.ReadResponse(bufio.NewReader(conns[i]), nil)
					require.NoError(t, err)
					require.False(t, a.Close)
				}
				time.Sleep(time.Until(begun.Add(time.Minute / 2)))
				if c.again != 0 {
					time.AfterFunc(c.again, func() {
						io.WriteString(conns[0], again)
						a, err := http.ReadResponse(bufio.NewReader(conns[0]), nil)
						if err != nil || a.StatusCode != http.StatusOK || !a.Close {
							t.Errorf("asked again, got %+v, %v", a, err)
						}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				begun = time.Now()
				p.DrainConnections(ctx)
				require.Equal(t, c.want, time.Since(begun))
			})
		})
	}
}

func TestShutdownAnswersNewConnectionsAndClosesUnused(t *testing.T) {
	const ms = time.Millisecond
	const get, half = "GET /open HTTP/1.1\r\nHost: weir\r\n\r\n", "GET /open HTTP/1.1\r\nHo"
	for _, c := range []struct {
		name, first string
		ago         time.Duration // time between the arrival of the connection and Shutdown
		later       string        // second text, sent after Shutdown has begun
		after       time.Duration // time between the beginning of Shutdown and the second text
		until       time.Duration // time at which the request is answered or its connection has ended, or at most some ticks later
		answered    bool
	}{
		{"just came, and asks", "", 0, get, 5 * ms, 5 * ms, true},
		{"just came, and asks in time", "", 0, get, 90 * ms, 90 * ms, true},
		{"just came, and asks too late", "", 0, get, 105 * ms, 105 * ms, false},
		{"a header whose second half comes in time", half, 0, "st: weir\r\n\r\n", 90 * ms, 90 * ms, true},
		{"just came, and does not ask", "", 0, "", 0, 200 * ms, false},
		{"came before, and does not ask", "", time.Second, "", 0, 40 * ms, false},
		{"came before, and what it asks was not read", "", time.Second, get, 5 * ms, 5 * ms, true},
		{"half a header", half, time.Second, "", 0, 40 * ms, false},
		{"half a body has all its time", post("/open", "a", 99), 2 * time.Second, "", 0, readWithin - 2*time.Second, true},
		{"a request is under way", "GET /long HTTP/1.1\r\nHost: weir\r\n\r\n", 4 * time.Second, "", 0, readWithin + time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p, server := serveWebOf(t, false)
				conn := dial(t, l, "192.0.2.1", c.first)
				at, answered := make(chan time.Time, 1), make(chan bool, 1)
				go func() {
					in := bufio.NewReader(conn)
					a, err := http.ReadResponse(in, nil)
					at <- time.Now()
					answered <- err == nil && a.Close
					_, _ = io.Copy(io.Discard, in)
				}()
				time.Sleep(c.ago)
				begun := time.Now()
				time.AfterFunc(c.after, func() { _, _ = io.WriteString(conn, c.later) })
				closed := make(chan time.Time, 1)
				go func() { <-l.Closed(); closed <- time.Now() }()
				p.DrainConnections(canceled(t))
				require.NoError(t, p.Shutdown(t.Context(), server))
				require.Equal(t, begun, <-closed, "nobody connects any more")
				require.Equal(t, c.answered, <-answered)
				require.WithinRange(t, <-at, begun.Add(c.until), begun.Add(c.until+2*restTick))
				// A refused connection lingers, once or twice depending on the version of
				// net/http, which checks every half a second.
				require.Less(t, time.Since(begun), c.until+firstRequestWait+2*lingerWithin+550*ms)
			})
		})
	}
}

// canceled returns a context that is done.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestShutdownEndsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, server := serveWebOf(t, false)
		dial(t, l, "192.0.2.1", "")
		const patience = firstRequestWait / 2
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begun := time.Now()
		_ = p.Shutdown(ctx, server) // nil if net/http finds the connection closed before it finds ctx done
		require.Equal(t, patience, time.Since(begun))
		require.Zero(t, opened(p))
	})
}

// late is a listener that returns a further connection when it is closed.
type late struct {
	*lab.PipeListener
	last net.Conn
}

func (l *late) Accept() (net.Conn, error) {
	c, err := l.PipeListener.Accept()
	if err != nil && l.last != nil {
		c, l.last = l.last, nil
		return c, nil
	}
	return c, err
}

func TestShutdownAnswersConnectionDuringAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		l := &late{lab.ListenPipe(), lab.FromIP(there, "192.0.2.1")}
		p := NewBudget(1024, quiet).Clients(l, "test")
		server := NewWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}), log.New(io.Discard, "", 0))
		go server.Serve(p)
		synctest.Wait()
		over := make(chan error)
		go func() { over <- p.Shutdown(t.Context(), server) }()
		_, err := io.WriteString(here, "GET /open HTTP/1.1\r\nHost: weir\r\n\r\n")
		require.NoError(t, err)
		a, err := http.ReadResponse(bufio.NewReader(here), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.NoError(t, <-over)
	})
}

// A proxy may be configured to use HTTP/2 without TLS.
func TestHTTP2WithoutTLSIsServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := NewBudget(1024, quiet).Clients(l, "test")
	begun, finish := make(chan struct{}), make(chan struct{})
	server := NewWeb(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		begun <- struct{}{}
		<-finish
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.RequestURI, body)
	}), log.New(io.Discard, "", 0))
	served := make(chan error)
	go func() { served <- server.Serve(p) }()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()

	const together = 8 // on the same connection
	answers := make(chan string)
	for i := range together {
		go func() {
			r, _ := http.NewRequest("POST", fmt.Sprintf("http://%s/a%%2Fb?%d", l.Addr(), i), strings.NewReader("body"))
			answer, err := transport.RoundTrip(r)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			answers <- string(text)
		}()
		if i == 0 {
			<-begun // otherwise each request would open a separate connection
		}
	}
	for range together - 1 {
		<-begun
	}
	require.Equal(t, 1, opened(p))
	p.pool.mu.Lock()
	c := p.fresh[0]
	p.pool.mu.Unlock()
	require.EqualValues(t, together, c.calls.Load())
	require.Zero(t, c.reads.Load(), "all bodies are read")
	c.reads.Add(1) // like a further request that is not fully read
	_, rests := c.rests(c.port.budget.age())
	require.False(t, rests, "handlers work on others")
	c.reads.Add(-1)
	close(finish)
	for range together {
		require.Regexp(t, `^HTTP/2.0 /a%2Fb\?\d body$`, <-answers)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, p.Shutdown(ctx, server))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

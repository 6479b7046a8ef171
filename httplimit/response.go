package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
)

// response is the ResponseWriter of a request that has an Admission.
type response struct {
	http.ResponseWriter
	a        *Admission
	status   int  // status that was sent to the client
	gone     bool // the client left before a status was sent
	hijacked bool
	reads    bool // a bill reads the body
}

// fillEnd sets the end of the request in e. The Status of e is used only if no status was sent and
// the client has not left.
func (w *response) fillEnd(e *Ended) {
	if !e.Aborted {
		w.begin(e.Status)
	}
	gone := w.a.r.Context().Err() != nil
	if w.status != 0 || gone {
		e.Status = w.status
	}
	e.Aborted, e.Header = e.Aborted || gone, w.Header()
}

// begin records the status of the response. Only the first final status is recorded. If the client
// has left, no status is recorded, because a handler that is a reverse proxy then sends a status
// about the client.
func (w *response) begin(status int) {
	if w.status != 0 || w.gone || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	if w.gone = w.a.r.Context().Err() != nil; w.gone {
		return
	}
	w.status = status
	w.a.RecordResponse(status)
	w.a.bills(func(b *bill) {
		b.begin(w.Header())
		w.reads = w.reads || b.reads()
	})
}

// scan reads a part of the body that is sent.
func (w *response) scan(p []byte) {
	if w.reads {
		w.a.bills(func(b *bill) { b.scan(p) })
	}
}

func (w *response) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.scan(p[:min(max(n, 0), len(p))])
	return n, err
}

// Unwrap is called by http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteString(s string) (int, error) {
	if w.begin(http.StatusOK); w.reads {
		return w.Write([]byte(s))
	}
	return io.WriteString(w.ResponseWriter, s)
}

func (w *response) ReadFrom(r io.Reader) (int64, error) {
	if w.begin(http.StatusOK); w.reads {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// withOptionalMethods returns w with the methods Flush, Hijack and Push if the server offers them, because
// handlers test for these methods. As in the servers of net/http, the result has Push only together with
// Flush, and never both Push and Hijack.
func (w *response) withOptionalMethods() http.ResponseWriter {
	_, pushes := w.ResponseWriter.(http.Pusher)
	flushes, hijacks := offers[http.Flusher](w.ResponseWriter), offers[http.Hijacker](w.ResponseWriter)
	switch {
	case flushes && pushes:
		return struct {
			*response
			flusher
			http.Pusher
		}{w, flusher{w}, w.ResponseWriter.(http.Pusher)}
	case flushes && hijacks:
		return struct {
			*response
			flusher
			hijacker
		}{w, flusher{w}, hijacker{w}}
	case flushes:
		return struct {
			*response
			flusher
		}{w, flusher{w}}
	case hijacks:
		return struct {
			*response
			hijacker
		}{w, hijacker{w}}
	}
	return w
}

// offers reports whether w, or a ResponseWriter that it wraps, is a T, so that
// http.ResponseController finds it.
func offers[T any](w http.ResponseWriter) bool {
	for {
		if _, is := w.(T); is {
			return true
		}
		wrapping, is := w.(interface{ Unwrap() http.ResponseWriter })
		if !is {
			return false
		}
		w = wrapping.Unwrap()
	}
}

type flusher struct{ of *response }

func (f flusher) Flush() { _ = f.FlushError() } // like the Flush of net/http, which returns no error

func (f flusher) FlushError() error {
	f.of.begin(http.StatusOK)
	return http.NewResponseController(f.of.ResponseWriter).Flush()
}

type hijacker struct{ of *response }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.of.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	h.of.hijacked = true
	h.of.a.RecordResponse(http.StatusSwitchingProtocols)
	c := &hijackedConn{conn, h.of.a}
	runtime.AddCleanup(c, (*Admission).endHijacked, c.a) // for a connection that the handler does not close
	if _, closes := conn.(closeWriter); closes {
		return halfClosed{c}, buffered, nil
	}
	return c, buffered, nil
}

// hijackedConn is a connection that a handler has hijacked. The request ends when the connection
// is closed.
type hijackedConn struct {
	net.Conn
	a *Admission
}

// Close closes the connection and ends the request.
func (c *hijackedConn) Close() error {
	defer c.a.endHijacked()
	return c.Conn.Close()
}

func (a *Admission) endHijacked() { a.end(hijackedEnd()) }

func hijackedEnd() *Ended { return &Ended{Status: http.StatusSwitchingProtocols} }

// NetConn returns the connection of the server, like that of tls.Conn.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

// ReadFrom and WriteTo let the operating system copy, if it can.
func (c *hijackedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

func (c *hijackedConn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

type closeWriter interface{ CloseWrite() error }

// halfClosed is a hijackedConn with CloseWrite.
type halfClosed struct{ *hijackedConn }

func (c halfClosed) CloseWrite() error { return c.Conn.(closeWriter).CloseWrite() }

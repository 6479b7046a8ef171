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
	hijacked bool
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteString(s string) (int, error) { return io.WriteString(w.ResponseWriter, s) }

func (w *response) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

// full returns w with those of the methods Flush, Hijack and Push that the server offers:
// handlers ask for them.
func (w *response) full() http.ResponseWriter {
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

// offers reports whether w, or what it wraps, is a T: then http.ResponseController finds it.
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

func (f flusher) Flush() { _ = f.FlushError() } // as net/http's own

func (f flusher) FlushError() error {
	return http.NewResponseController(f.of.ResponseWriter).Flush()
}

type hijacker struct{ of *response }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.of.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	h.of.hijacked = true
	c := &hijackedConn{conn, h.of.a}
	runtime.AddCleanup(c, (*Admission).release, c.a) // where its handler forgets to close it
	if _, closes := conn.(closeWriter); closes {
		return halfClosed{c}, buffered, nil
	}
	return c, buffered, nil
}

// hijackedConn is a connection that a handler has taken over. The request ends when it is
// closed.
type hijackedConn struct {
	net.Conn
	a *Admission
}

// Close closes the connection and ends the request.
func (c *hijackedConn) Close() error {
	defer c.a.release()
	return c.Conn.Close()
}

// NetConn returns the server's own connection, as that of tls.Conn does.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

// ReadFrom and WriteTo let the system copy, where it can.
func (c *hijackedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

func (c *hijackedConn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

type closeWriter interface{ CloseWrite() error }

// halfClosed is one of which one direction can be closed.
type halfClosed struct{ *hijackedConn }

func (c halfClosed) CloseWrite() error { return c.Conn.(closeWriter).CloseWrite() }

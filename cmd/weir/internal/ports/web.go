package ports

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Bounds of an HTTP server.
const (
	headerWithin = 5 * time.Second        // timeout of the TLS handshake, and of each header
	readWithin   = 10 * time.Second       // timeout of a request with its body
	answerWithin = 30 * time.Second       // timeout of a response, from the header of its request on; streams set their own deadlines
	idleWithin   = time.Minute            // maximum time between two requests of a connection
	lingerWithin = 500 * time.Millisecond // time for the rest of a refused request, so that its client can read the reason
	maxHeader    = 32 << 10               // maximum bytes of a header
)

// NewWeb returns a server for the connections of ports. The server supports HTTP/1.1. Without TLS
// it also supports HTTP/2 for clients that begin with HTTP/2, as some proxies do. A handler with an
// endless response must extend its deadline through http.ResponseController.
func NewWeb(h http.Handler, errors *log.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: callsAtOnce, MaxReceiveBufferPerStream: callWindow, MaxReceiveBufferPerConnection: callWindow,
			SendPingTimeout: pingAfter, PingTimeout: pingWithin, WriteByteTimeout: rpcWriteWithin,
		},
		Handler: web{h},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connOf(c))
		},
		ReadHeaderTimeout: headerWithin, ReadTimeout: readWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin, MaxHeaderBytes: maxHeader,
		ErrorLog: errors,
	}
}

type connKey struct{}

// connOf returns the connection of a port below TLS.
func connOf(c net.Conn) *conn {
	if secured, is := c.(*tls.Conn); is {
		c = secured.NetConn()
	}
	of, _ := c.(*conn)
	return of
}

// web is a handler that records on each connection when a request begins and ends.
type web struct{ http.Handler }

func (s web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil { // accepted by a different listener
		s.Handler.ServeHTTP(w, r)
		return
	}
	x := &exchange{ResponseWriter: w, conn: c, read: r.Body == nil || r.Body == http.NoBody}
	c.begin(!x.read)
	defer func() {
		if !x.read {
			c.reads.Add(-1)
		}
		c.end()
	}()
	if x.read {
		s.Handler.ServeHTTP(x, r)
		x.answer()
		return
	}
	x.body = r.Body
	asked := *r // the server uses r.Body again after the handler
	asked.Body = (*requestBody)(x)
	s.Handler.ServeHTTP(x, &asked)
	x.answer()
	if !x.read && x.refused {
		// The server reads some of the rest before it closes the connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerWithin))
	}
}

// exchange is a request and its response.
type exchange struct {
	http.ResponseWriter
	conn    *conn
	body    io.ReadCloser
	read    bool // the whole body has been read
	wrote   bool // the header of the response has been written
	refused bool
}

// Unwrap lets http.ResponseController find the ResponseWriter of the server.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if !x.wrote && status >= http.StatusOK {
		x.wrote, x.refused = true, status >= http.StatusBadRequest
		// The body of a refused request is not read further. If a connection waits for
		// room, a connection that works makes room after its response.
		port := x.conn.port
		if x.refused && !x.read || port.pool.waits.Load() > 0 || port.draining.Load() {
			x.Header().Set("Connection", "close")
		}
		if !x.refused {
			x.conn.prove()
		}
	}
	x.ResponseWriter.WriteHeader(status)
}

// answer writes the header, unless the handler has written it.
func (x *exchange) answer() {
	if !x.wrote {
		x.WriteHeader(http.StatusOK)
	}
}

func (x *exchange) Write(b []byte) (int, error) {
	x.answer()
	return x.ResponseWriter.Write(b)
}

// FlushError is called by http.ResponseController.
func (x *exchange) FlushError() error {
	x.answer()
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// requestBody is the body of the request of an exchange.
type requestBody exchange

func (b *requestBody) Read(into []byte) (int, error) {
	n, err := b.body.Read(into)
	if err == io.EOF && !b.read {
		b.read = true
		b.conn.reads.Add(-1)
	}
	return n, err
}

func (b *requestBody) Close() error { return b.body.Close() }

package ginlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer is the ResponseWriter of a request with an Admission. The writer of gin records
// a status and sends it later. So each method here that sends the status first passes it to
// the field wrapped.
type writer struct {
	gin.ResponseWriter
	wrapped http.ResponseWriter // gin's own writer, wrapped by the Admission
}

// send passes the status that gin is about to send to the field wrapped.
func (w *writer) send() {
	if !w.Written() {
		w.wrapped.WriteHeader(w.Status())
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.send()
	return w.wrapped.Write(p)
}

func (w *writer) WriteString(s string) (int, error) {
	w.send()
	return io.WriteString(w.wrapped, s)
}

func (w *writer) WriteHeaderNow() {
	w.send()
	w.ResponseWriter.WriteHeaderNow()
}

func (w *writer) Flush() {
	w.send()
	_ = http.NewResponseController(w.wrapped).Flush()
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.wrapped).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

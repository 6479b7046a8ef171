package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// content is the beginning of the body of a request, which is read before the handler reads the
// body.
type content struct {
	head []byte
	read bool
	err  error // the client closed the connection
}

// readHead returns the first bytes of the body, and makes them available to the handler again. It
// returns nothing for an encoded body.
func (c *content) readHead(r *http.Request, most int64) []byte {
	if c.read || r.Body == nil || r.Body == http.NoBody || r.Header["Content-Encoding"] != nil {
		return c.head
	}
	c.read = true
	var err error
	c.head, err = io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) {
		c.err = fmt.Errorf("%w: the body of a request broke off: %w", context.Canceled, err)
	}
	r.Body = reread(c.head, r.Body)
	return c.head
}

// reread returns a body whose first bytes have been read.
func reread(head []byte, rest io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), rest}
}

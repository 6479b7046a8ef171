package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
)

const (
	recordHeader = 5
	// maxRecord bounds the bytes that one record carries (RFC 8446, section 5.1).
	maxRecord = 16 << 10
	// maxSealed bounds the bytes that one key seals, with recordBlocks for each record. AES-GCM allows
	// 2^24.5 full records (RFC 8446, section 5.5), and these are 2^24. crypto/tls never updates its
	// keys, so the connection then ends, and the next connection has other keys.
	maxSealed = maxRecord << 24
	// recordBlocks is the size of the blocks that a record adds: one for the tag, and an incomplete
	// block.
	recordBlocks = 2 * 16
)

var errSpent = errors.New("cluster: the connection has used up its keys: a new connection replaces it")

// tlsConn is a connection under TLS. A Read of crypto/tls returns at most one record, and a Write
// passes each record separately to the connection below. tlsConn returns all whole records that have
// arrived, because frames that are read together are answered together, and writes all records of a
// Write at once. With single records, a request took 15 % more processor time with 64 callers.
//
// Only one goroutine may read at a time, and only one may write.
type tlsConn struct {
	*tls.Conn
	records *records
	sealed  int64 // bytes written, with recordBlocks for each record
}

// newTLSConn returns an end of a connection under TLS, before the handshake.
func newTLSConn(conn net.Conn, c *tls.Config, end func(net.Conn, *tls.Config) *tls.Conn) *tlsConn {
	r := &records{Conn: conn}
	return &tlsConn{Conn: end(r, c), records: r}
}

// performHandshake performs the TLS handshake, which may read at most the given number of bytes.
func (c *tlsConn) performHandshake(ctx context.Context, most int) error {
	c.records.most = most
	err := c.HandshakeContext(ctx)
	c.records.most = 0
	if c.records.in.start == c.records.in.end {
		c.records.in = intake{} // certificates have made the buffer large
	}
	return err
}

// Read waits for the first record only, and returns further whole records that have arrived.
func (c *tlsConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	for err == nil && n < len(b) && c.records.hasNext() {
		c.records.hurried = true
		var more int
		more, err = c.Conn.Read(b[n:])
		c.records.hurried = false
		n += more
	}
	if n > 0 {
		err = nil // the next Read returns a permanent error
	}
	return n, err
}

// Write writes all records of b with a single write to the connection below.
func (c *tlsConn) Write(b []byte) (n int, err error) {
	if c.sealed += int64(len(b) + (1+len(b)/maxRecord)*recordBlocks); c.sealed > maxSealed {
		return 0, errSpent
	}
	if len(b) <= maxRecord {
		return c.Conn.Write(b)
	}
	c.records.hold()
	n, err = c.Conn.Write(b)
	if e := c.records.flush(); err == nil {
		err = e
	}
	return n, err
}

// records is the connection below TLS. A Read returns bytes of only one record, so that hasNext can
// report whether the next record has arrived.
type records struct {
	net.Conn
	in      intake
	first   int  // the first byte that arrived, plus 1; 0 before that
	left    int  // bytes of the current record that TLS has not read
	hurried bool // no Read may wait
	most    int  // bytes that TLS may read in its handshake; 0 if no handshake is under way
	passed  int  // bytes that TLS has read in its handshake

	mu   sync.Mutex // TLS writes alerts from the goroutine that reads
	held bool
	out  []byte
}

// hasNext reports whether the next record has arrived completely.
func (r *records) hasNext() bool {
	b := r.in.buf[r.in.start:r.in.end]
	return r.left == 0 && len(b) >= recordHeader && len(b) >= recordHeader+int(binary.BigEndian.Uint16(b[3:]))
}

// errWait is the error of a hurried read that would wait. The error is temporary, because crypto/tls
// returns any other error forever.
var errWait net.Error = waitError{}

type waitError struct{}

func (waitError) Error() string   { return "cluster: no record has arrived" }
func (waitError) Timeout() bool   { return false }
func (waitError) Temporary() bool { return true }

// Read returns bytes of one record.
func (r *records) Read(b []byte) (int, error) {
	if r.left == 0 {
		if r.hurried && !r.hasNext() {
			return 0, errWait
		}
		for r.in.end-r.in.start < recordHeader {
			if err := r.fill(); err != nil {
				return 0, err
			}
		}
		r.left = recordHeader + int(binary.BigEndian.Uint16(r.in.buf[r.in.start+3:]))
	}
	if r.in.start == r.in.end {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := min(len(b), r.left, r.in.end-r.in.start)
	if r.most > 0 {
		if n = min(n, r.most-r.passed); n == 0 {
			return 0, fmt.Errorf("%w: a TLS handshake has more than %d bytes", errOversized, r.most)
		}
		r.passed += n
	}
	n = copy(b[:n], r.in.buf[r.in.start:])
	r.in.start += n
	r.left -= n
	return n, nil
}

func (r *records) fill() error {
	r.in.makeRoom()
	err := r.in.fill(r.Conn)
	if r.first == 0 && r.in.end > 0 {
		r.first = 1 + int(r.in.buf[0])
	}
	return err
}

// hold makes Write keep records until the next call of flush.
func (r *records) hold() {
	r.mu.Lock()
	r.held = true
	r.mu.Unlock()
}

// Write implements net.Conn.
func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		r.out = append(r.out, b...)
		return len(b), nil
	}
	return r.Conn.Write(b)
}

// flush writes the kept records.
func (r *records) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.Conn.Write(r.out)
	if r.held, r.out = false, r.out[:0]; cap(r.out) > keepQueued {
		r.out = nil
	}
	return err
}

// freeBuffer frees the buffer of flush. The caller must not be writing.
func (r *records) freeBuffer() {
	r.mu.Lock()
	r.out = nil
	r.mu.Unlock()
}

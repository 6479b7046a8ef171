package cluster

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxQueued bounds the bytes that wait for one connection to be written to.
	maxQueued = 4 << 20
	// keepQueued is the largest buffer that is kept when its bytes are written.
	keepQueued = 256 << 10
	// writeWait is how long a peer may leave its socket full. It bounds no
	// caller's wait: callers never write.
	writeWait = time.Second
)

// outbox holds the frames that wait to be written to one connection. What is added while
// a write is under way goes out together with the next one. So frames are batched by the
// load alone, without a timer.
//
// While buf is not empty, one goroutine has the duty to write: the one that sets writing
// passes it to run, or flushes itself. Without it frames would lie there until another
// comes; with two at a time frames would mix. Frames go out in the order in which they
// were added, and whole.
type outbox struct {
	conn net.Conn
	wait time.Duration // for the other side to read; writeWait unless told otherwise
	wake chan struct{} // to the goroutine in run, with the duty to write

	mu      sync.Mutex
	buf     []byte
	writing bool // somebody has the duty to write

	spare []byte // of the goroutine that has the duty

	reset atomic.Bool // a write has found that the other side had closed the connection
}

func newOutbox(conn net.Conn) *outbox {
	return &outbox{conn: conn, wait: writeWait, wake: make(chan struct{}, 1)}
}

// fits reports whether size more bytes may be queued. o.mu is held.
func (o *outbox) fits(size int) bool { return len(o.buf)+size <= maxQueued }

// claim takes the duty to write, if nobody has it: the caller must then call
// rouse or flush once it has let go of o.mu, which is held.
func (o *outbox) claim() bool {
	if o.writing {
		return false
	}
	o.writing = true
	return true
}

// rouse hands the duty to the goroutine in run. It never blocks: there is one
// duty.
func (o *outbox) rouse() { o.wake <- struct{}{} }

// put queues one frame, and reports whether it fitted. It never blocks.
func (o *outbox) put(k kind, id uint64, body []byte) bool {
	o.mu.Lock()
	if !o.fits(headerSize + len(body)) {
		o.mu.Unlock()
		return false
	}
	o.buf = appendFrame(o.buf, k, id, body)
	duty := o.claim()
	o.mu.Unlock()
	if duty {
		o.rouse()
	}
	return true
}

// run writes when it is roused, until quit is closed.
func (o *outbox) run(quit <-chan struct{}) {
	for {
		select {
		case <-o.wake:
			// Callers that are about to add their frames get to it first: with
			// hundreds of callers this one yield triples the throughput.
			runtime.Gosched()
			o.flush()
		case <-quit:
			return
		}
	}
}

// flush writes until nothing is queued. Its caller has the duty to write. A
// write that fails closes the connection, and keeps the duty, so that nobody
// writes after it.
func (o *outbox) flush() {
	for {
		o.mu.Lock()
		if len(o.buf) == 0 {
			o.writing = false
			o.mu.Unlock()
			return
		}
		buf := o.buf
		o.buf = o.spare
		o.mu.Unlock()

		o.conn.SetWriteDeadline(time.Now().Add(o.wait))
		if _, err := o.conn.Write(buf); err != nil {
			o.reset.Store(closedByPeer(err)) // the read may no longer find it
			sever(o.conn)
			return
		}
		o.spare = nil
		if cap(buf) <= keepQueued {
			o.spare = buf[:0]
		}
	}
}

// sever closes a connection at once. A TLS connection would first try to say
// goodbye, and wait for a peer that does not read.
func sever(conn net.Conn) {
	if t, ok := conn.(*tlsConn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

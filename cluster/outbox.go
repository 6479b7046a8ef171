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

// outbox holds the frames that wait to be written to one connection. Frames that are added during
// a write are written together by the next write. So the load alone forms batches, without a
// timer.
//
// While buf is not empty, one goroutine has the duty to write: the goroutine that sets writing
// passes the duty to the writer, or flushes itself. Without the duty, frames would wait for the
// next frame; with two writers, frames would mix. Frames are written whole, and in the order in
// which they were added.
//
// The writer is a goroutine that the first frame starts. It lives while the connection carries
// frames, because a new goroutine for each batch takes 5 to 10 % more processor time. relieve and
// close end it. Only a goroutine with the duty changes wake.
type outbox struct {
	conn    net.Conn
	wait    time.Duration   // how long a write may take; writeWait, and writeWaitAbroad for other regions
	writers *sync.WaitGroup // counts the writer. A goroutine that calls close later is in it too

	mu      sync.Mutex
	buf     []byte
	writing bool          // a goroutine has the duty to write. After close no goroutine begins to have it
	closed  bool          // no frame is written any more
	roused  int           // how often the duty was passed to the writer since the last call of relieve
	wake    chan struct{} // passes the duty to the writer; nil: there is no writer

	spare []byte // owned by the goroutine that has the duty

	reset atomic.Bool // a write has found that the other side had closed the connection
}

func newOutbox(conn net.Conn, writers *sync.WaitGroup) *outbox {
	return &outbox{conn: conn, wait: writeWait, writers: writers}
}

// fits reports whether size more bytes may be queued. The caller must hold o.mu.
func (o *outbox) fits(size int) bool { return len(o.buf)+size <= maxQueued }

// claim takes the duty to write, if no goroutine has it: the caller must then call flush once it
// has released o.mu, which it must hold.
func (o *outbox) claim() bool {
	if o.writing {
		return false
	}
	o.writing = true
	return true
}

// claimForWriter is claim for a caller that passes the duty to the writer. The caller must call rouse
// instead of flush.
func (o *outbox) claimForWriter() bool {
	if !o.claim() {
		return false
	}
	o.roused++
	if o.wake == nil {
		wake := make(chan struct{}, 1)
		o.wake = wake
		o.writers.Go(func() { o.run(wake) })
	}
	return true
}

// rouse passes the duty to the writer. It never blocks, because there is one duty.
func (o *outbox) rouse() { o.wake <- struct{}{} }

// relieve ends the writer if the duty was passed to it at most that many times since the last call.
func (o *outbox) relieve(most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.roused <= most && o.claim() {
		o.dismiss()
		o.writing = false
	}
	o.roused = 0
}

// dismiss ends the writer. The caller must hold o.mu and have the duty to write.
func (o *outbox) dismiss() {
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// close stops all writes, and ends the writer. If another goroutine has the duty, that goroutine ends
// the writer.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.claim() {
		o.dismiss()
	}
}

// put queues one frame, and reports whether it fitted. It never blocks.
func (o *outbox) put(k kind, id uint64, body []byte) bool {
	o.mu.Lock()
	if !o.fits(headerSize + len(body)) {
		o.mu.Unlock()
		return false
	}
	o.buf = appendFrame(o.buf, k, id, body)
	duty := o.claimForWriter()
	o.mu.Unlock()
	if duty {
		o.rouse()
	}
	return true
}

// run is the writer. It writes when it is roused, until wake is closed.
func (o *outbox) run(wake <-chan struct{}) {
	for range wake {
		// Callers that are about to add frames run first. With hundreds of callers,
		// this yield triples the throughput.
		runtime.Gosched()
		o.flush()
	}
}

// flush writes until no frame is queued. The caller must have the duty to write. A write that
// fails closes the connection, and flush keeps the duty, so that no goroutine writes after it.
func (o *outbox) flush() {
	for {
		o.mu.Lock()
		if o.closed {
			o.dismiss()
			o.mu.Unlock()
			return
		}
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
			o.reset.Store(closedByPeer(err)) // a read may not return this error again
			sever(o.conn)
			o.mu.Lock()
			o.closed = true
			o.mu.Unlock()
			continue
		}
		o.spare = nil
		if cap(buf) <= keepQueued {
			o.spare = buf[:0]
		}
	}
}

// sever closes a connection at once. Close of a TLS connection would first send an alert,
// and wait for a peer that does not read.
func sever(conn net.Conn) {
	if t, ok := conn.(*tlsConn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

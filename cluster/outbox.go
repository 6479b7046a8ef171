package cluster

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxQueued bounds the bytes that wait to be written to a connection. Only the answers that incoming.send
	// adds to an empty queue may be longer.
	maxQueued = 4 << 20
	// keepQueued is the largest buffer that is kept after a write.
	keepQueued = 256 << 10
	// keepIdle is the largest buffer that an idle connection keeps. A member of a large cluster sends
	// the rows of all members over each new connection, and then only pings.
	keepIdle = 1 << 10
	// writeWait is how long a peer may leave its socket full. The waits of callers do not depend on
	// writeWait, because callers never write. The timer of a write also fires after the write has ended,
	// so writeWait is a multiple of pingPace: after a ping, an idle process is then awake anyway.
	writeWait = 4 * pingPace
)

// outbox holds the frames that wait to be written to a connection. Frames that are added during a write
// are written together by the next write. So batches form under load, without a timer.
//
// While buf is not empty, exactly one goroutine has the duty to write: the goroutine that sets writing,
// which calls flush or passes the duty to the writer. If no goroutine had the duty, frames would wait
// until the next frame is added. If two goroutines had it, they would interleave frames. Frames are
// written whole, and in the order in which they were added.
//
// The writer is a goroutine that claimForWriter starts. It lives while the connection carries frames,
// because a new goroutine for each batch takes 5 to 10 % more processor time. relieve and close end the
// writer. A ping over a connection without a writer is written by a goroutine of its own. Only a
// goroutine with the duty changes wake.
type outbox struct {
	conn    net.Conn
	wait    time.Duration   // how long a write may take; writeWait, and writeWaitAbroad for other regions
	writers *sync.WaitGroup // counts the writer and the goroutines that write pings; the goroutine that calls close is counted, too, so that the count is not zero when a writer starts

	mu      sync.Mutex
	buf     []byte
	writing bool          // a goroutine has the duty to write; always set after close
	closed  bool          // no further frame is written
	roused  int           // how often the duty was passed to the writer since the last call of relieve
	wake    chan struct{} // passes the duty to the writer; nil if there is no writer

	spare []byte // owned by the goroutine that has the duty

	reset atomic.Bool // a write has failed because the other side had closed the connection
}

func newOutbox(conn net.Conn, writers *sync.WaitGroup) *outbox {
	return &outbox{conn: conn, wait: writeWait, writers: writers}
}

// fits reports whether there is room for size bytes. The caller must hold o.mu.
func (o *outbox) fits(size int) bool { return len(o.buf)+size <= maxQueued }

// claim takes the duty to write, if no goroutine has the duty, and reports whether it did. The caller
// must hold o.mu. If claim returns true, the caller must release o.mu and then call flush, or clear
// writing.
func (o *outbox) claim() bool {
	if o.writing {
		return false
	}
	o.writing = true
	return true
}

// claimForWriter is like claim, for a caller that passes the duty to the writer. The caller must call rouse
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

// rouse passes the duty to the writer. It never blocks, because only one goroutine has the duty.
func (o *outbox) rouse() { o.wake <- struct{}{} }

// relieve ends the writer and frees large buffers if no goroutine has the duty to write, and if the
// writer has received that duty at most limit times since the last call of relieve.
func (o *outbox) relieve(limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.roused <= limit && o.claim() {
		o.dismiss()
		o.freeBuffers()
		o.writing = false
	}
	o.roused = 0
}

// freeBuffers frees the buffers above keepIdle. The caller must hold o.mu and have the duty to write. No
// frame is queued then.
func (o *outbox) freeBuffers() {
	for _, b := range []*[]byte{&o.buf, &o.spare} {
		if cap(*b) > keepIdle {
			*b = nil
		}
	}
	if t, ok := o.conn.(*tlsConn); ok {
		t.records.freeBuffer()
	}
}

// dismiss ends the writer. The caller must hold o.mu and have the duty to write.
func (o *outbox) dismiss() {
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// close prevents further writes, and ends the writer. If another goroutine has the duty, that goroutine ends
// the writer.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.claim() {
		o.dismiss()
	}
}

// put queues a frame, and reports whether there was room. It never blocks.
func (o *outbox) put(k kind, id uint64, body []byte) bool {
	o.mu.Lock()
	if !o.fits(headerSize + len(body)) {
		o.mu.Unlock()
		return false
	}
	o.buf = appendFrame(o.buf, k, id, body)
	if k == kindPing && o.wake == nil { // on an idle connection, a writer would wake a second time, to end
		if o.claim() {
			o.writers.Go(o.flush)
		}
		o.mu.Unlock()
		return true
	}
	duty := o.claimForWriter()
	o.mu.Unlock()
	if duty {
		o.rouse()
	}
	return true
}

// run is the writer: it flushes after each call of rouse, until wake is closed.
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

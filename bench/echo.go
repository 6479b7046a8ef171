package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-go/weir/bench/internal/worker"
)

// The sizes in bytes of one forwarded take: the header of a frame, and a request or a response.
const (
	echoRequestBytes  = 14 + 88
	echoResponseBytes = 14 + 62
)

// echo sends requests over one connection to another process, which only returns
// responses. So it measures a forwarded check without the limiter. A frame begins with
// the number of its slot. There are no deadlines, no handshake and no checks. As in Weir,
// a caller that finds no writer yields once, and then writes all queued frames.
type echo struct {
	listener net.Listener
	serving  sync.WaitGroup
	reading  sync.WaitGroup
	conn     net.Conn // the connection to the other process; nil before meet

	mu      sync.Mutex
	slots   []chan bool // a channel for each pending request: true for a response, false when the connection ends
	free    []uint64    // indexes of slots without a pending request
	queued  []byte      // frames that are not written yet
	spare   []byte      // buffer of written frames, which the next flush uses for queued; only the writing caller uses this buffer
	writing bool        // whether a caller writes
	ended   bool        // whether conn has ended
	served  []net.Conn  // connections from the other process
}

// newEcho starts a listener. Meet connects to the other process.
func newEcho() (*worker.Instance, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &echo{listener: listener}
	e.serving.Go(e.serve)
	return &worker.Instance{Allow: func(string) worker.Outcome { return e.ask() }, Close: e.close, Addr: listener.Addr().String(), Meet: e.meet}, nil
}

func (e *echo) meet(nodes []string) (err error) {
	other := slices.IndexFunc(nodes, func(addr string) bool { return addr != e.listener.Addr().String() })
	if e.conn, err = net.Dial("tcp", nodes[other]); err == nil {
		e.reading.Go(e.read)
	}
	return err
}

func (e *echo) close() error {
	err := e.listener.Close()
	if e.conn != nil {
		err = errors.Join(err, e.conn.Close())
	}
	e.mu.Lock()
	for _, conn := range e.served {
		conn.Close()
	}
	e.mu.Unlock()
	e.reading.Wait()
	e.serving.Wait()
	return err
}

// ask sends a request, waits for the response, and returns the outcome of a check that no
// owner decides.
func (e *echo) ask() worker.Outcome {
	var frame [echoRequestBytes]byte
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return worker.Stray | worker.Failed
	}
	if len(e.free) == 0 {
		e.free, e.slots = append(e.free, uint64(len(e.slots))), append(e.slots, make(chan bool, 1))
	}
	slot := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	answered := e.slots[slot]
	binary.BigEndian.PutUint64(frame[:], slot)
	e.queued = append(e.queued, frame[:]...)
	writes := !e.writing
	e.writing = true
	e.mu.Unlock()
	if writes {
		runtime.Gosched()
		e.flush()
	}
	if !<-answered {
		return worker.Stray | worker.Failed
	}
	e.mu.Lock()
	e.free = append(e.free, slot)
	e.mu.Unlock()
	return worker.Stray | worker.Admitted
}

func (e *echo) flush() {
	for {
		e.mu.Lock()
		frames := e.queued
		if len(frames) == 0 {
			e.writing = false
			e.mu.Unlock()
			return
		}
		e.queued = e.spare[:0]
		e.mu.Unlock()
		if _, err := e.conn.Write(frames); err != nil {
			e.conn.Close() // the method read then fails, and ends all waits
			return
		}
		e.spare = frames
	}
}

func (e *echo) read() {
	_ = readFrames(e.conn, echoResponseBytes, func(frames []byte) error {
		e.mu.Lock()
		slots := e.slots
		e.mu.Unlock()
		for ; len(frames) > 0; frames = frames[echoResponseBytes:] {
			slots[binary.BigEndian.Uint64(frames)] <- true
		}
		return nil
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	for i, s := range e.slots {
		if !slices.Contains(e.free, uint64(i)) {
			s <- false
		}
	}
}

// serve responds on each connection until the connection ends.
func (e *echo) serve() {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.served = append(e.served, conn)
		e.mu.Unlock()
		e.serving.Go(func() {
			var answers []byte
			_ = readFrames(conn, echoRequestBytes, func(frames []byte) error {
				answers = answers[:0]
				for ; len(frames) > 0; frames = frames[echoRequestBytes:] {
					answers = append(answers, frames[:echoResponseBytes]...)
				}
				_, err := conn.Write(answers)
				return err
			})
		})
	}
}

// readFrames passes the whole frames of each read to handle, until the read or handle returns
// an error.
func readFrames(r io.Reader, size int, handle func(frames []byte) error) error {
	buf, left := make([]byte, 64<<10), 0
	for {
		n, err := r.Read(buf[left:])
		if err != nil {
			return err
		}
		n += left
		whole := n - n%size
		if whole > 0 {
			if err := handle(buf[:whole]); err != nil {
				return err
			}
		}
		left = copy(buf, buf[whole:n])
	}
}

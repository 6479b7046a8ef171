package main

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes that one forwarded check moves: a frame's header, and a request or
// an answer.
const (
	frameHeaderBytes = 14
	requestBytes     = frameHeaderBytes + 100
	answerBytes      = frameHeaderBytes + 62
)

// echo asks over one connection and does nothing else: what is left of a
// forwarded check without the limiter, and so the limit of its speed. A frame
// begins with the number of its caller; there are no deadlines, no handshake and
// no checks. A peer that dies closes the connection, which ends all waits.
type echo struct {
	conn     net.Conn
	answered []chan struct{} // of each caller

	mu      sync.Mutex
	queued  []byte
	spare   []byte // of whoever writes
	writing bool
}

// dialEcho connects callers to an echo.
func dialEcho(tb testing.TB, addr string, callers int) *echo {
	conn, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	e := &echo{conn: conn, answered: make([]chan struct{}, callers)}
	for i := range e.answered {
		e.answered[i] = make(chan struct{}, 1)
	}
	var reader sync.WaitGroup
	reader.Go(e.read)
	tb.Cleanup(func() {
		conn.Close()
		reader.Wait()
	})
	return e
}

var errEchoGone = errors.New("bench: the echo is gone")

// ask is a contestant. A caller that finds nobody writing yields once, so that others
// add their frames, and writes all that has queued.
func (e *echo) ask(caller int) error {
	var frame [requestBytes]byte
	binary.BigEndian.PutUint64(frame[:], uint64(caller))
	e.mu.Lock()
	e.queued = append(e.queued, frame[:]...)
	write := !e.writing
	e.writing = true
	e.mu.Unlock()
	if write {
		runtime.Gosched()
		e.flush()
	}
	if _, ok := <-e.answered[caller]; !ok {
		return errEchoGone
	}
	return nil
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
			e.conn.Close() // ends read, and so all waits
			return
		}
		e.spare = frames
	}
}

func (e *echo) read() {
	defer func() {
		for _, c := range e.answered {
			close(c)
		}
	}()
	_ = drain(e.conn, answerBytes, func(frames []byte) error {
		for ; len(frames) > 0; frames = frames[answerBytes:] {
			e.answered[binary.BigEndian.Uint64(frames)] <- struct{}{}
		}
		return nil
	})
}

// serveEcho is the second process.
func serveEcho(ready func(string), done <-chan struct{}) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready(listener.Addr().String())
	go func() {
		<-done
		listener.Close()
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return nil
		}
		go answerEcho(conn)
	}
}

// answerEcho answers all that a read has brought with one write.
func answerEcho(conn net.Conn) {
	defer conn.Close()
	var answers []byte
	_ = drain(conn, requestBytes, func(frames []byte) error {
		answers = answers[:0]
		for ; len(frames) > 0; frames = frames[requestBytes:] {
			answers = append(answers, frames[:answerBytes]...)
		}
		_, err := conn.Write(answers)
		return err
	})
}

// drain hands over the whole frames of each read, until conn or take ends it.
func drain(conn net.Conn, size int, take func(frames []byte) error) error {
	buf := make([]byte, 64<<10)
	left := 0
	for {
		n, err := conn.Read(buf[left:])
		if err != nil {
			return err
		}
		n += left
		whole := n - n%size
		if whole > 0 {
			if err := take(buf[:whole]); err != nil {
				return err
			}
		}
		left = copy(buf, buf[whole:n])
	}
}

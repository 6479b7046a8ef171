package lab

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy that a test can make slow, silent or unreachable. The methods of Proxy are safe
// for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	delay   time.Duration
	silent  bool
	refuses bool
}

// StartProxy returns a Proxy that forwards connections to the address target. The Proxy ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, conns: make(map[net.Conn]bool)}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.SetRefusing(true)
		p.running.Wait()
	})
	return p
}

// Addr returns the address of the Proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetDelay sets the time by which the Proxy delays each piece of data, in each direction.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// SetSilent(true) makes the Proxy keep its connections and accept others, but forward no data until
// SetSilent(false).
func (p *Proxy) SetSilent(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
	p.changed.Broadcast()
}

// SetRefusing(true) makes the Proxy break its connections, and each new connection until
// SetRefusing(false).
func (p *Proxy) SetRefusing(refuses bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuses
	for conn := range p.conns {
		if refuses {
			_ = conn.Close()
		}
	}
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(near) })
	}
}

// serve forwards a connection, until one of its ends is closed.
func (p *Proxy) serve(near net.Conn) {
	defer p.close(near)
	if !p.keep(near) {
		return
	}
	far, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer p.close(far)
	if !p.keep(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		p.forward(near, far)
		_ = near.Close()
	})
	p.forward(far, near)
	_ = far.Close()
	back.Wait()
}

// keep records a connection. It returns false if the Proxy refuses connections.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return !p.refuses
}

func (p *Proxy) close(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

// forward copies data until an end is closed.
func (p *Proxy) forward(to io.Writer, from io.Reader) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			p.hold()
			_, writeErr := to.Write(piece[:n])
			if writeErr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold waits for the delay, and while the Proxy is silent.
func (p *Proxy) hold() {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.silent && !p.refuses {
		p.changed.Wait()
	}
}

package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// What a path between two regions takes each way: oneWay, and up to jitter more
// or less. What is sent first arrives first, as TCP has it.
const (
	oneWay = 50 * time.Millisecond
	jitter = 10 * time.Millisecond
)

// wan is the network between the regions: all that their gateways say to each
// other passes through it, on sockets of its own. It takes its time, and a region
// can be cut off. Its methods are safe for concurrent use.
type wan struct {
	ctx  context.Context // done when it is closed
	end  context.CancelFunc
	wait sync.WaitGroup

	mu    sync.Mutex
	paths map[[2]string]*path // by the names of their ends, the lesser first
}

// path is what lies between two regions. While it is cut, what is under way waits,
// as with TCP, whose packets are lost and sent anew until somebody gives up.
type path struct {
	mu     sync.Mutex
	open   chan struct{} // closed while it is not cut
	takes  time.Duration // each way,
	varies time.Duration // and so much more or less
}

func newWAN(regions []string) *wan {
	w := &wan{paths: make(map[[2]string]*path)}
	w.ctx, w.end = context.WithCancel(context.Background())
	for i, a := range regions {
		for _, b := range regions[:i] {
			w.paths[ends(a, b)] = &path{open: closed(), takes: oneWay, varies: jitter}
		}
	}
	return w
}

func ends(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// cut cuts every path to a region, or mends them.
func (w *wan) cut(region string, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ends, p := range w.paths {
		if ends[0] == region || ends[1] == region {
			p.cut(off)
		}
	}
}

func (p *path) cut(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		if off {
			p.open = make(chan struct{})
		}
	default:
		if !off {
			close(p.open)
		}
	}
}

// pass waits until the path is not cut.
func (p *path) pass(ctx context.Context) error {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// far is the address of a node of another region, which is known once that node
// has started.
type far struct {
	known chan struct{}
	once  sync.Once
	addr  string
}

func newFar() *far { return &far{known: make(chan struct{})} }

func (f *far) is(addr string) {
	f.once.Do(func() {
		f.addr = addr
		close(f.known)
	})
}

// reach is an address at which those of one region reach a node of another.
func (w *wan) reach(from, to string, node *far) (addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	p := w.paths[ends(from, to)]
	w.mu.Unlock()
	context.AfterFunc(w.ctx, func() { listener.Close() })
	w.wait.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.wait.Go(func() { w.carry(conn, p, node) })
		}
	})
	return listener.Addr().String(), nil
}

// dialWithin bounds a connection to a gateway on this machine.
const dialWithin = 2 * time.Second

// carry takes what is said on a connection to a node, and back.
func (w *wan) carry(from net.Conn, p *path, node *far) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { from.Close() })
	select {
	case <-node.known:
	case <-ctx.Done():
		return
	}
	if p.pass(ctx) != nil {
		return
	}
	dialer := net.Dialer{Timeout: dialWithin}
	there, err := dialer.DialContext(ctx, "tcp", node.addr)
	if err != nil {
		return
	}
	p.join(ctx, cancel, from, there)
}

// join takes what is said at each end to the other, until one of them is closed or ctx is
// done, and then closes both and calls cancel.
func (p *path) join(ctx context.Context, cancel func(), from, there net.Conn) {
	context.AfterFunc(ctx, func() { from.Close() })
	context.AfterFunc(ctx, func() { there.Close() })
	var all sync.WaitGroup
	defer all.Wait()
	for _, way := range [][2]net.Conn{{from, there}, {there, from}} {
		parcels := make(chan parcel, underWay)
		all.Go(func() {
			defer close(parcels)
			p.post(ctx, parcels, way[0])
		})
		all.Go(func() {
			defer cancel() // without one way there is no connection
			p.deliver(ctx, way[1], parcels)
		})
	}
}

// parcel is what was sent at once.
type parcel struct {
	due  time.Time
	what []byte
}

const (
	parcelBytes = 16 << 10
	// underWay is how many parcels one connection has on its way at most; then its
	// sender has to wait.
	underWay = 256
)

// delay is what the next parcel takes.
func (p *path) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.varies <= 0 {
		return p.takes
	}
	return p.takes - p.varies + rand.N(2*p.varies)
}

// post reads what is sent, until its connection is closed.
func (p *path) post(ctx context.Context, parcels chan<- parcel, from io.Reader) {
	last := time.Time{}
	for {
		b := make([]byte, parcelBytes)
		n, err := from.Read(b)
		if due := time.Now().Add(p.delay()); due.After(last) {
			last = due
		}
		if n > 0 {
			select {
			case parcels <- parcel{last, b[:n:n]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes each parcel when it is due and the path is not cut, until there
// are no more or nobody takes them.
func (p *path) deliver(ctx context.Context, to io.Writer, parcels <-chan parcel) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := range parcels {
		timer.Reset(time.Until(next.due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if p.pass(ctx) != nil {
			return
		}
		if _, err := to.Write(next.what); err != nil {
			return
		}
	}
}

// close ends every connection, and returns when all have ended.
func (w *wan) close() {
	w.end()
	w.wait.Wait()
}

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// transport is a way to protect the connections between two members.
type transport struct {
	name string
	set  func(*peersConfig)

	dialler, listener *testPeer
	least             map[string]cost
	idle              int // bytes of both ends of one idle connection
	cipher            string
}

// cost is the cost of one operation, of both ends together.
type cost struct{ processor, wall time.Duration }

func transports(b *testing.B) []*transport {
	own, leaf := certificate(b)
	certificates := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)}
	all := []*transport{
		{name: "plain", set: func(*peersConfig) {}},
		{name: "Secrets", set: withSecret},
		{name: "Config.TLS", set: func(c *peersConfig) { c.TLS = certificates }},
	}
	for _, t := range all {
		t.dialler, t.listener = startPeer(b, "a", nil, t.set), startPeer(b, "b", nil, t.set)
		connectAll(b, t.dialler, t.listener)
		t.least = map[string]cost{}
	}
	return all
}

// measure runs windows of count operations each, and keeps the least cost of one operation: processor
// time of all windows together, and the wall time of the shortest window, which other processes have
// disturbed least.
func (t *transport) measure(what string, windows, count int, work func(count int)) {
	runtime.GC()
	best := cost{processor: processorTime(), wall: time.Hour}
	for range windows {
		start := time.Now()
		work(count)
		best.wall = min(best.wall, time.Since(start)/time.Duration(count))
	}
	best.processor = (processorTime() - best.processor) / time.Duration(windows*count)
	if old, ok := t.least[what]; ok {
		best = cost{min(best.processor, old.processor), min(best.wall, old.wall)}
	}
	t.least[what] = best
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ask sends count requests to the listener, from several goroutines at once.
func (t *transport) ask(callers, count int) {
	request, peer := bytes.Repeat([]byte("r"), 60), t.dialler.peer("b")
	var left atomic.Int64
	left.Store(int64(count))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var answer []byte
			for left.Add(-1) >= 0 {
				for {
					var err error
					if answer, err = peer.Ask(context.Background(), request, answer, 10*time.Second); err == nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

// connect opens and closes count connections, one after the other.
func (t *transport) connect(b *testing.B, count int) {
	for range count {
		conn, _, err := t.dialler.dial(context.Background(), t.listener.cfg.Self.Addr, "r")
		require.NoError(b, err)
		sever(conn)
	}
}

// measureIdle keeps connections open that have carried a ping and its pong.
func (t *transport) measureIdle(b *testing.B) {
	const count = 256
	var held [count]struct {
		conn net.Conn
		in   intake
	}
	before := memoryInUse()
	for i := range held {
		h := &held[i]
		self := t.dialler.cfg.Self
		self.Name = fmt.Sprintf("idle-%d", i)
		dials := &peers{cfg: t.dialler.cfg, identity: t.dialler.identity}
		dials.identity.self = self
		var err error
		h.conn, _, err = dials.dial(context.Background(), t.listener.cfg.Self.Addr, "r")
		require.NoError(b, err)
		_, err = h.conn.Write(appendFrame(nil, kindPing, 1, make([]byte, pingSize)))
		require.NoError(b, err)
		require.NoError(b, h.in.fill(h.conn))
		if secured, ok := h.conn.(*tlsConn); ok {
			t.cipher = tls.CipherSuiteName(secured.ConnectionState().CipherSuite)
		}
	}
	t.idle = max(0, memoryInUse()-before) / count
	for i := range held {
		sever(held[i].conn)
	}
	runtime.KeepAlive(&held)
}

func memoryInUse() int {
	for range 5 { // each garbage collection shrinks a stack to half at most
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// BenchmarkTransports prints the costs of each transport: the least of b.N interleaved runs, so
// that a busy machine changes little. Processor time includes both ends. Each ask sends 60 bytes,
// which the answer repeats, and does no other work.
//
//	go test ./cluster -run '^$' -bench Transports -benchtime 5x
func BenchmarkTransports(b *testing.B) {
	all := transports(b)
	loads := []struct{ callers, windows, count int }{{1, 50, 100}, {64, 30, 2000}, {512, 15, 4000}}
	for range b.N {
		for _, load := range loads {
			for _, t := range all {
				t.measure(fmt.Sprint(load.callers), load.windows, load.count, func(count int) { t.ask(load.callers, count) })
			}
		}
		for _, t := range all {
			t.measure("connections", 20, 10, func(count int) { t.connect(b, count) })
		}
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "transport\tcallers\tprocessor µs/ask\tof plain\tasks/s\tof plain\t")
	for _, load := range loads {
		what := fmt.Sprint(load.callers)
		plain := all[0].least[what]
		for _, t := range all {
			c := t.least[what]
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.0f\t%.2f\t\n", t.name, what,
				float64(c.processor)/1e3, float64(plain.processor)/float64(c.processor),
				1e9/float64(c.wall), float64(plain.wall)/float64(c.wall))
		}
	}
	w.Flush()
	fmt.Fprintln(w, "transport\tprocessor µs/connection\tconnections/s\tbytes/idle connection\tcipher\t")
	for _, t := range all {
		t.measureIdle(b)
		c := t.least["connections"]
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%d\t%s\t\n", t.name, float64(c.processor)/1e3, 1e9/float64(c.wall), t.idle, t.cipher)
	}
	w.Flush()
	fmt.Print("\n" + table.String())
}

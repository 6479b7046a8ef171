package cluster

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func memoryInUse() int {
	for range 5 { // each garbage collection shrinks a stack to half at most
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// BenchmarkTransports measures the ways to protect the connections between two members: requests of 60
// bytes, which the answer repeats, from some number of callers, and handshakes. Processor time includes
// both ends. TestIdleConnectionTakesTwoGoroutines logs the memory of connections.
func BenchmarkTransports(b *testing.B) {
	certificates := NewAuthority(b).Config(b)
	for _, transport := range []struct {
		name string
		set  func(*peersConfig)
	}{
		{"plain", func(*peersConfig) {}},
		{"Secrets", withSecret},
		{"Config.TLS", func(c *peersConfig) { c.TLS = certificates }},
	} {
		dialler, listener := startPeer(b, "a", nil, transport.set), startPeer(b, "b", nil, transport.set)
		connectAll(b, dialler, listener)
		measure := func(name string, work func(b *testing.B)) {
			b.Run(transport.name+"/"+name, func(b *testing.B) {
				before := processorTime()
				work(b)
				b.ReportMetric(float64(processorTime()-before)/float64(b.N), "processor-ns/op")
			})
		}
		request, peer := bytes.Repeat([]byte("r"), 60), dialler.peer("b")
		for _, callers := range []int{1, 64, 512} {
			measure(fmt.Sprint(callers), func(b *testing.B) {
				b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(next *testing.PB) {
					var answer []byte
					for next.Next() {
						var err error
						if answer, err = peer.Ask(context.Background(), request, answer, 10*time.Second); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
		measure("connections", func(b *testing.B) {
			for b.Loop() {
				conn, _, err := dialler.dial(context.Background(), listener.cfg.Self.Addr, "r")
				require.NoError(b, err)
				sever(conn)
			}
		})
	}
}

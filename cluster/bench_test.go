package cluster

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const benchMessage = 100 // bytes, without the header

// callers has n goroutines share b.N calls, and reports their latencies.
func callers(b *testing.B, n int, call func(caller int)) {
	var left atomic.Int64
	left.Store(int64(b.N))
	spent := make([][]time.Duration, n)
	for c := range spent {
		spent[c] = make([]time.Duration, 0, b.N/n/8+64)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				if i%8 != 0 {
					call(c)
					continue
				}
				start := time.Now()
				call(c)
				spent[c] = append(spent[c], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(spent...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100])/1e3, "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}

func BenchmarkAsk(b *testing.B) {
	for _, n := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(n, " callers"), func(b *testing.B) {
			asking, answering := startPeer(b, "a", nil), startPeer(b, "b", nil)
			meet(b, asking, answering)
			peer := asking.peer("b")
			request := make([]byte, benchMessage)
			answers := make([][]byte, n)
			for c := range answers {
				answers[c] = make([]byte, 0, benchMessage)
			}
			callers(b, n, func(c int) {
				if _, err := peer.Ask(context.Background(), request, answers[c], 10*time.Second); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// BenchmarkEcho is the least that any protocol of this kind does, to compare
// BenchmarkAsk with: one connection, answers in order, the first caller to find
// nobody writing writes for all, no timeouts and no ids.
func BenchmarkEcho(b *testing.B) {
	for _, n := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(n, " callers"), func(b *testing.B) {
			call, stop := echo(b)
			defer stop()
			callers(b, n, func(int) { call() })
		})
	}
}

func echo(b *testing.B) (call func(), stop func()) {
	const size = headerSize + benchMessage
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, steadyIntake)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			conn.Write(buf[:n])
		}
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	var (
		mu         sync.Mutex
		buf, spare []byte
		writing    bool
		waiting    = make(chan chan struct{}, 4096)
		pool       = sync.Pool{New: func() any { return make(chan struct{}, 1) }}
		message    [size]byte
	)
	wg.Go(func() {
		buf := make([]byte, steadyIntake)
		have := 0
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for have += n; have >= size; have -= size {
				(<-waiting) <- struct{}{}
			}
		}
	})
	call = func() {
		done := pool.Get().(chan struct{})
		mu.Lock()
		buf = append(buf, message[:]...)
		waiting <- done
		first := !writing
		writing = true
		mu.Unlock()
		if first {
			runtime.Gosched()
			for {
				mu.Lock()
				if len(buf) == 0 {
					writing = false
					mu.Unlock()
					break
				}
				out := buf
				buf = spare[:0]
				mu.Unlock()
				conn.Write(out)
				spare = out
			}
		}
		<-done
		pool.Put(done)
	}
	return call, func() {
		conn.Close()
		listener.Close()
		wg.Wait()
	}
}

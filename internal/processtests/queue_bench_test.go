package processtests

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// BenchmarkImpatientQueue measures the throughput of a queue with impatient clients on three
// nodes with sockets. The number of new clients per second is three times the rate of the limit.
// Each client leaves after a part of the time that a full queue takes. An op is a client; "%rate"
// is the percentage of the rate that the queue served.
//
//	go test -run '^$' -bench ImpatientQueue -benchtime 5s ./internal/processtests
func BenchmarkImpatientQueue(b *testing.B) {
	var (
		nodes []*weir.Node
		join  []string
	)
	for range 3 {
		n, err := weir.Start(b.Context(), weir.Config{Bind: "127.0.0.1:0", Join: join, Logger: quiet})
		require.NoError(b, err)
		defer n.Close()
		nodes = append(nodes, n)
		for _, m := range n.Members() {
			if m.Self {
				join = []string{m.Addr}
			}
		}
	}
	require.Eventually(b, func() bool {
		for _, n := range nodes {
			if len(n.Members()) != len(nodes) || !n.Ready() {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	for _, rate := range []int64{20, 200, 1000} {
		for _, part := range []float64{0.1, 0.5} {
			b.Run(fmt.Sprintf("rate=%d/patience=%v", rate, part), func(b *testing.B) {
				var ls []*weir.Limiter
				l := weir.Limit{Name: fmt.Sprint(rate, part, b.N), Algorithm: weir.LeakyBucket, Rate: rate, Per: time.Second, Burst: rate / 2}
				for _, n := range nodes {
					one, err := n.Limiter(l)
					require.NoError(b, err)
					ls = append(ls, one)
				}
				var (
					clients sync.WaitGroup
					served  atomic.Int64
				)
				every := time.NewTicker(time.Second / time.Duration(3*rate))
				defer every.Stop()
				began := time.Now()
				for i := range b.N {
					clients.Go(func() {
						ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
						defer cancel()
						defer time.AfterFunc(time.Duration(part*float64(time.Second)/2), cancel).Stop()
						if ls[i%len(ls)].Wait(ctx, "key", 1) == nil {
							served.Add(1)
						}
					})
					<-every.C
				}
				took := time.Since(began)
				within := served.Load()
				clients.Wait()
				b.ReportMetric(100*float64(within)/(float64(rate)*took.Seconds()), "%rate")
			})
		}
	}
}

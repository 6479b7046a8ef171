package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

const (
	togetherRate   = 3000 // calls per second
	togetherKeys   = 1000 // keys of each limit
	togetherTurn   = 250 * time.Millisecond
	togetherRounds = 20
	togetherWarmUp = 3 * time.Second // owners create the keys of their load first
)

// BenchmarkAllowAll checks a key of each of several limits, with one AllowAll or with as
// many concurrent single checks. Each key has another process as its owner. The two ways
// take turns. The latency of single checks is that of the slowest check. In the busy
// runs, the owners also work.
func BenchmarkAllowAll(b *testing.B) {
	for _, load := range []struct {
		name string
		BusyLoad
	}{{"idle", BusyLoad{}}, {"busy", BusyLoad{Goroutines: 32, Work: 200 * time.Microsecond, Rest: 20 * time.Millisecond}}} {
		for _, limits := range []int{2, 3, 4} {
			b.Run(fmt.Sprintf("%s/%d", load.name, limits), func(b *testing.B) {
				for range b.N {
					playTogether(b, limits, load.BusyLoad)
				}
			})
		}
	}
}

func playTogether(b *testing.B, limits int, load BusyLoad) {
	owners, addrs := startMembers(b, limits, MemberConfig{Rate: busyRate})
	defer func() { require.NoError(b, endAll(owners)) }()
	asker, err := weir.Start(context.Background(), weir.Config{
		Name: "asker", Bind: "127.0.0.1:0", Join: addrs, Timeout: patience, Logger: quiet(),
	})
	require.NoError(b, err)
	defer asker.Close()
	require.NoError(b, awaitMembers(asker, limits+1, memberWait))
	asks := make([][]weir.Ask, togetherKeys)
	for i := range limits {
		l, err := asker.Limiter(weir.Limit{Name: fmt.Sprint("limit ", i), Rate: 1_000_000_000, Per: time.Hour, NoLeases: true})
		require.NoError(b, err)
		require.NoError(b, awaitAuthority(l, memberWait))
		owner := ""
		keys := worker.KeysThat(togetherKeys, func(key string) bool {
			o := l.Owner(key)
			if o.Self || slices.ContainsFunc(asks[0], func(a weir.Ask) bool { return a.Limiter.Owner(a.Key).Name == o.Name }) {
				return false
			}
			if owner == "" {
				owner = o.Name
			}
			return o.Name == owner
		})
		for k := range asks {
			asks[k] = append(asks[k], weir.Ask{Limiter: l, Key: keys[k]})
		}
	}
	for _, o := range owners {
		require.NoError(b, o.Call("Member.Begin", load, new(int)))
	}
	time.Sleep(togetherWarmUp)
	var together, single []time.Duration
	for range togetherRounds {
		together = append(together, pace(func(i int) bool {
			d, err := asker.AllowAll(context.Background(), asks[i%togetherKeys]...)
			return err == nil && d.Allowed()
		})...)
		single = append(single, pace(func(i int) bool { return allowEach(asks[i%togetherKeys]) })...)
	}
	for _, o := range owners {
		require.NoError(b, o.Call("Member.Stop", 0, new(int)))
	}
	b.ReportMetric(0, "ns/op")
	for name, took := range map[string][]time.Duration{"all": together, "single": single} {
		slices.Sort(took)
		b.ReportMetric(milliseconds(took[len(took)/2]), name+"-p50-ms")
		b.ReportMetric(milliseconds(took[len(took)*99/100]), name+"-p99-ms")
	}
	b.ReportMetric(float64(together[len(together)*99/100])/float64(single[len(single)*99/100]), "p99-ratio")
}

// allowEach makes concurrent single checks, and reports whether all were allowed.
func allowEach(asks []weir.Ask) bool {
	allowed := make([]bool, len(asks))
	check := func(i int) {
		d, err := asks[i].Limiter.Allow(context.Background(), asks[i].Key)
		allowed[i] = err == nil && d.Allowed
	}
	var others sync.WaitGroup
	for i := range asks[1:] {
		others.Go(func() { check(i + 1) })
	}
	check(0)
	others.Wait()
	return !slices.Contains(allowed, false)
}

// pace calls do at togetherRate, each time in a separate goroutine, for togetherTurn. It
// returns the durations of the successful calls.
func pace(do func(i int) bool) (all []time.Duration) {
	var (
		mu    sync.Mutex
		calls sync.WaitGroup
	)
	begun := time.Now()
	for i, over := 0, false; !over; over = time.Since(begun) >= togetherTurn {
		for due := int(time.Since(begun) * togetherRate / time.Second); i < due; i++ {
			calls.Go(func() {
				from := time.Now()
				ok := do(i)
				took := time.Since(from)
				mu.Lock()
				defer mu.Unlock()
				if ok {
					all = append(all, took)
				}
			})
		}
		time.Sleep(time.Millisecond)
	}
	calls.Wait()
	return all
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
)

// redisQuota admits all that is asked; the counts are floats in Lua.
var redisQuota = worker.Quota{Units: 1_000_000, Interval: 3600 * time.Millisecond}

// networkRivals are the contenders that keep their counts in Redis.
func networkRivals() []contender {
	return slices.DeleteFunc(contenders(), func(c contender) bool { return c.remote == nil })
}

// oneRedis is the server of all tests and benchmarks of this process, which TestMain ends. It
// has an error in its place where none could be started.
var oneRedis struct {
	once   sync.Once
	server *redisServer
	err    error
}

// sharedRedis returns that server, emptied, or nil if none is installed. Those that use it do not
// run side by side, because each empties it.
func sharedRedis(tb testing.TB) *redisServer {
	oneRedis.once.Do(func() { oneRedis.server, oneRedis.err = startRedis() })
	if errors.Is(oneRedis.err, errNoRedis) {
		return nil
	}
	require.NoError(tb, oneRedis.err)
	require.NoError(tb, oneRedis.server.flush())
	return oneRedis.server
}

// newNetworkRival returns the rival's limiter on the shared server.
func newNetworkRival(tb testing.TB, c contender) *worker.Instance {
	s := sharedRedis(tb)
	if s == nil {
		tb.Skip("redis-server is not installed: there is nothing to compare with")
	}
	i, err := c.remote(redisQuota, s.addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, i.Close()) })
	return i
}

// BenchmarkRedis is a check of a limiter that keeps its counts in a Redis on
// this machine, beside one of Weir's that is forwarded to another process.
func BenchmarkRedis(b *testing.B) {
	for _, r := range networkRivals() {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("limiter=%s/callers=%d", r.name, callers), func(b *testing.B) {
				allow := newNetworkRival(b, r).Allow
				checks := newForwarded(b, callers)
				next := make([]caller, callers)
				medians := race(b, callers, checks.ask, func(i int) error {
					c := &next[i]
					c.next++
					if allow(checks.keys[(i*len(checks.keys)/callers+c.next)%len(checks.keys)])&worker.Admitted == 0 {
						return errors.New("a check failed, or was denied: the limit is meant to admit all")
					}
					return nil
				})
				medians[1].report(b, "", "checks/s")
				medians[0].report(b, "weir-", "weir/s")
				b.ReportMetric(medians[0].perSecond/medians[1].perSecond, "weir-ratio")
				checks.reportStrays(b)
			})
		}
	}
}

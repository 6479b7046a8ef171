package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// redisBurst is what a key may spend at once; the counts are floats in Lua.
const redisBurst = 1_000_000

// networkRivals are limiters that keep their counts in Redis.
var networkRivals = []struct {
	name string
	make func(tb testing.TB, addr string) func(key string) (bool, error)
}{
	{"redis_rate", newRedisRate},
	{"rueidis-lua", newRueidis},
}

// BenchmarkRedis is a check of a limiter that keeps its counts in a Redis on
// this machine, beside one of Weir's that is forwarded to another process.
func BenchmarkRedis(b *testing.B) {
	for _, r := range networkRivals {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("limiter=%s/callers=%d", r.name, callers), func(b *testing.B) {
				allow := r.make(b, startRedis(b))
				checks := newForwarded(b, callers)
				next := make([]caller, callers)
				medians := race(b, callers, checks.ask, func(i int) error {
					c := &next[i]
					c.next++
					ok, err := allow(checks.keys[(i*len(checks.keys)/callers+c.next)%len(checks.keys)])
					if err == nil && !ok {
						err = errors.New("a check was denied: the limit is meant to admit all")
					}
					return err
				})
				medians[1].report(b, "", "checks/s")
				medians[0].report(b, "weir-", "weir/s")
				b.ReportMetric(medians[0].perSecond/medians[1].perSecond, "weir-ratio")
				checks.reportStrays(b)
			})
		}
	}
}

func newRedisRate(tb testing.TB, addr string) func(string) (bool, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { client.Close() })
	l := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: hourlyRate, Burst: redisBurst, Period: time.Hour}
	return func(key string) (bool, error) {
		r, err := l.Allow(context.Background(), key, limit)
		return err == nil && r.Allowed > 0, err
	}
}

// gcra is the generic cell rate algorithm: the count is the time at which it is
// empty, in microseconds. It answers 1 or 0, and what the caller needs to say
// when to come back.
const gcra = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local empty = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval
if empty - now > interval * burst then
	return {0, empty - now - interval * burst}
end
redis.call('SET', KEYS[1], string.format('%.0f', empty), 'PX', math.ceil((empty - now) / 1000))
return {1, empty - now}`

// newRueidis is a script over rueidis, which pipelines the callers' commands by
// itself.
func newRueidis(tb testing.TB, addr string) func(string) (bool, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	script := rueidis.NewLuaScript(gcra)
	interval := strconv.FormatInt((time.Hour / hourlyRate).Microseconds(), 10)
	args := []string{interval, strconv.Itoa(redisBurst)}
	return func(key string) (bool, error) {
		answer, err := script.Exec(context.Background(), client, []string{key}, args).AsIntSlice()
		return err == nil && len(answer) == 2 && answer[0] == 1, err
	}
}

// startRedis starts a server that saves nothing, on a free port of loopback.
func startRedis(tb testing.TB) (addr string) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Skip("redis-server is not installed: there is nothing to compare with")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	addr = listener.Addr().String()
	require.NoError(tb, listener.Close())
	_, port, err := net.SplitHostPort(addr)
	require.NoError(tb, err)
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", tb.TempDir())
	tieToParent(cmd)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	require.Eventually(tb, func() bool { return client.Ping(context.Background()).Err() == nil },
		startWait, 20*time.Millisecond, "redis-server does not answer at %s", addr)
	return addr
}

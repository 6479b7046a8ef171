package bench

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
)

// rivals are keyed limiters for one process. Each admits one unit of a key.
var rivals = []struct {
	name string
	make func(testing.TB) func(key string) bool
}{
	{"weir", newWeir},
	{"x-time-rate", newXTimeRate},
	{"go-limiter", newGoLimiter},
	{"throttled", newThrottled},
	{"ulule", newUlule},
	{"httprate", newHTTPRate},
}

// BenchmarkInProcess is a check in one process, beside what a user would pick
// instead.
func BenchmarkInProcess(b *testing.B) {
	for _, n := range []int{1, million} {
		for _, r := range rivals {
			b.Run(fmt.Sprintf("keys=%d/limiter=%s", n, r.name), func(b *testing.B) {
				benchmarkKeys(b, keysThat(n, anyKey), r.make(b))
			})
		}
	}
}

// newWeir is a node of its own, as a user of one process has it.
func newWeir(tb testing.TB) func(string) bool {
	n, err := weir.Start(context.Background(), weir.Config{MaxKeys: 2 * million, Logger: quiet()})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, n.Close()) })
	l, err := n.Limiter(limitOf("token_bucket"))
	require.NoError(tb, err)
	return func(key string) bool {
		d, err := l.Allow(context.Background(), key)
		return err == nil && d.Allowed
	}
}

// newXTimeRate is golang.org/x/time/rate, which has no keys, in maps with a lock
// each. It never forgets a key.
func newXTimeRate(testing.TB) func(string) bool {
	type shard struct {
		sync.Mutex
		limiters map[string]*rate.Limiter
	}
	shards := make([]shard, 256)
	for i := range shards {
		shards[i].limiters = make(map[string]*rate.Limiter)
	}
	seed := maphash.MakeSeed()
	return func(key string) bool {
		s := &shards[maphash.String(seed, key)%uint64(len(shards))]
		s.Lock()
		l := s.limiters[key]
		if l == nil {
			l = rate.NewLimiter(rate.Limit(hourlyRate/time.Hour.Seconds()), burst)
			s.limiters[key] = l
		}
		s.Unlock()
		return l.Allow()
	}
}

func newGoLimiter(tb testing.TB) func(string) bool {
	store, err := memorystore.New(&memorystore.Config{Tokens: perWindow, Interval: window})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close(context.Background())) })
	return func(key string) bool {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return err == nil && ok
	}
}

func newThrottled(tb testing.TB) func(string) bool {
	store, err := memstore.NewCtx(0) // no bound, and no list of the least recently used
	require.NoError(tb, err)
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(hourlyRate), MaxBurst: burst})
	require.NoError(tb, err)
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return err == nil && !limited
	}
}

func newUlule(testing.TB) func(string) bool {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: window, Limit: perWindow})
	return func(key string) bool {
		c, err := l.Get(context.Background(), key)
		return err == nil && !c.Reached
	}
}

// newHTTPRate is the counter of go-chi/httprate, used as its middleware does.
func newHTTPRate(testing.TB) func(string) bool {
	counter := httprate.NewLocalLimitCounter(window)
	return func(key string) bool {
		now := time.Now().UTC()
		current := now.Truncate(window)
		used, before, err := counter.Get(key, current, current.Add(-window))
		if err != nil {
			return false
		}
		left := float64(window-now.Sub(current)) / float64(window)
		if float64(used)+float64(before)*left >= perWindow {
			return false
		}
		return counter.IncrementBy(key, current, 1) == nil
	}
}

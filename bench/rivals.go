package main

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// quota is a limit in the words of all contenders: a bucket holds so many units and
// regains one in each interval, and a window grants them in as long as that takes for
// all of them.
type quota struct {
	units    int64
	interval time.Duration
}

func (q quota) window() time.Duration { return time.Duration(q.units) * q.interval }

// outcome is what became of a check, in bits.
type outcome uint8

const (
	admitted outcome = 1 << iota
	here             // decided with authority, now or before, without asking another process
	stray            // nobody with authority decided: a stand-in, or a share
	failed           // an error
)

// decided is the outcome of a check in the process that has the count.
func decided(ok bool, err error) outcome {
	switch {
	case err != nil:
		return here | failed
	case ok:
		return here | admitted
	}
	return here
}

// instance is one limiter of a contender, in one process.
type instance struct {
	allow func(key string) outcome // one unit
	close func() error
}

func nothing() error { return nil }

// newXTimeRate is golang.org/x/time/rate, which has no keys, in maps with a lock
// each. It never forgets a key.
func newXTimeRate(q quota) (*instance, error) {
	type shard struct {
		sync.Mutex
		limiters map[string]*rate.Limiter
	}
	shards := make([]shard, 256)
	for i := range shards {
		shards[i].limiters = make(map[string]*rate.Limiter)
	}
	seed := maphash.MakeSeed()
	return &instance{func(key string) outcome {
		s := &shards[maphash.String(seed, key)%uint64(len(shards))]
		s.Lock()
		l := s.limiters[key]
		if l == nil {
			l = rate.NewLimiter(rate.Every(q.interval), int(q.units))
			s.limiters[key] = l
		}
		s.Unlock()
		return decided(l.Allow(), nil)
	}, nothing}, nil
}

// newGoLimiter is sethvargo/go-limiter in memory. It looks every six hours for keys to
// forget.
func newGoLimiter(q quota) (*instance, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.units), Interval: q.window()})
	if err != nil {
		return nil, err
	}
	return &instance{func(key string) outcome {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return decided(ok, err)
	}, func() error { return store.Close(context.Background()) }}, nil
}

// newThrottled is throttled with no bound, and so no list of the least recently used:
// it never forgets a key.
func newThrottled(q quota) (*instance, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(1, q.interval), MaxBurst: int(q.units) - 1,
	})
	if err != nil {
		return nil, err
	}
	return &instance{func(key string) outcome {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return decided(!limited, err)
	}, nothing}, nil
}

func newUlule(q quota) (*instance, error) {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: q.window(), Limit: q.units})
	return &instance{func(key string) outcome {
		c, err := l.Get(context.Background(), key)
		return decided(!c.Reached, err)
	}, nothing}, nil
}

// newHTTPRate is the counter of go-chi/httprate, used as its middleware does: with one
// lock for all keys from the look until the increment, without the headers.
func newHTTPRate(q quota) (*instance, error) {
	window := q.window()
	counter := httprate.NewLocalLimitCounter(window)
	begun := time.Now().UTC() // its windows begin when it does
	var mu sync.Mutex
	return &instance{func(key string) outcome {
		now := time.Now().UTC()
		current := begun.Add(now.Sub(begun).Truncate(window))
		mu.Lock()
		defer mu.Unlock()
		used, before, err := counter.Get(key, current, current.Add(-window))
		if err != nil {
			return decided(false, err)
		}
		left := float64(window-now.Sub(current)) / float64(window)
		if float64(used)+float64(before)*left+1 > float64(q.units) {
			return decided(false, nil)
		}
		return decided(true, counter.IncrementBy(key, current, 1))
	}, nothing}, nil
}

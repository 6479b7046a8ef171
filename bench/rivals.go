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

	"github.com/weir-go/weir/bench/internal/worker"
)

func nothing() error { return nil }

// newXTimeRate is golang.org/x/time/rate, which has no keys, in maps with a lock
// each. It never forgets a key.
func newXTimeRate(q worker.Quota) (*worker.Instance, error) {
	type shard struct {
		sync.Mutex
		limiters map[string]*rate.Limiter
	}
	shards := make([]shard, 256)
	for i := range shards {
		shards[i].limiters = make(map[string]*rate.Limiter)
	}
	seed := maphash.MakeSeed()
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		s := &shards[maphash.String(seed, key)%uint64(len(shards))]
		s.Lock()
		l := s.limiters[key]
		if l == nil {
			l = rate.NewLimiter(rate.Every(q.Interval), int(q.Units))
			s.limiters[key] = l
		}
		s.Unlock()
		return worker.Decided(l.Allow(), nil)
	}, Close: nothing}, nil
}

// newGoLimiter is sethvargo/go-limiter in memory. It looks every six hours for keys to
// forget.
func newGoLimiter(q worker.Quota) (*worker.Instance, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Units), Interval: q.Window()})
	if err != nil {
		return nil, err
	}
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return worker.Decided(ok, err)
	}, Close: func() error { return store.Close(context.Background()) }}, nil
}

// newThrottled is throttled with no bound, and so no list of the least recently used:
// it never forgets a key.
func newThrottled(q worker.Quota) (*worker.Instance, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(1, q.Interval), MaxBurst: int(q.Units) - 1,
	})
	if err != nil {
		return nil, err
	}
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return worker.Decided(!limited, err)
	}, Close: nothing}, nil
}

func newUlule(q worker.Quota) (*worker.Instance, error) {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: q.Window(), Limit: q.Units})
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		c, err := l.Get(context.Background(), key)
		return worker.Decided(!c.Reached, err)
	}, Close: nothing}, nil
}

// newHTTPRate is the counter of go-chi/httprate, used as its middleware does: with one
// lock for all keys from the look until the increment, without the headers.
func newHTTPRate(q worker.Quota) (*worker.Instance, error) {
	window := q.Window()
	counter := httprate.NewLocalLimitCounter(window)
	begun := time.Now().UTC() // its windows begin when it does
	var mu sync.Mutex
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		now := time.Now().UTC()
		current := begun.Add(now.Sub(begun).Truncate(window))
		mu.Lock()
		defer mu.Unlock()
		used, before, err := counter.Get(key, current, current.Add(-window))
		if err != nil {
			return worker.Decided(false, err)
		}
		left := float64(window-now.Sub(current)) / float64(window)
		if float64(used)+float64(before)*left+1 > float64(q.Units) {
			return worker.Decided(false, nil)
		}
		return worker.Decided(true, counter.IncrementBy(key, current, 1))
	}, Close: nothing}, nil
}

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// rivals are Weir on a node of its own, and the contenders of one process.
func rivals() []rival {
	all := []rival{{"weir", newWeir}}
	for _, c := range contenders() {
		if c.local != nil {
			all = append(all, rival{c.name, c.local})
		}
	}
	return all
}

type rival struct {
	name string
	make func(worker.Quota) (*worker.Instance, error)
}

// new is the rival's limiter for a test or benchmark.
func (r rival) new(tb testing.TB, q worker.Quota) *worker.Instance {
	i, err := r.make(q)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, i.Close()) })
	return i
}

// BenchmarkInProcess is a check in one process, beside what a user would pick
// instead.
func BenchmarkInProcess(b *testing.B) {
	for _, name := range []string{"hot", "uniform"} {
		_, w, err := find("weir-owned", bucketed, name, 1)
		require.NoError(b, err)
		for _, r := range rivals() {
			b.Run(fmt.Sprintf("keys=%d/limiter=%s", w.Keys, r.name), func(b *testing.B) {
				allow := r.new(b, w.Quota).Allow
				benchmarkKeys(b, worker.KeysThat(w.Keys, worker.AnyKey), func(key string) bool { return allow(key)&worker.Admitted != 0 })
			})
		}
	}
}

// newWeir is a node of its own, as a user of one process has it.
func newWeir(q worker.Quota) (*worker.Instance, error) {
	n, err := weir.Start(context.Background(), weir.Config{MaxKeys: 2 * worker.Million, Logger: quiet()})
	if err != nil {
		return nil, err
	}
	l, err := n.Limiter(contender{algorithm: bucketed}.limit(q))
	if err != nil {
		return nil, err
	}
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		return decidedByWeir(l.Allow(context.Background(), key))
	}, Close: n.Close}, nil
}

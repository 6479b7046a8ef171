package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
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
	make func(quota) (*instance, error)
}

// new is the rival's limiter for a test or benchmark.
func (r rival) new(tb testing.TB, q quota) *instance {
	i, err := r.make(q)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, i.close()) })
	return i
}

// BenchmarkInProcess is a check in one process, beside what a user would pick
// instead.
func BenchmarkInProcess(b *testing.B) {
	for _, name := range []string{"hot", "uniform"} {
		_, w, err := find("weir-owned", bucketed, name, 1)
		require.NoError(b, err)
		for _, r := range rivals() {
			b.Run(fmt.Sprintf("keys=%d/limiter=%s", w.keys, r.name), func(b *testing.B) {
				allow := r.new(b, w.quota).allow
				benchmarkKeys(b, keysThat(w.keys, anyKey), func(key string) bool { return allow(key)&admitted != 0 })
			})
		}
	}
}

// newWeir is a node of its own, as a user of one process has it.
func newWeir(q quota) (*instance, error) {
	n, err := weir.Start(context.Background(), weir.Config{MaxKeys: 2 * million, Logger: quiet()})
	if err != nil {
		return nil, err
	}
	l, err := n.Limiter(contender{algorithm: bucketed}.limit(q))
	if err != nil {
		return nil, err
	}
	return &instance{func(key string) outcome {
		return decidedByWeir(l.Allow(context.Background(), key))
	}, n.Close}, nil
}

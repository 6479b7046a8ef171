package rules

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoopRestsUntilWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l := make(loop, 1)
		var calls, next atomic.Int64
		next.Store(int64(time.Minute))
		go l.run(ctx, time.Second, func(context.Context) time.Duration {
			calls.Add(1)
			return time.Duration(next.Load())
		})
		expect := func(want int64, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			require.Equal(t, want, calls.Load())
		}
		l.wake(false)
		expect(0, time.Hour)
		l.wake(true)
		expect(1, time.Second)
		expect(3, 2*time.Minute)
		next.Store(0)
		expect(4, time.Hour)
		l.wake(true)
		expect(5, time.Hour)
		stop()
	})
}

func TestHotKeySearchRequiresRaise(t *testing.T) {
	for text, want := range map[string]int{"": 0, ", raise: {}": 1} {
		var shared sharedValues
		now := time.Now()
		b := newSharedBook(t, &shared, &now, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1s}"+text+"}]")
		require.Len(t, b.raising, want)
		require.Equal(t, time.Duration(want)*seekEvery, b.seekHotKeys(t.Context()))
	}
}

package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bulk has the size of a frame of counts, unless many counts wait. A node sends a member only one frame
// at a time.
var bulk = make([]byte, 16<<10)

// replyToBulkAfter returns a handler that answers a request of the size of bulk after d, and other
// requests at once.
func replyToBulkAfter(d time.Duration) *testHandler {
	return handleEach(func(b *Batch, i int, r []byte) {
		if len(r) < len(bulk) {
			b.Reply(i, r)
			return
		}
		later := b.Defer(i)
		time.AfterFunc(d, func() { later(nil) })
	})
}

func TestOverdueRequestDoesNotStallAnsweringMember(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.peer(t, "b", replyToBulkAfter(3*time.Second))
		a.set([]Member{b.member()})
		synctest.Wait()
		peer := a.peer("b")
		var streaming sync.WaitGroup
		streaming.Go(func() {
			for range 5 {
				if _, err := peer.Ask(context.Background(), bulk, nil, time.Second); !errors.Is(err, ErrTimeout) {
					t.Error("an ask that b answers too late has returned", err)
				}
			}
		})
		for range 1000 {
			start := time.Now()
			_, err := peer.Ask(context.Background(), []byte("check"), nil, 50*time.Millisecond)
			require.NoError(t, err)
			require.Zero(t, time.Since(start), "a check waits for no other request")
			time.Sleep(7 * time.Millisecond)
		}
		streaming.Wait()
		synctest.Wait()
		require.EqualValues(t, 1, a.changes.Load(), "b was connected once, and never disconnected")
		require.EqualValues(t, 5, a.stats().Timeouts)
	})
}

func TestLateAnswerDoesNotCallAnswered(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var mu sync.Mutex
		var answered []time.Time
		a := lo.peer(t, "a", &testHandler{answered: func() {
			mu.Lock()
			defer mu.Unlock()
			answered = append(answered, time.Now())
		}})
		var slow atomic.Int64
		b := lo.peer(t, "b", replyAfter(func() time.Duration { return time.Duration(slow.Load()) }))
		a.set([]Member{b.member()})
		synctest.Wait()
		for _, c := range []struct {
			slow, wait time.Duration
			err        error
			answered   bool
		}{
			{11 * time.Millisecond, 50 * time.Millisecond, nil, true},
			{997 * time.Millisecond, 5 * time.Second, nil, true},
			{1009 * time.Millisecond, 5 * time.Second, nil, false},
			{53 * time.Millisecond, 50 * time.Millisecond, ErrTimeout, false},
		} {
			slow.Store(int64(c.slow))
			start := time.Now()
			require.ErrorIs(t, askX(a.peer("b"), c.wait), c.err)
			time.Sleep(time.Until(start.Add(c.slow)))
			synctest.Wait()
			mu.Lock()
			require.Equal(t, c.answered, slices.Contains(answered, start.Add(c.slow)), "answered after %v", c.slow)
			mu.Unlock()
			time.Sleep(2 * time.Second)
		}
		mu.Lock()
		require.Greater(t, len(answered), 20, "pongs count")
		mu.Unlock()
	})
}

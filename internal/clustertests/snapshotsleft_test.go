package clustertests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A node leaves while a snapshot is being written. The other nodes continue to count, so the
// snapshot must not replace the one that was written before the node left.
func TestLeaverReplacesNoSnapshot(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}
		s := new(shelf)
		w.start(t, "b", weir.Config{Name: "b", Snapshots: s, SnapshotEvery: time.Second})
		w.ready(t, "a", "b")
		require.Equal(t, 7, ask(t, w.limiters(t, limit), "k", 7, "b"))
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		before := s.of["b"]
		s.stall = make(chan struct{})
		s.mu.Unlock()
		require.NotEmpty(t, before)
		require.True(t, waitFor(time.Minute, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.stalled > 0
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_ = w.nodes["b"].Leave(ctx) // the error is that the snapshot was not written
		require.Len(t, w.nodes["a"].Members(), 1, "it has left")
		close(s.stall)
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		require.Equal(t, before, s.of["b"])
		s.mu.Unlock()
	})
}

package clustertests

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// stuck is a store that can be made to wait before it writes a snapshot.
type stuck struct {
	*shelf
	on      atomic.Bool
	writing atomic.Int32
	freed   chan struct{}
}

func (s *stuck) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	return s.shelf.Save(ctx, node, func(w io.Writer) error {
		if s.on.Load() {
			s.writing.Add(1)
			<-s.freed
		}
		return write(w)
	})
}

// A node leaves while a snapshot is being written. The other nodes continue to count, so the
// snapshot must not replace the one that was written before the node left.
func TestNodeThatHasLeftReplacesNoSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}
		s := &stuck{shelf: new(shelf), freed: make(chan struct{})}
		w := newWorld(t, 1, false)
		w.start(t, "b", weir.Config{Name: "b", Snapshots: s, SnapshotEvery: time.Second})
		w.ready(t, "a", "b")
		require.Equal(t, 7, ask(t, w.limiters(t, limit), "k", 7, "b"))
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		before := s.of["b"]
		s.mu.Unlock()
		require.NotEmpty(t, before)
		s.on.Store(true)
		for s.writing.Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_ = w.nodes["b"].Leave(ctx) // the error is that the snapshot was not written
		require.Len(t, w.nodes["a"].Members(), 1, "it has left")
		s.on.Store(false)
		close(s.freed)
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		require.Equal(t, before, s.of["b"])
		s.mu.Unlock()
		w.close(t)
	})
}

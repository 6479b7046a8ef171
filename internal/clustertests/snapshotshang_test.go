package clustertests

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// hung is a store whose Load does not return until the channel end is closed.
type hung struct {
	shelf
	end chan struct{}
}

func (h *hung) Load(context.Context, func(string) bool, func(string, io.Reader) error) error {
	<-h.end
	return nil
}

func TestHungDiskDelaysNothing(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, l *weir.Limiter) {
		t.Helper()
		began := time.Now()
		d := allowed(t, l, "k", 1)
		require.True(t, d.Allowed)
		require.Zero(t, time.Since(began))
	}
	bounded := func(t *testing.T, most time.Duration, what string, f func()) {
		t.Helper()
		began := time.Now()
		f()
		require.LessOrEqual(t, time.Since(began), most, what)
	}
	stalled := func(t *testing.T) *shelf {
		h := &shelf{stall: make(chan struct{})}
		t.Cleanup(func() { close(h.stall) })
		return h
	}
	limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: 24 * time.Hour}
	launch := func(t *testing.T, ctx context.Context, cfg weir.Config) (*weir.Node, *weir.Limiter) {
		cfg.Name, cfg.Logger = "a", quiet
		n, err := weir.Start(ctx, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close() })
		l, err := n.Limiter(limit)
		require.NoError(t, err)
		return n, l
	}
	for name, test := range map[string]func(t *testing.T){
		"loading": func(t *testing.T) {
			h := &hung{end: make(chan struct{})}
			defer close(h.end)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var n *weir.Node
			var l *weir.Limiter
			bounded(t, 3*time.Second, "Start", func() { n, l = launch(t, ctx, weir.Config{Snapshots: h}) })
			check(t, l)
			require.True(t, n.Stats().Snapshots.Loading)
			require.False(t, n.Ready())
			time.Sleep(11 * time.Minute)
			check(t, l)
			require.False(t, n.Stats().Snapshots.Loading)
			require.True(t, n.Ready(), "the node serves without the snapshot that it cannot read")
			bounded(t, 2*time.Second, "Close", func() { require.NoError(t, n.Close()) })
		},
		"writing": func(t *testing.T) {
			h := stalled(t)
			n, l := launch(t, t.Context(), weir.Config{Snapshots: h})
			for range 25 {
				time.Sleep(time.Minute)
				check(t, l)
			}
			s := n.Stats().Snapshots
			require.NotZero(t, s.Failures)
			require.Zero(t, s.Saved)
			require.NotEmpty(t, s.Error)
			bounded(t, 2*time.Second, "Close", func() { require.NoError(t, n.Close()) })
		},
		"leaving": func(t *testing.T) {
			h := stalled(t)
			w := newWorld(t, 1, true)
			b := w.start(t, "b", weir.Config{Name: "b", Snapshots: h})
			w.ready(t, "a", "b")
			require.Equal(t, 5, ask(t, w.limiters(t, limit), "k", 5, "b"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			bounded(t, 10*time.Second, "Leave", func() { require.ErrorContains(t, b.Leave(ctx), "writing a snapshot") })
			require.True(t, waitFor(5*time.Second, func() bool { return len(w.nodes["a"].Members()) == 1 }), "the leaver has announced its leave")
			require.Equal(t, uint64(1), b.Stats().Snapshots.Failures)
			bounded(t, 2*time.Second, "Close", func() { require.NoError(t, b.Close()) })
		},
		"leaving without a deadline": func(t *testing.T) {
			h := stalled(t)
			n, l := launch(t, t.Context(), weir.Config{Snapshots: h})
			check(t, l)
			bounded(t, 62*time.Second, "Leave", func() {
				require.ErrorContains(t, n.Leave(context.WithoutCancel(t.Context())), "the snapshot store did not return: the store accepted no data for 1m0s")
			})
		},
		"leaving slowly without a deadline": func(t *testing.T) {
			slow := &slowSave{each: 40 * time.Second}
			n, l := launch(t, t.Context(), weir.Config{Snapshots: slow})
			check(t, l)
			began := time.Now()
			require.NoError(t, n.Leave(context.WithoutCancel(t.Context())))
			require.Greater(t, time.Since(began), 2*time.Minute-time.Second, "writing continues as long as the store accepts data")
			time.Sleep(10 * time.Minute) // no snapshot is written after the node has left
			require.Equal(t, uint64(1), n.Stats().Snapshots.Saved)
			require.Zero(t, n.Stats().Snapshots.Failures)
			require.NoError(t, n.Close())

			_, l = launch(t, t.Context(), weir.Config{Snapshots: &slow.shelf})
			require.EqualValues(t, limit.Rate-1, remaining(t, l, "k"))
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

// slowSave is a store that waits before each write.
type slowSave struct {
	shelf
	each time.Duration
}

func (s *slowSave) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	return s.shelf.Save(ctx, node, func(w io.Writer) error { return write(slowWriter{w, s.each}) })
}

type slowWriter struct {
	io.Writer
	each time.Duration
}

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.each)
	return w.Writer.Write(p)
}

// A node leaves while a snapshot is being written. The other nodes continue to count, so the
// snapshot must not replace the snapshot that was written before the node left.
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
		_ = w.nodes["b"].Leave(ctx) // the error states that the last snapshot was not written
		require.Len(t, w.nodes["a"].Members(), 1, "the other node has left")
		close(s.stall)
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		require.Equal(t, before, s.of["b"])
		s.mu.Unlock()
	})
}

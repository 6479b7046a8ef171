package clustertests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// shelf keeps snapshots in memory.
type shelf struct {
	shared bool // all nodes share the snapshots

	mu   sync.Mutex
	of   map[string][][]byte // keyed by node, the newest last
	fail error               // the error that Save returns, if not nil
	slow time.Duration       // the time that Save takes
	lost error               // an error that Load returns in addition, if not nil

	stall   chan struct{} // if not nil, Save waits until the channel is closed
	stalled int           // calls of Save that wait, or have waited
}

func (s *shelf) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	s.mu.Lock()
	stall := s.stall
	if stall != nil {
		s.stalled++
	}
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	s.mu.Lock()
	slow, fail := s.slow, s.fail
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if fail != nil {
		return fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string][][]byte)
	}
	all := append(s.of[node], b.Bytes())
	s.of[node] = all[max(0, len(all)-2):]
	return nil
}

func (s *shelf) Load(_ context.Context, mine func(string) bool, read func(string, io.Reader) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.lost}
	for node, all := range s.of {
		if s.shared && !mine(node) {
			continue
		}
		for i := len(all) - 1; i >= 0; i-- {
			err := read(node, bytes.NewReader(all[i]))
			if err == nil {
				break
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// startOn starts nodes at the same time. Each node has the store of snapshots that is given for
// its name.
func (w *world) startOn(t *testing.T, cfg weir.Config, shelves map[string]*shelf) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for name := range shelves {
		w.network.Host(name)
		w.names = append(w.names, name)
	}
	for name, s := range shelves {
		all.Go(func() {
			c := cfg
			c.Name, c.Snapshots = name, s
			n, err := w.launch(t, name, c)
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err)
			w.nodes[name] = n
		})
	}
	all.Wait()
}

// leaveAll makes all nodes leave at the same time.
func (w *world) leaveAll(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, n := range w.nodes {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			assert.NoError(t, n.Leave(ctx), "leaving")
			n.Close()
		})
	}
	all.Wait()
}

// nextWorld starts new nodes, which load the snapshots that earlier nodes have written to the
// same stores.
func nextWorld(t *testing.T, cfg weir.Config, shelves map[string]*shelf) *world {
	t.Helper()
	w := newWorld(t, 0, false)
	w.startOn(t, cfg, shelves)
	w.ready(t, w.names...)
	return w
}

func TestCountsOutliveOrderlyStopOfAllNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var limits []weir.Limit
		for _, algorithm := range algorithms {
			limits = append(limits, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 10, Per: 24 * time.Hour})
		}
		a, b, c := new(shelf), new(shelf), new(shelf)
		w := nextWorld(t, weir.Config{}, map[string]*shelf{"a": a, "b": b, "c": c})
		keys := []string{"k1", "k2", "k3", "k4", "k5"}
		notKept := func(l weir.Limit) map[string]*weir.Limiter {
			l.Name, l.Durable = "not kept, "+l.Name, weir.NotDurable
			return w.limiters(t, l)
		}
		for _, l := range limits {
			ls, others := w.limiters(t, l), notKept(l)
			for _, key := range keys {
				require.Equal(t, 7, ask(t, ls, key, 7, "a"))
				require.Equal(t, 7, ask(t, others, key, 7, "b"))
			}
			require.Equal(t, 10, ask(t, ls, "was reset", 10, "a"))
			require.NoError(t, ls["b"].Reset(t.Context(), "was reset"))
		}
		require.NoError(t, w.nodes["b"].Publish("override", 1, []byte("until Friday")))
		w.leaveAll(t)

		w = nextWorld(t, weir.Config{}, map[string]*shelf{"d": b, "e": c, "f": a})
		for _, l := range limits {
			ls, others := w.limiters(t, l), notKept(l)
			for _, key := range keys {
				require.Equal(t, 3, ask(t, ls, key, 5, "d", "e", "f"), "the units that were left before the stop")
				require.Equal(t, 10, ask(t, others, key, 5, "d", "e", "f"), "a limit that is not durable begins again")
			}
			require.Equal(t, 10, ask(t, ls, "was reset", 5, "d", "e", "f"), "a reset stays in force")
		}
		for _, n := range w.nodes {
			values, _ := n.Published("override")
			require.Len(t, values, 1)
			require.Equal(t, "until Friday", string(values[0].Value))
		}
	})
}

// crashAll closes all nodes. None of them writes a last snapshot.
func (w *world) crashAll(t *testing.T) {
	t.Helper()
	for _, n := range w.nodes {
		require.NoError(t, n.Close())
	}
}

func TestCrashOfAllNodesKeepsSavedUnits(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit := weir.Limit{Name: "kept", Algorithm: weir.SlidingWindow, Rate: 100, Per: 24 * time.Hour}
				before, after := make(map[string]*shelf), make(map[string]*shelf)
				var names []string
				for i := range nodes {
					s := new(shelf)
					before[fmt.Sprintf("old%d", i)], after[fmt.Sprintf("new%d", nodes-i)] = s, s
					names = append(names, fmt.Sprintf("new%d", nodes-i))
				}
				w := nextWorld(t, weir.Config{}, before)
				ls := w.limiters(t, limit)
				keys := []string{"k1", "k2", "k3", "k4", "k5", "k6", "k7"}
				requireAdmits(t, 60, ls, keys, 60, "old0")
				time.Sleep(2 * time.Minute) // all nodes have written a snapshot
				requireAdmits(t, 7, ls, keys, 7, "old0")
				w.crashAll(t)
				w = nextWorld(t, weir.Config{}, after)
				ls = w.limiters(t, limit)
				for _, key := range keys {
					require.Equal(t, 40, ask(t, ls, key, 100, names...), "only the units that the snapshots lack are admitted again")
				}
			})
		})
	}
}

// A window that has not ended is continued, and a window that has ended is not.
func TestUnitsRecoverWhileNoNodeRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := new(shelf)
		w := nextWorld(t, weir.Config{}, map[string]*shelf{"a": s})
		day := weir.Limit{Name: "day", Algorithm: weir.FixedWindow, Calendar: weir.Day, Rate: 10}
		hour := weir.Limit{Name: "hour", Algorithm: weir.SlidingLog, Rate: 10, Per: time.Hour}
		bucket := weir.Limit{Name: "bucket", Algorithm: weir.TokenBucket, Rate: 24, Per: 24 * time.Hour}
		for _, l := range []weir.Limit{day, hour, bucket} {
			require.Equal(t, int(l.Rate), ask(t, w.limiters(t, l), "k", int(l.Rate), "a"))
		}
		w.leaveAll(t)
		time.Sleep(30 * time.Minute)
		w = nextWorld(t, weir.Config{}, map[string]*shelf{"b": s})
		for _, l := range []weir.Limit{day, hour, bucket} {
			require.Zero(t, ask(t, w.limiters(t, l), "k", 1, "b"), l.Name)
		}
		w.leaveAll(t)
		time.Sleep(31 * time.Minute)
		w = nextWorld(t, weir.Config{}, map[string]*shelf{"c": s})
		for l, want := range map[*weir.Limit]int{&day: 0, &hour: 10, &bucket: 1} {
			require.Equal(t, want, ask(t, w.limiters(t, *l), "k", 20, "c"), l.Name)
		}
		w.leaveAll(t)
		time.Sleep(24 * time.Hour)
		w = nextWorld(t, weir.Config{}, map[string]*shelf{"d": s})
		require.Equal(t, 10, ask(t, w.limiters(t, day), "k", 20, "d"), "another day")
	})
}

// A node starts with the old snapshot of a member that left. Meanwhile, the cluster has
// forgotten a reset that the snapshot lacks. The cluster has the current counts, so the
// node must not load the old counts.
func TestJoinerLoadsNoOldSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}
		a, b := new(shelf), new(shelf)
		w := nextWorld(t, weir.Config{}, map[string]*shelf{"a": a, "b": b})
		ls := w.limiters(t, limit)
		require.Equal(t, 10, ask(t, ls, "k", 10, "a"))
		time.Sleep(2 * time.Minute)
		w.leave(t, "b")
		require.NoError(t, ls["a"].Reset(t.Context(), "k"))
		time.Sleep(25 * time.Minute) // until the tombstone is forgotten
		require.Equal(t, 4, ask(t, ls, "k", 4, "a"))
		w.startOn(t, weir.Config{}, map[string]*shelf{"c": b})
		w.ready(t, "a", "c")
		ls = map[string]*weir.Limiter{"a": ls["a"]}
		require.Equal(t, 6, ask(t, ls, "k", 10, "a"), "the reset stays in force")
		require.Zero(t, w.nodes["c"].Stats().Snapshots.Loaded)
	})
}

func TestUnreadableSnapshotIsNotReplaced(t *testing.T) {
	t.Parallel()
	seed := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	for name, other := range map[string]weir.Config{
		"of another cluster":   {Seed: seed(2)},
		"of another region":    {Seed: seed(1), Secrets: [][]byte{seed(8)}, Region: "west"},
		"under another secret": {Seed: seed(1), Secrets: [][]byte{seed(9)}},
		"under no secret":      {Seed: seed(1), Secrets: nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}
				s := new(shelf)
				w := nextWorld(t, weir.Config{Seed: seed(1), Secrets: [][]byte{seed(8)}}, map[string]*shelf{"a": s})
				require.Equal(t, 10, ask(t, w.limiters(t, limit), "k", 10, "a"))
				w.leaveAll(t)
				was := s.of["a"]
				w = nextWorld(t, other, map[string]*shelf{"a": s})
				require.Equal(t, 10, ask(t, w.limiters(t, limit), "k", 10, "a"))
				time.Sleep(3 * time.Minute)
				require.NotZero(t, w.nodes["a"].Stats().Snapshots.Failures)
				require.NotEmpty(t, w.nodes["a"].Stats().Snapshots.Error)
				require.NoError(t, w.nodes["a"].Close())
				require.Equal(t, was, s.of["a"])

				// After the rotation, the old secret still opens the snapshot that was sealed
				// with it.
				w = nextWorld(t, weir.Config{Seed: seed(1), Secrets: [][]byte{seed(9), seed(8)}}, map[string]*shelf{"a": s})
				require.Zero(t, ask(t, w.limiters(t, limit), "k", 10, "a"))
			})
		})
	}
}

// A check does not wait for a store, even if the store is slow or returns an error.
func TestFailedSnapshotsAreCountedAndDelayNoCheck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &shelf{fail: errors.New("the disk is full"), slow: 30 * time.Second}
		w := nextWorld(t, weir.Config{SnapshotEvery: time.Minute}, map[string]*shelf{"a": s})
		ls := w.limiters(t, weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: 24 * time.Hour})
		for range 600 {
			began := time.Now()
			require.Equal(t, 1, ask(t, ls, "k", 1, "a"))
			require.Zero(t, time.Since(began))
			time.Sleep(time.Second)
		}
		stats := w.nodes["a"].Stats().Snapshots
		require.InDelta(t, 10, stats.Failures, 2)
		require.Contains(t, stats.Error, "the disk is full")
		require.Zero(t, stats.Saved)
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		time.Sleep(3 * time.Minute)
		stats = w.nodes["a"].Stats().Snapshots
		require.NotZero(t, stats.Saved)
		require.Empty(t, stats.Error)
		require.Less(t, stats.Age, 2*time.Minute)
	})
}

// A snapshot takes as many bytes for each count as docs/snapshots.md states.
func TestSnapshotTakes26BytesForEachCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const counts = 10_000
		s := new(shelf)
		w := nextWorld(t, weir.Config{}, map[string]*shelf{"a": s})
		ls := w.limiters(t, weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: 24 * time.Hour})
		for i := range counts {
			require.True(t, allowed(t, ls["a"], fmt.Sprint(i), 1).Allowed)
			time.Sleep(time.Millisecond) // the windows begin at different times
		}
		w.leaveAll(t)
		require.InDelta(t, 26, float64(len(s.of["a"][0]))/counts, 0.5)
	})
}

package clustertests

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// startSkewed starts nodes in turn. The clock of each node is ahead by the skew that
// is given for its name.
func startSkewed(t *testing.T, cfg weir.Config, shelves map[string]*shelf, skews map[string]time.Duration, names ...string) *world {
	t.Helper()
	w := newWorld(t, 0, false)
	for _, name := range names {
		c := cfg
		skew := skews[name]
		c.Now = func() time.Time { return time.Now().Add(skew) }
		w.startOn(t, c, map[string]*shelf{name: shelves[name]})
	}
	w.ready(t, names...)
	return w
}

// The clock of at least one node is wrong by half an hour when the node writes a
// snapshot, when the node loads a snapshot, or both times. The nodes must load all the
// counts.
func TestSnapshotsAreLoadedWithSkewedClocks(t *testing.T) {
	t.Parallel()
	const half = 30 * time.Minute
	for name, c := range map[string]struct{ before, after map[string]time.Duration }{
		"a writer is ahead":             {map[string]time.Duration{"a": half}, nil},
		"a writer is behind":            {map[string]time.Duration{"a": -half}, nil},
		"a reader is ahead":             {nil, map[string]time.Duration{"a": half}},
		"a reader is behind":            {nil, map[string]time.Duration{"a": -half}},
		"writer and reader are ahead":   {map[string]time.Duration{"a": half}, map[string]time.Duration{"a": half}},
		"writer and reader are behind":  {map[string]time.Duration{"a": -half}, map[string]time.Duration{"a": -half}},
		"one is ahead, one is behind":   {map[string]time.Duration{"a": half, "b": -half}, map[string]time.Duration{"a": -half, "c": half}},
		"the only one of all that read": {map[string]time.Duration{"a": half, "b": half, "c": half}, map[string]time.Duration{"b": -half}},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared %v", name, shared), func(t *testing.T) {
				if shared != (c.before == nil) {
					testenv.SkipUnlessFull(t, "the same clocks with the other kind of store")
				}
				inBubble(t, func(t *testing.T) {
					limit := weir.Limit{Name: "kept", Algorithm: weir.SlidingLog, Rate: 100, Per: 24 * time.Hour}
					all := &shelf{shared: true}
					shelves := map[string]*shelf{"a": all, "b": all, "c": all}
					if !shared {
						shelves = map[string]*shelf{"a": {}, "b": {}, "c": {}}
					}
					keys := []string{"k1", "k2", "k3", "k4", "k5", "k6"}
					names := []string{"a", "b", "c"}
					w := startSkewed(t, seeded, shelves, c.before, names...)
					ls := w.limiters(t, limit)
					requireAdmits(t, 100, ls, keys, 100, "a")
					time.Sleep(3 * time.Minute)
					w.crashAll(t)
					w = startSkewed(t, seeded, shelves, c.after, names...)
					ls = w.limiters(t, limit)
					requireAdmits(t, 0, ls, keys, 100, names...)
					for _, n := range w.nodes {
						require.Zero(t, n.Stats().Snapshots.Skipped)
						require.Zero(t, n.Stats().Snapshots.Refused)
					}
				})
			})
		}
	}
}

// In this test, a node stops long before the other nodes, which then make a reset and
// forget the reset. The snapshot of the node is not loaded, even if the clock of the node
// is ahead, because the other nodes know how long they ran afterwards.
func TestSnapshotOfEarlierStopIsSkipped(t *testing.T) {
	t.Parallel()
	for ahead, restarts := range map[time.Duration]int{0: 2, time.Hour: 0} { // the number of restarts of all other nodes before c returns
		t.Run(fmt.Sprint(ahead, " ahead, ", restarts, " restarts"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}
				shelves := map[string]*shelf{"a": {}, "b": {}, "c": {}}
				w := startSkewed(t, seeded, shelves, map[string]time.Duration{"c": ahead}, "a", "b", "c")
				ls := w.limiters(t, limit)
				require.Equal(t, 10, ask(t, ls, "k", 10, "c"))
				time.Sleep(2 * time.Minute) // until all nodes have written a snapshot
				require.NoError(t, w.nodes["c"].Close())
				time.Sleep(forget + time.Minute)
				delete(w.nodes, "c")
				require.NoError(t, ls["a"].Reset(t.Context(), "k"))
				time.Sleep(25 * time.Minute) // until the tombstone is forgotten
				require.Equal(t, 4, ask(t, ls, "k", 4, "a"))
				for range restarts {
					w.leaveAll(t)
					w = startSkewed(t, seeded, shelves, nil, "a", "b")
					time.Sleep(2 * time.Minute)
				}
				w.leaveAll(t)

				var log bytes.Buffer
				w = startSkewed(t, seeded, shelves, nil, "a", "b")
				cfg := seeded
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				cfg.Now = func() time.Time { return time.Now().Add(ahead) }
				w.startOn(t, cfg, map[string]*shelf{"c": shelves["c"]})
				w.ready(t, "a", "b", "c")
				require.Equal(t, 6, ask(t, w.limiters(t, limit), "k", 10, "a"), "the reset stays in force")
				require.Equal(t, 1, w.nodes["c"].Stats().Snapshots.Skipped)
				require.Contains(t, log.String(), "a snapshot was not loaded, because the cluster continued without the node that wrote it")
			})
		})
	}
}

// Two clusters use the same place for their snapshots, and the place is empty when they start. If
// both use the same name, the second cluster to write does not replace the snapshot of the first cluster.
func TestClustersSharingAPlaceReplaceNoForeignSnapshot(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprint("the same names: ", same), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 100, Per: 24 * time.Hour}
				s := &shelf{shared: true}
				var logs [2]bytes.Buffer
				start := func(i int) *world {
					cfg := weir.Config{Seed: bytes.Repeat([]byte{byte(i)}, 32), Logger: slog.New(slog.NewTextHandler(&logs[i], nil))}
					names := map[string]*shelf{"a": s, "b": s}
					if i == 1 && !same {
						names = map[string]*shelf{"c": s, "d": s}
					}
					w := newWorld(t, 0, false)
					w.startOn(t, cfg, names)
					w.ready(t, w.names...)
					return w
				}
				worlds := []*world{start(0), start(1)}
				keys := []string{"k1", "k2", "k3", "k4"}
				for _, w := range worlds {
					requireAdmits(t, 100, w.limiters(t, limit), keys, 100, w.names[0])
				}
				time.Sleep(5 * time.Minute)
				refused, foreign := 0, 0
				for _, w := range worlds {
					for _, n := range w.nodes {
						stats := n.Stats().Snapshots
						foreign += stats.Foreign
						if stats.Failures > 0 {
							refused++
							require.Contains(t, stats.Error, "another cluster or region")
						}
					}
				}
				require.Positive(t, foreign)
				require.Contains(t, logs[0].String()+logs[1].String(), "another cluster or region writes snapshots to the same place")
				if same {
					require.Equal(t, 2, refused, "one snapshot of each name")
				} else {
					require.Zero(t, refused, "no snapshot of another cluster is replaced")
				}
				for _, w := range worlds {
					w.crashAll(t)
				}
				for i := range worlds {
					w := start(i)
					for _, key := range keys {
						admitted := ask(t, w.limiters(t, limit), key, 100, w.names...)
						if !same {
							require.Zero(t, admitted, "%d %s", i, key)
						}
					}
					w.crashAll(t)
				}
			})
		})
	}
}

// One of the snapshots is some minutes older than the other, and has a reset that the other has
// forgotten. The usage after that reset must not be lost.
func TestResetInOlderSnapshotIsNotRepeated(t *testing.T) {
	t.Parallel()
	orders := [][]string{{"b", "a"}, {"c", "a", "b"}, {"a", "b"}, {"c", "b", "a"}, {"b", "c", "a"}}
	for _, order := range orders[:testenv.PickFull(t, 2, len(orders))] {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 100, Per: 24 * time.Hour}
				shelves := map[string]*shelf{"a": {}, "b": {}}
				w := startSkewed(t, seeded, shelves, nil, "a", "b")
				ls := w.limiters(t, limit)
				keys := []string{"k1", "k2", "k3", "k4"}
				for _, key := range keys {
					require.Equal(t, 50, ask(t, ls, key, 50, "a"))
					require.NoError(t, ls["a"].Reset(t.Context(), key))
					require.Equal(t, 10, ask(t, ls, key, 10, "a"))
				}
				time.Sleep(9*time.Minute + 30*time.Second)
				require.NoError(t, w.nodes["b"].Close())
				time.Sleep(7 * time.Minute)
				requireAdmits(t, 30, ls, keys, 30, "a")
				time.Sleep(90 * time.Second)
				require.NoError(t, w.nodes["a"].Close())
				shelves["c"] = &shelf{}
				w = startSkewed(t, seeded, shelves, nil, order...)
				for range 2 { // before and after the exchange of the loaded counts
					for _, key := range keys {
						require.EqualValues(t, 60, remaining(t, w.limiters(t, limit)["b"], key), key)
					}
					time.Sleep(time.Minute)
				}
				require.Zero(t, w.nodes["b"].Stats().Snapshots.Skipped)
			})
		})
	}
}

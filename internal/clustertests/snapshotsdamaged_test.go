package clustertests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// damagedKeys is the number of keys in a snapshot.
const damagedKeys = 300

var damagedLimit = weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 100, Per: 24 * time.Hour}

// aloneOn starts a node that has no other members and keeps its snapshots on s.
func aloneOn(t *testing.T, s *shelf, log io.Writer) (*weir.Node, *weir.Limiter) {
	n, err := weir.Start(t.Context(), weir.Config{Name: "a", MaxKeys: 1000, Snapshots: s, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	l, err := n.Limiter(damagedLimit)
	require.NoError(t, err)
	return n, l
}

// usedOfAll returns the number of units in use for each key.
func usedOfAll(t *testing.T, l *weir.Limiter) (used []int64) {
	for i := range damagedKeys {
		d := peek(t, l, fmt.Sprint(i))
		used = append(used, d.Limit-d.Remaining)
	}
	return used
}

// twoSnapshots returns two snapshots of a node, the newest last, and the units that were in use
// for each key at the time.
func twoSnapshots(t *testing.T) (files [][]byte, used [][]int64) {
	s := new(shelf)
	n, l := aloneOn(t, s, io.Discard)
	for round := range 2 {
		for i := range damagedKeys {
			d := allowed(t, l, fmt.Sprint(i), int64(1+i%9))
			require.True(t, d.Allowed)
		}
		require.NoError(t, n.Publish("override", uint64(1+round), []byte(fmt.Sprint("value ", round))))
		used = append(used, usedOfAll(t, l))
		for saved := n.Stats().Snapshots.Saved; n.Stats().Snapshots.Saved == saved; {
			time.Sleep(time.Second)
		}
	}
	require.NoError(t, n.Close())
	return s.of["a"], used
}

// TestFlippedOrCutFileIsRefused of internal/snapshots damages every byte.
func TestDamagedSnapshotIsReplacedByPrevious(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		files, used := twoSnapshots(t)
		require.Len(t, files, 2)
		requireRefused := func(what string, damaged []byte) {
			for kept, before := range map[*shelf][]int64{
				{of: map[string][][]byte{"a": {damaged}}}:           make([]int64, damagedKeys),
				{of: map[string][][]byte{"a": {files[0], damaged}}}: used[0],
			} {
				var log bytes.Buffer
				n, l := aloneOn(t, kept, &log)
				require.True(t, n.Ready(), what)
				require.Equal(t, 1, n.Stats().Snapshots.Refused, what)
				require.Equal(t, before, usedOfAll(t, l), what)
				values, _ := n.Published("override")
				require.Len(t, values, len(kept.of["a"])-1, what)
				require.NoError(t, n.Close())
				require.Contains(t, log.String(), "a snapshot was refused", what)
				require.Regexp(t, `error="weir: the `, log.String(), what)
			}
		}
		newest := files[1]
		for what, at := range map[string]int{"the header": 20, "the first block": 200, "the end": len(newest) - 1} {
			damaged := slices.Clone(newest)
			damaged[at] ^= 1
			requireRefused("a bit flipped in "+what, damaged)
			requireRefused("cut in "+what, newest[:at])
		}
		requireRefused("a byte longer", append(slices.Clone(newest), 0))

		n, l := aloneOn(t, &shelf{of: map[string][][]byte{"a": files}}, io.Discard)
		require.Zero(t, n.Stats().Snapshots.Refused)
		require.Equal(t, used[1], usedOfAll(t, l))
		require.NoError(t, n.Close())
	})
}

// A store may be unable to read a snapshot, such as a file that is not regular.
func TestStoreErrorsAreCountedAndPreviousSnapshotLoads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		files, used := twoSnapshots(t)
		for _, kept := range []*shelf{{}, {of: map[string][][]byte{"a": files[:1]}}} {
			kept.lost = errors.New("the newest is a directory")
			var log bytes.Buffer
			n, l := aloneOn(t, kept, &log)
			require.Equal(t, 1, n.Stats().Snapshots.Refused)
			require.Equal(t, append([][]int64{make([]int64, damagedKeys)}, used...)[len(kept.of["a"])], usedOfAll(t, l))
			require.NoError(t, n.Close())
			require.Contains(t, log.String(), "is a directory")
		}
	})
}

func TestSnapshotOfLaterFormatIsNotReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		files, _ := twoSnapshots(t)
		later := slices.Clone(files[1])
		later[len("weirsnap")]++
		s := &shelf{of: map[string][][]byte{"a": {later}}}
		n, _ := aloneOn(t, s, io.Discard)
		time.Sleep(5 * time.Minute)
		require.NotZero(t, n.Stats().Snapshots.Failures)
		require.Contains(t, n.Stats().Snapshots.Error, "later format")
		require.NoError(t, n.Close())
		require.Equal(t, [][]byte{later}, s.of["a"])
	})
}

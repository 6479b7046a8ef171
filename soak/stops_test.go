package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/snapshot"
)

// keptTen are limits of which the kept one has ten units, so that tests are short.
func keptTen() map[string]weir.Limit {
	return map[string]weir.Limit{keptLimit: {Name: keptLimit, Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour, Durable: weir.Durable}}
}

// stopOfAll is a stop from a minute on for a second, of a round's keys.
func stopOfAll(orderly bool, saved time.Duration) *outage {
	return &outage{fault: fault{kind: stop, node: -1, span: lab.Between(int64(time.Minute), int64(time.Minute+time.Second)), saved: int64(saved)}, round: 7, orderly: orderly}
}

func TestAStopOfAllAdmitsAgainWhatItsSnapshotsLackAndNoMore(t *testing.T) {
	early, since := every(time.Millisecond, 50*time.Second, 5), every(time.Millisecond, 59*time.Second, 3)
	for name, test := range map[string]struct {
		orderly bool
		saved   time.Duration
		most    int // after the stop
	}{
		"in order":                  {true, math.MaxInt64, 2},
		"older snapshots, in order": {true, 55 * time.Second, 5},
		"killed":                    {false, 55 * time.Second, 5},
		"no snapshots":              {false, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			for more := range 2 {
				a := &account{Admitted: append(append(append([]span{}, early...), since...), every(time.Millisecond, time.Minute+2*time.Second, test.most+more)...), Denied: int64(time.Hour)}
				o := stopOfAll(test.orderly, test.saved)
				o.judge(keptTen(), map[string]*account{"kept 7/0": a})
				require.Equal(t, 1, o.usedUp)
				require.Equal(t, int64(8), o.before)
				require.Len(t, o.problems, more, o.problems)
			}
		})
	}
}

func TestAWindowOverAStopOfAllHoldsWhatItsSnapshotsLackBesides(t *testing.T) {
	kept := weir.Limit{Name: "log", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour}
	other := kept
	other.Durable = weir.NotDurable
	spread := func(n int) *account { // 40 are in snapshots, 10 are not, and the rest comes afterwards
		spans := append(every(time.Millisecond, time.Second, 40), every(time.Millisecond, 50*time.Second, 10)...)
		return &account{Admitted: append(spans, every(time.Millisecond, time.Minute+2*time.Second, n-50)...)}
	}
	stopped := stopOfAll(false, 30*time.Second).fault
	require.Empty(t, broken(judged(spread(110), kept, stopped)))
	require.Equal(t, []kind{stop}, broken(judged(spread(111), kept, stopped)))
	require.Empty(t, broken(judged(spread(200), other, stopped)))
	require.Equal(t, []kind{stop}, broken(judged(spread(201), other, stopped)))
}

func TestOnlyKeysOfTheRoundOfAStopAreHeldToIt(t *testing.T) {
	o := stopOfAll(true, math.MaxInt64)
	o.judge(keptTen(), map[string]*account{
		"kept 7/0": {Admitted: every(time.Millisecond, time.Second, 10), Denied: int64(time.Hour)},
		"kept 6/0": {Admitted: every(time.Millisecond, time.Second, 30)},
	})
	require.Empty(t, o.problems)
	require.Equal(t, int64(10), o.before)
}

func TestAStandInAfterAStopAllowsOneMoreLimit(t *testing.T) {
	spans := every(time.Millisecond, time.Minute+2*time.Second, 21)
	for admitted, want := range map[int]int{20: 0, 21: 1} {
		o := stopOfAll(true, math.MaxInt64)
		o.judge(keptTen(), map[string]*account{"kept 7/0": {Admitted: spans[:admitted], Alone: []stoodIn{{spans[0], 1}}, Denied: int64(time.Hour)}})
		require.Len(t, o.problems, want)
	}
}

func TestAKeyThatIsDeniedTooEarlyAfterAStopInOrderIsCountedTwice(t *testing.T) {
	for admitted, want := range map[int]int{10: 0, 9: 1} {
		o := stopOfAll(true, math.MaxInt64)
		o.judge(keptTen(), map[string]*account{"kept 7/0": {Admitted: every(time.Millisecond, time.Second, admitted), Denied: int64(time.Hour)}})
		require.Len(t, o.problems, want)
	}
}

func TestAStopAfterWhichNoKeyIsUsedUpShowsNothing(t *testing.T) {
	o := stopOfAll(true, math.MaxInt64)
	o.judge(keptTen(), map[string]*account{"kept 7/0": {Admitted: every(time.Millisecond, time.Second, 5), Denied: int64(time.Second)}})
	require.Len(t, o.problems, 1)
}

func TestHarmedSnapshotsLackWhatWasAdmittedSinceTheOldestThatIsLeft(t *testing.T) {
	const last, beforeLast = int64(100 * time.Second), int64(99 * time.Second)
	for name, test := range map[string]struct {
		outage
		saved int64
		files int // of three nodes with two each
	}{
		"killed":           {outage{harm: unharmed}, last, 6},
		"in order":         {outage{orderly: true, harm: unharmed}, math.MaxInt64, 6},
		"one lost":         {outage{harm: lost}, last - int64(copyAge), 4},
		"older, in order":  {outage{orderly: true, harm: reverted}, beforeLast, -1},
		"older, of a kill": {outage{harm: reverted}, beforeLast, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newFleet(options{nodes: 3, rate: 10, seed: 1}, io.Discard)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.close()) }()
			for i, m := range f.members {
				dir, err := snapshot.OpenDir(m.dir, snapshot.DirOptions{})
				require.NoError(t, err)
				for range 2 {
					require.NoError(t, dir.Save(context.Background(), f.label(i), func(io.Writer) error { return nil }))
				}
				require.NoError(t, dir.Close())
				m.saved = []int64{beforeLast, last + int64(i)}
			}
			saved, err := f.harm(&test.outage)
			require.NoError(t, err)
			if test.harm == lost {
				require.Contains(t, []int64{test.saved, test.saved + 1}, saved, "the first may be the lost one")
			} else {
				require.Equal(t, test.saved, saved)
			}
			files, err := filepath.Glob(filepath.Join(f.dir, "*", "*.snapshot"))
			require.NoError(t, err)
			if test.files >= 0 {
				require.Len(t, files, test.files)
				return
			}
			require.Less(t, len(files), 6)
			require.Greater(t, len(files), 3, "one node has its newest")
			for _, m := range f.members {
				_, err := os.Stat(m.dir)
				require.NoError(t, err)
			}
		})
	}
}

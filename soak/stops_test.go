package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
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

func TestKilledNodesLackWhatWasAdmittedSinceTheOldestSnapshot(t *testing.T) {
	f := &fleet{members: []*member{{saved: []int64{8}}, {saved: []int64{7}}, {saved: []int64{9}}}}
	require.EqualValues(t, 7, f.savedUntil(false))
	require.EqualValues(t, math.MaxInt64, f.savedUntil(true))
	f.members[2].saved = nil
	require.Zero(t, f.savedUntil(false))
}

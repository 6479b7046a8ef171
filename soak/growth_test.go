package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// over is the figures of a process, of which each is as grows says at the i-th time.
func over(times int, grows func(i int64, f *figures)) (series []figures) {
	for i := range times {
		f := figures{RSS: 30 * mib, Heap: 6 * mib, Goroutines: 60, Files: 20, Keys: 100}
		grows(int64(i), &f)
		series = append(series, f)
	}
	return series
}

func problems(series []figures) (all []string) {
	for _, g := range judgeGrowth(series) {
		if g.problem != "" {
			all = append(all, g.problem)
		}
	}
	return all
}

func TestWhatStaysIsNotTakenForGrowth(t *testing.T) {
	require.Empty(t, problems(over(60, func(i int64, f *figures) {
		f.RSS += i % 3 * mib
		f.Heap += i % 2 * mib
		f.Goroutines += i % 5
		f.Files += i % 4
		f.Keys += 2 * i
	})))
}

func TestOneFigureThatIsHighIsNoGrowth(t *testing.T) {
	require.Empty(t, problems(over(60, func(i int64, f *figures) {
		if i == 59 {
			*f = figures{RSS: 900 * mib, Heap: 600 * mib, Goroutines: 6000, Files: 2000, Keys: 9000}
		}
	})))
}

func TestEachFigureThatGrowsIsRefused(t *testing.T) {
	for name, grows := range map[string]func(int64, *figures){
		"RSS from":        func(i int64, f *figures) { f.RSS += i * mib },
		"heap, MiB from":  func(i int64, f *figures) { f.Heap += i * mib / 8 },
		"goroutines from": func(i int64, f *figures) { f.Goroutines += i },
		"files from":      func(i int64, f *figures) { f.Files += i },
		"keys from":       func(i int64, f *figures) { f.Keys += 20 * i },
	} {
		found := problems(over(60, grows))
		require.Len(t, found, 1, name)
	}
	require.Equal(t, []string{"goroutines grew from 70 to 110: 78 at most"}, problems(over(60, func(i int64, f *figures) { f.Goroutines += i })))
}

func TestALeakOfOneForEachFaultIsRefusedAfterAShortRunOfManyFaults(t *testing.T) {
	require.Len(t, problems(over(15, func(i int64, f *figures) { f.Files += i })), 1)
}

func TestAProcessThatWasLookedAtTooFewTimesIsRefused(t *testing.T) {
	require.Len(t, problems(over(fewest-1, func(int64, *figures) {})), 1)
	require.Empty(t, problems(over(fewest, func(int64, *figures) {})))
}

func TestWhatASystemDoesNotSayIsNotJudged(t *testing.T) {
	require.Len(t, judgeGrowth(over(10, func(_ int64, f *figures) { f.RSS, f.Files = -1, -1 })), len(tolerances)-2)
}

package main

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestTheDensestWindowOfASteadySplitIsTold(t *testing.T) {
	var out bytes.Buffer
	sum := make(map[weir.PartitionPolicy]steady)
	for _, p := range []weir.PartitionPolicy{weir.FairShare, weir.MajorityShare, weir.FailOpen} {
		s := told(weir.Limit{Name: "l", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: p}, splitAt10, healAt25)
		all := newTrial(journal(s,
			spread(150, 5*time.Second, 6*time.Second),      // no split yet
			spread(300, 9600*ms, 10500*ms),                 // it begins
			spread(120, 15*time.Second, 15900*ms, 0, 1),    // on one side,
			spread(100, 15100*ms, 16*time.Second, 2, 3, 4), // and on the other at the same time
			spread(300, 24500*ms, 25500*ms),                // it ends
		)).steadySplits()
		maps.Copy(sum, all)
	}
	require.Len(t, sum, 2)
	for p, s := range sum {
		require.Equal(t, int64(220), s.Units, p)
		require.Equal(t, int64(160), s.L)
		require.Greater(t, s.Windows, 100)
	}
	tellSteady(&out, sum)
	require.Contains(t, out.String(), "fair_share      1.38·L")
	out.Reset()
	tellSteady(&out, nil)
	require.Empty(t, out.String())
}

func TestTheDensestWindowIsThatWithMostOfItsOwnLimit(t *testing.T) {
	var s steady
	for _, o := range []steady{{2, 50, 100}, {3, 6, 10}, {0, 0, 0}, {4, 5, 10}} {
		s.add(o)
	}
	require.Equal(t, steady{9, 6, 10}, s)
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatchNotesWhenTheProcessCouldNotRun(t *testing.T) {
	at := func(ms int) int64 { return second + int64(ms)*int64(time.Millisecond) }
	var w watch
	usage := time.Duration(0)
	wakes := func(ms int, worked time.Duration) {
		usage += worked
		w.note(at(ms), usage)
	}
	wakes(0, time.Second) // the first sleep begins
	wakes(10, 0)
	wakes(40, 0) // late by the slack itself
	require.Empty(t, w.tell())
	wakes(150, 0)
	wakes(260, 75*time.Millisecond)  // it worked for as long as it was late, but for 25 ms
	wakes(370, 200*time.Millisecond) // on two cores
	require.Equal(t, [][2]int64{{at(50), at(150)}, {at(235), at(260)}}, w.tell())
	require.Empty(t, w.tell(), "it was told")
}

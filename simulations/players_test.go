package main

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// idle has an element for each core: a process that waits for a scenario, or nil if that
// process has not been started.
var idle = make(chan *lab.Service, runtime.NumCPU())

func init() {
	for range cap(idle) {
		idle <- nil
	}
}

// playAside plays the scenario in another process. Tests that call it are parallel, so
// that each core plays a scenario.
func playAside(t *testing.T, s *Scenario) *Journal {
	t.Helper()
	player := <-idle
	defer func() { idle <- player }()
	if player == nil {
		var err error
		player, err = startPlayer()
		require.NoError(t, err)
	}
	j, err := playIn(player, s)
	if err != nil {
		_ = player.End(endWait)
		player = nil
	}
	require.NoError(t, err)
	return j
}

// endPlayers ends all players.
func endPlayers() {
	for range cap(idle) {
		if player := <-idle; player != nil {
			_ = player.End(endWait)
		}
	}
}

func TestPlayerPlaysLikeThisProcess(t *testing.T) {
	s := newScene(2, Fault{At: 2 * time.Second, Kind: FaultSkew, Nodes: []string{"b"}, By: -time.Second})
	s.Lasts = 5 * time.Second
	want, err := run(t, s)
	require.NoError(t, err)
	requireReplays(t, s, want)
	require.Equal(t, want.Scenario, playAside(t, s).Scenario)
	another := s.clone()
	another.Seed++
	require.NotEqual(t, want.Checks, playAside(t, another).Checks)

	impossible := s.clone()
	impossible.Limits[0].Rate = 0
	player, err := startPlayer()
	require.NoError(t, err)
	_, err = playIn(player, impossible)
	require.ErrorIs(t, err, errUnplayable)
	require.ErrorContains(t, err, "Rate is 0")
	_, err = playIn(player, s)
	require.NoError(t, err)
	require.NoError(t, player.Kill())
	_, err = playIn(player, s)
	require.ErrorContains(t, err, "the process that played the scenario ended")
	require.Error(t, player.End(endWait))
}

// requireReplays requires that two of twenty runs of s are alike. The runtime preempts a
// goroutine after 10 ms of wall time, so a run differs if the system gave its core to
// another process for that long.
func requireReplays(t *testing.T, s *Scenario, first *Journal) {
	t.Helper()
	runs := []*Journal{first}
	var differs string
	for range 19 {
		again := playAside(t, s)
		for _, before := range runs {
			if differs = difference(before, again); differs == "" {
				return
			}
		}
		runs = append(runs, again)
	}
	require.Empty(t, differs, "no two of twenty runs are alike")
}

// difference returns a field of a journal in which two runs differ, or an empty text. The
// real time that a run took may differ.
func difference(a, b *Journal) string {
	for field, value := range reflect.ValueOf(*a).Fields() {
		other := reflect.ValueOf(*b).FieldByIndex(field.Index)
		if field.Name != "Took" && !reflect.DeepEqual(value.Interface(), other.Interface()) {
			return field.Name
		}
	}
	return ""
}

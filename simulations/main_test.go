package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain runs the tests, or plays scenarios if the process is a player.
func TestMain(m *testing.M) {
	if os.Getenv(playerEnv) != "" {
		main()
	}
	status := m.Run()
	endPlayers()
	os.Exit(status)
}

// simulations runs the program, and returns its exit status and its output.
func simulations(t *testing.T, args ...string) (status int, out, complaint string) {
	var o, c bytes.Buffer
	status = runCommand(t.Context(), t, args, &o, &c)
	return status, o.String(), c.String()
}

func TestCommandLineIsAnsweredWithStatusAndRemedy(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, s := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, exitFine, "clean-split"},
		{[]string{"-h"}, exitFine, "-regions"},
		{[]string{"no-such"}, exitUsage, `no scenario is called "no-such"`},
		{[]string{"no-such.yaml"}, exitUsage, "no such file"},
		{[]string{"a", "b"}, exitUsage, "name one scenario"},
		{[]string{"-seed", "1"}, exitUsage, "name a scenario"},
		{[]string{"-seed", "-1", "a"}, exitUsage, "-seed"},
		{[]string{"-n", "0"}, exitUsage, "at least 1"},
		{[]string{"-regions", "a"}, exitUsage, "-regions applies to random"},
		{[]string{"-snapshots", "-regions", "-n", "1"}, exitUsage, "-snapshots applies to random"},
		{[]string{"-n", "1", "a"}, exitUsage, "only one of the two"},
		{[]string{"-n", "1", "-svg", "x"}, exitUsage, "-svg draws a single run"},
		{[]string{"-test.v"}, exitUsage, "not defined"},
	} {
		status, out, complaint := simulations(t, s.args...)
		require.Equal(t, s.status, status, "%v: %s%s", s.args, out, complaint)
		require.Contains(t, out+complaint, s.says, "%v", s.args)
		require.NotContains(t, out, "-test.", "%v", s.args)
	}
}

func TestScenarioIsReportedAndDrawn(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mine.yaml", newScene(3,
		Fault{At: 5 * time.Second, Kind: FaultFreeze, Nodes: []string{"a"}},
		Fault{At: 7 * time.Second, Kind: FaultThaw, Nodes: []string{"a"}},
	).yaml(), 0o666))
	status, out, complaint := simulations(t, "-svg", "mine.svg", "-seed", "3", "mine.yaml")
	t.Log(out, complaint)
	require.Contains(t, []int{exitFine, exitBroken}, status)
	for _, says := range []string{"seed 3", "second", "5s ─ freeze a", "7s ─ thaw a", "bound", "✓ prompt"} {
		require.Contains(t, out, says)
	}
	drawn, err := os.ReadFile("mine.svg")
	require.NoError(t, err)
	require.Contains(t, string(drawn), "<svg")
}

// Seeds 20 and 21 are used because they take less time than most of the other seeds.
func TestRandomSearchPrintsItsSeeds(t *testing.T) {
	t.Chdir(t.TempDir())
	status, out, _ := simulations(t, "-n", "2", "-seed", "20")
	require.Contains(t, []int{exitFine, exitBroken}, status)
	require.Contains(t, out, "seed 20: ")
	require.Contains(t, out, "seed 21: ")
	require.Contains(t, out, "2 scenarios, ")
}

// cancelling calls cancel when a text is written to it.
type cancelling struct {
	bytes.Buffer
	text   string
	cancel context.CancelFunc
}

func (c *cancelling) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		c.cancel()
	}
	return c.Buffer.Write(b)
}

func TestInterruptedSearchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelling{text: "seed 20:", cancel: cancel}
	var complaint bytes.Buffer
	status := runCommand(ctx, t, []string{"-n", "10000", "-seed", "20"}, out, &complaint)
	require.Equal(t, exitInterrupted, status, complaint.String())
	require.Contains(t, out.String(), "of virtual time")
}

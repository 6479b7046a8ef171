package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// To open a pipe waits for whoever reads it, which may be nobody.
func TestAPipeInThePlaceOfTheAuditFileHoldsNothingUp(t *testing.T) {
	dir := folder(t)
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	cmd := weirIn(t, dir, "serve", "-checks", "127.0.0.1:0", "-health", "127.0.0.1:0", "-audit", "pipe")
	stop := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	out, _ := cmd.CombinedOutput()
	stop.Stop()
	require.Equal(t, bad, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "-audit: pipe is no regular file: give the name of one, or - for standard output")

	p := start(t, dir, "-audit", "audit.log")
	file := filepath.Join(dir, "audit.log")
	require.NoError(t, syscall.Rename(file, file+".1"))
	require.NoError(t, syscall.Rename(pipe, file))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), "was not opened again") }, 30*time.Second, 10*time.Millisecond)
	deny(t, p, "u")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", &p.out)
	require.Len(t, records(t, file+".1"), 1, "records go on to the file that is open")
}

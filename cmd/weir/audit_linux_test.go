package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Opening a pipe waits for a reader, which may not exist.
func TestPipeIsRefusedAsAuditFile(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	err := refused(t, "-checks", "127.0.0.1:0", "-health", "127.0.0.1:0", "-audit", pipe)
	require.ErrorContains(t, err, "-audit: "+pipe+" is not a regular file: name one, or use - for standard output")

	p := start(t, dir, "-audit", "audit.log")
	file := filepath.Join(dir, "audit.log")
	require.NoError(t, syscall.Rename(file, file+".1"))
	require.NoError(t, syscall.Rename(pipe, file))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	wait(t, func() bool { return strings.Contains(p.out.String(), "was not replaced") })
	deny(t, &p.reached, "u")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", &p.out)
	require.Len(t, records(t, file+".1"), 1, "records go on to the file that is open")
}

//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServeTakesNoSocketOfLiveProcess(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	flags := []string{"checks", "admin", "health", "envoy"}
	var sockets []string
	for _, name := range flags {
		sockets = append(sockets, "-"+name, "unix:"+filepath.Join(dir, name+".sock"))
	}
	first := start(t, dir, sockets...)
	answers := func() bool {
		var out strings.Builder
		live := run([]string{"live", "-health", "unix:" + filepath.Join(dir, "health.sock")}, &out, &out)
		status := run([]string{"status", "-admin", "unix:" + filepath.Join(dir, "admin.sock"), "-token_file", filepath.Join(dir, "admin")}, &out, &out)
		return live == ok && status == ok
	}
	require.True(t, answers())
	for _, name := range flags {
		socket := filepath.Join(dir, name+".sock")
		err := refused(t, serving(dir, "-"+name, "unix:"+socket)...)
		require.ErrorContains(t, err, "weir serve: -"+name+": "+socket+": another process listens there: end it first, or use another path")
		require.True(t, answers(), "the first process lost a socket to the second")
	}
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	next := start(t, dir, sockets...)
	require.True(t, answers(), "the sockets of a killed process are not replaced")
	require.NoError(t, next.Process.Signal(syscall.SIGTERM))
	require.NoError(t, next.Wait())
	for _, name := range flags {
		require.NoFileExists(t, filepath.Join(dir, name+".sock"))
	}
}

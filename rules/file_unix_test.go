//go:build unix

package rules

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireReturns fails the test if f takes longer than any call here may wait.
func requireReturns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s has not come back after 10 s", what)
	}
}

// specialFiles returns files that are not regular files, with their kinds.
func specialFiles(t *testing.T) map[string]string {
	dir := t.TempDir()
	fifo, socket, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, os.Symlink(fifo, link))
	return map[string]string{fifo: "a FIFO", link: "a FIFO", socket: "a socket", dir: "a directory", "/dev/zero": "a device", "/dev/null": "a device"}
}

func TestSpecialFilesAreRefusedByKind(t *testing.T) {
	n := startNode(t)
	for path, kind := range specialFiles(t) {
		requireReturns(t, "Open of "+kind, func() {
			_, err := Open(context.Background(), n, path, BookOptions{})
			require.ErrorContains(t, err, path+" is "+kind)
		})
	}
}

func TestFIFOLeavesLastVersionInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "rules: [{name: all, key: global, limit: {rate: 1, per: 1s}}]")
	b, _ := open(t, path, BookOptions{Poll: 5 * time.Millisecond})
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Rename(fifo, path))
	require.Eventually(t, func() bool { return b.Stats().LastError != nil }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, b.Stats().LastError, path+" is a FIFO")
	require.False(t, b.Stats().Missing)
	require.Len(t, b.Current().Rules(), 1)
	requireReturns(t, "Close", func() { b.Close() })
}

// A FIFO that replaces the file between the two checks of its mode is opened without waiting.
func TestFIFOIsOpenedWithoutWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	requireReturns(t, "opening", func() {
		f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWaiting, 0)
		require.NoError(t, err)
		defer f.Close()
		info, err := f.Stat()
		require.NoError(t, err)
		require.ErrorContains(t, regular(path, info), "a FIFO")
	})
}

//go:build unix

package sockets

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// answers connects to path, and fails the test unless l accepts the connection.
func answers(t *testing.T, l net.Listener, path string) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte{1})
			_ = conn.Close()
		}
		accepted <- err
	}()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	n, err := conn.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, <-accepted)
}

// leaveDead leaves a socket at path as a killed process does.
func leaveDead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func TestListenRefusesPathOfLiveSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer other.Close()
	for range 3 {
		_, err = Listen(path, 0o660)
		require.ErrorIs(t, err, ErrInUse)
		require.ErrorContains(t, err, path+": another process listens there: end it first, or use another path")
	}
	go func() { // connections of Listen wait in the queue
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err, "the other process lost its socket")
	_ = conn.Close()
}

func TestListenReplacesOnlySockets(t *testing.T) {
	dir := t.TempDir()
	for name, create := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"symlink": func(path string) error {
			leaveDead(t, path+".target")
			return os.Symlink(path+".target", path)
		},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, create(path))
		before, err := os.Lstat(path)
		require.NoError(t, err)
		_, err = Listen(path, 0o660)
		require.Error(t, err, name)
		after, err := os.Lstat(path)
		require.NoError(t, err, name)
		require.True(t, os.SameFile(before, after), name)
	}
	for _, path := range []string{"", "@abstract"} {
		_, err := Listen(path, 0o660)
		require.ErrorContains(t, err, "is not the path of a file")
	}
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "g"), Net: "unixgram"})
	require.NoError(t, err)
	defer datagrams.Close()
	_, err = Listen(filepath.Join(dir, "g"), 0o660)
	require.ErrorIs(t, err, ErrInUse)
	require.FileExists(t, filepath.Join(dir, "g"))
}

func TestListenReplacesSocketOfKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	leaveDead(t, path)
	l, err := Listen(path, 0o660)
	require.NoError(t, err)
	answers(t, l, path)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}

func TestCloseKeepsSocketOfLaterListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path, 0o660)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path)) // by an operator, or a process of a different kind
	second, err := Listen(path, 0o660)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	answers(t, second, path)
	require.NoError(t, second.Close())
	require.NoFileExists(t, path)
}

// Of several processes that start at once, one gets the path of a dead socket, and keeps
// it.
func TestSimultaneousStartsShareNoSocket(t *testing.T) {
	const rounds, starts = 20, 8
	dir := t.TempDir()
	for range rounds {
		path := filepath.Join(dir, "s")
		leaveDead(t, path)
		got := make(chan net.Listener, starts)
		var all sync.WaitGroup
		for range starts {
			all.Go(func() {
				if l, err := Listen(path, 0o660); err == nil {
					got <- l
				}
			})
		}
		all.Wait()
		close(got)
		var listeners []net.Listener
		for l := range got {
			listeners = append(listeners, l)
		}
		require.Len(t, listeners, 1)
		// The function answers is of no use here: it accepts a single connection, which may be a
		// connection that a failed call of Listen made to find out whether the socket is in use.
		next, err := net.Dial("unix", path)
		require.NoError(t, err)
		_ = next.Close()
		require.NoError(t, listeners[0].Close())
		require.NoFileExists(t, path)
	}
}

// Close and Listen exclude each other, so the path still leads to the listener that was
// created last.
func TestCloseDuringListenKeepsNewSocket(t *testing.T) {
	const rounds = 50
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path, 0o660)
	require.NoError(t, err)
	for range rounds {
		ended := make(chan error, 1)
		go func() { ended <- first.Close() }()
		var next net.Listener
		for next == nil {
			if next, err = Listen(path, 0o660); err != nil {
				require.ErrorIs(t, err, ErrInUse)
			}
		}
		require.NoError(t, <-ended)
		answers(t, next, path)
		first = next
	}
	require.NoError(t, first.Close())
}

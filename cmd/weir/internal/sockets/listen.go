// Package sockets listens on Unix sockets. A process takes the path of a socket only if
// no process listens there. It removes only its own socket, and at the start a socket that
// a killed process has left.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ErrInUse is the error of Listen for a path at which a process listens, or may listen.
var ErrInUse = errors.New("another process listens there")

const (
	// dialTimeout is the timeout of the dial that checks whether a process listens. The
	// kernel answers the dial, even if the process is stopped.
	dialTimeout = time.Second
	// lockTimeout bounds the wait for a process that starts or ends in the same
	// directory. A process holds the lock for a few system calls.
	lockTimeout = 5 * time.Second
	lockEvery   = 5 * time.Millisecond
)

// Listen creates a socket at path with the mode perm, and listens on it. Listen replaces a
// socket that a killed process has left. The error is ErrInUse if a process listens at
// path, or if Listen cannot find out. Close of the listener removes the socket if it is
// still the same file.
//
// Processes that call Listen or Close exclude each other by a lock on the directory. So no
// process can remove a socket that another process has bound and does not listen on yet.
// On systems where tryLock does nothing, such as Windows, a process can.
func Listen(path string, perm os.FileMode) (net.Listener, error) {
	if path == "" || path[0] == '@' {
		return nil, fmt.Errorf("%q is not the path of a file: an abstract socket has no mode, so that any user could connect", path)
	}
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeDead(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := os.Chmod(path, perm); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	return &listener{UnixListener: l, path: path, made: made}, nil
}

// removeDead removes the socket at path if no process listens there. It leaves any other
// file, so that the bind fails.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%s: %w: end it first, or use another path", path, ErrInUse)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, os.ErrNotExist):
		return nil
	}
	// The user has no permission to connect, the backlog is full, or the socket has
	// a different type.
	return fmt.Errorf("%s: it may be that %w (%w): end that process, or remove the socket", path, ErrInUse, err)
}

// listener is a Unix listener. Its Close method removes the socket.
type listener struct {
	*net.UnixListener
	path   string
	made   os.FileInfo
	closed sync.Once
}

// Close implements net.Listener. Without the lock, Close leaves the socket, which the next
// Listen replaces.
//
// The kernel keeps the socket's inode until the listener is closed. Close compares the files
// before that, so another file at the path cannot have the same inode number.
func (l *listener) Close() (err error) {
	err = net.ErrClosed
	l.closed.Do(func() {
		if unlock, failed := lockDirectory(filepath.Dir(l.path)); failed == nil {
			defer unlock()
			if now, failed := os.Lstat(l.path); failed == nil && os.SameFile(now, l.made) {
				_ = os.Remove(l.path)
			}
		}
		err = l.UnixListener.Close()
	})
	return err
}

// lockDirectory locks a directory until unlock is called or the process ends.
func lockDirectory(dir string) (unlock func(), err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockEvery) {
		locked, err := tryLock(file)
		if locked {
			return func() { _ = file.Close() }, nil
		}
		if err == nil && time.Now().After(end) {
			err = fmt.Errorf("another process has locked the directory for more than %v: end it, or use another directory", lockTimeout)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
		}
	}
}

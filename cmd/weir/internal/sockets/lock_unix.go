//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package sockets

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks the file until it is closed, and reports false without an error if another
// open file has the lock.
func tryLock(file *os.File) (locked bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}

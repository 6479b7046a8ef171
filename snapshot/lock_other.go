//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package snapshot

import (
	"errors"
	"os"
)

var errLocked = errors.New("locked")

// lockFile opens a file without a lock, because the standard library has no locks on this
// system.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

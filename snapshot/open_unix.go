//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package snapshot

import "syscall"

// openFlags makes open refuse symbolic links, and return at once for a named pipe.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

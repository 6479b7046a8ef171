//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package snapshot

import "syscall"

// openFlags has the system refuse symbolic links, and return at once from a named pipe.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

//go:build unix

package rules

import "syscall"

// openWithoutWaiting opens a FIFO at once, though nobody writes.
const openWithoutWaiting = syscall.O_NONBLOCK

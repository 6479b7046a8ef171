//go:build unix

package rules

import "syscall"

// openWithoutWaiting opens a FIFO at once, even without a writer.
const openWithoutWaiting = syscall.O_NONBLOCK

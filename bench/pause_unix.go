//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// pauses stops a child, and has it go on.
func pauses(cmd *exec.Cmd) (stop, resume func() error) {
	return func() error { return cmd.Process.Signal(syscall.SIGSTOP) },
		func() error { return cmd.Process.Signal(syscall.SIGCONT) }
}

package main

import (
	"os/exec"
	"syscall"
)

// tieToParent has the system kill the process when the thread that starts it
// ends.
func tieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

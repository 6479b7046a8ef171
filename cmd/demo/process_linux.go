package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the system kill the process when the thread that starts it
// ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package main

import (
	"os/exec"
	"syscall"
)

// tieToParent has the kernel end the child when this process dies.
func tieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

package lab

import (
	"os/exec"
	"syscall"
)

// TieToParent has the kernel kill the process when the thread that starts it ends, as it does
// when this process dies. Call it before cmd.Start.
func TieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

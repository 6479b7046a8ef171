package lab

import (
	"os/exec"
	"syscall"
)

// TieToParent makes the kernel kill the process when the thread that starts it ends. That
// thread ends when this process dies. TieToParent must be called before cmd.Start.
func TieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

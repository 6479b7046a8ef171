//go:build unix

package lab

import (
	"runtime"
	"syscall"
	"time"
)

// Signals reports whether this system has the signals of Leave, Freeze and Thaw, and
// reports the values of CPU and PeakMemory.
const Signals = true

// Leave asks the child to end in order, by SIGTERM.
func (c *Child) Leave() error { return c.Cmd.Process.Signal(syscall.SIGTERM) }

// Freeze stops the child, by SIGSTOP. The child still has its memory, sockets and timers.
func (c *Child) Freeze() error { return c.Cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw continues a frozen child, by SIGCONT. A child that is not frozen just continues.
func (c *Child) Thaw() error { return c.Cmd.Process.Signal(syscall.SIGCONT) }

// CPU returns the CPU time that this process has used so far, in user and system mode, or
// 0 if the system reports none. CPU grows only by the work of this process, however busy
// the machine is. So a test measures the cost of code with CPU, and not with the clock.
func CPU() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakMemory returns the maximum number of bytes of memory that this process has
// occupied, or 0 if the system reports none.
func PeakMemory() int64 {
	if runtime.GOOS == "darwin" { // darwin counts bytes, and other systems count KiB
		return int64(usage().Maxrss)
	}
	return int64(usage().Maxrss) << 10
}

func usage() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // an error leaves zeros
	return u
}
